// The table of one rung in one arithmetic: the rows of kernels.def that are in it. A row without a kernel of that name
// does not link.
#include <span>

#include "kernels/cpu/gemm.h"
#include "kernels/kernel.h"

#if defined(LAMINA_ARITHMETIC_F32)
#define LAMINA_ROW_f32(...) __VA_ARGS__
#else
#define LAMINA_ROW_f32(...)
#endif
#if defined(LAMINA_ARITHMETIC_BF16DOT)
#define LAMINA_ROW_bf16dot(...) __VA_ARGS__
#else
#define LAMINA_ROW_bf16dot(...)
#endif
#if defined(LAMINA_ARITHMETIC_F16CHUNK)
#define LAMINA_ROW_f16chunk(...) __VA_ARGS__
#else
#define LAMINA_ROW_f16chunk(...)
#endif

namespace lamina::LAMINA_ISA_NAMESPACE {

#define KERNEL(op, arithmetic) LAMINA_ROW_##arithmetic(extern const Kernel kernel_##op##_##arithmetic;)
#include "kernels/kernels.def"
#undef KERNEL

namespace {

constexpr const Kernel* kKernels[] = {
#define KERNEL(op, arithmetic) LAMINA_ROW_##arithmetic(&kernel_##op##_##arithmetic, )
#include "kernels/kernels.def"
#undef KERNEL
};

}  // namespace

extern constinit const KernelTable kernel_table{Isa::LAMINA_ISA, Arithmetic::LAMINA_ARITHMETIC, kPanel, kKernels};

}  // namespace lamina::LAMINA_ISA_NAMESPACE

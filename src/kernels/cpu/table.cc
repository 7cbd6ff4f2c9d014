// The table of one ISA: kernels.def, row by row. A row without a kernel of that name does not link.
#include <span>

#include "kernels/cpu/gemm.h"
#include "kernels/kernel.h"

namespace lamina::LAMINA_ISA_NAMESPACE {

#define KERNEL(op, arithmetic) extern const Kernel kernel_##op##_##arithmetic;
#include "kernels/kernels.def"
#undef KERNEL

namespace {

constexpr const Kernel* kKernels[] = {
#define KERNEL(op, arithmetic) &kernel_##op##_##arithmetic,
#include "kernels/kernels.def"
#undef KERNEL
};

}  // namespace

extern constinit const KernelTable kernel_table{Isa::LAMINA_ISA_NAMESPACE, Arithmetic::f32, kPanel, kKernels};

}  // namespace lamina::LAMINA_ISA_NAMESPACE

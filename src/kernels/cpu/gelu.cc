// gelu and gelu_bwd, over storage, some elements at a time so that those of 16 bits can be converted on the way.
#include "kernels/cpu/gelu.h"

#include "kernels/cpu/narrow.h"

namespace lamina::LAMINA_ISA_NAMESPACE {
namespace {

constexpr int64_t kBlock = 1024;

// f(first, n) for blocks of the elements of some tasks.
template <typename F>
LAMINA_INLINE void for_blocks(const Args& args, int64_t begin, int64_t end, F f) {
  const int64_t last = smaller(end * kTaskElements, storage_count(args.out[0]));
  for (int64_t first = begin * kTaskElements; first < last; first += kBlock) f(first, smaller(kBlock, last - first));
}

LAMINA_FLATTEN void run_gelu(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  const bool tanh = attrs_of<GeluAttrs>(args).tanh;
  for_blocks(args, begin, end, [&](int64_t first, int64_t n) {
    float space[kBlock];
    const Numbers to = numbers(args.out[0]).from(first);
    float* y = row_for(to, space);
    gelu_row(operand(args, 0).from(first).read(n, space), tanh, y, n);
    finish_row(y, n, to);
  });
}

LAMINA_FLATTEN void run_gelu_bwd(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  const bool tanh = attrs_of<GeluAttrs>(args).tanh;
  for_blocks(args, begin, end, [&](int64_t first, int64_t n) {
    float space[kBlock];
    const Numbers to = numbers(args.out[0]).from(first);
    float* dx = row_for(to, space);
    gelu_slope_row(input(args, 0) + first, operand(args, 1).from(first).read(n, space), tanh, dx, n);
    finish_row(dx, n, to);
  });
}

}  // namespace

LAMINA_KERNEL_F32(gelu, element_tasks);
LAMINA_KERNEL_F32(gelu_bwd, element_tasks);

}  // namespace lamina::LAMINA_ISA_NAMESPACE

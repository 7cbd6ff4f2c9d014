// gelu and gelu_bwd, over storage.
#include "kernels/cpu/gelu.h"

namespace lamina::LAMINA_ISA_NAMESPACE {
namespace {

LAMINA_FLATTEN void run_gelu(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  const int64_t first = begin * kTaskElements;
  const int64_t last = smaller(end * kTaskElements, storage_count(args.out[0]));
  gelu_row(input(args, 0) + first, attrs_of<GeluAttrs>(args).tanh, output(args, 0) + first, last - first);
}

LAMINA_FLATTEN void run_gelu_bwd(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  const int64_t first = begin * kTaskElements;
  const int64_t last = smaller(end * kTaskElements, storage_count(args.out[0]));
  gelu_slope_row(input(args, 0) + first, input(args, 1) + first, attrs_of<GeluAttrs>(args).tanh,
                 output(args, 0) + first, last - first);
}

}  // namespace

LAMINA_KERNEL_F32(gelu, element_tasks);
LAMINA_KERNEL_F32(gelu_bwd, element_tasks);

}  // namespace lamina::LAMINA_ISA_NAMESPACE

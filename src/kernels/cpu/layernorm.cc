// layernorm, by rows.
#include "kernels/cpu/layernorm.h"

namespace lamina::LAMINA_ISA_NAMESPACE {
namespace {

LAMINA_FLATTEN void run_layernorm(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  const int64_t C = last_dim(args.in[0]);
  const float eps = static_cast<float>(attrs_of<LayerNormAttrs>(args).eps);
  const int64_t last = smaller(end * rows_per_task(args), row_count(args.in[0]));
  for (int64_t r = begin * rows_per_task(args); r < last; ++r) {
    const LayerNormRow row =
        normalize(input(args, 0) + r * C, input(args, 1), input(args, 2), output(args, 0) + r * C, C, eps);
    output(args, 1)[r] = row.mean;
    output(args, 2)[r] = row.rstd;
  }
}

}  // namespace

LAMINA_KERNEL_F32(layernorm, row_tasks);

}  // namespace lamina::LAMINA_ISA_NAMESPACE

// layernorm, by rows.
#include "kernels/cpu/layernorm.h"

#include "kernels/cpu/narrow.h"

namespace lamina::LAMINA_ISA_NAMESPACE {
namespace {

LAMINA_FLATTEN void run_layernorm(const Args& args, int64_t begin, int64_t end, std::byte* scratch) noexcept {
  const int64_t C = last_dim(args.in[0]);
  const float eps = static_cast<float>(attrs_of<LayerNormAttrs>(args).eps);
  const int64_t last = smaller(end * rows_per_task(args), row_count(args.in[0]));
  for (int64_t r = begin * rows_per_task(args); r < last; ++r) {
    const Numbers to = numbers(args.out[0]).from(r * C);
    float* y = row_for(to, reinterpret_cast<float*>(scratch));
    const LayerNormRow row = normalize(input(args, 0) + r * C, input(args, 1), input(args, 2), y, C, eps);
    finish_row(y, C, to);
    output(args, 1)[r] = row.mean;
    output(args, 2)[r] = row.rstd;
  }
}

// A row, before it is rounded.
int64_t scratch_bytes(const Args& args) noexcept {
  return numbers(args.out[0]).wide() ? 0 : last_dim(args.out[0]) * static_cast<int64_t>(sizeof(float));
}

}  // namespace

extern constinit const Kernel kernel_layernorm_f32{Op::layernorm, "layernorm.f32." LAMINA_STRING(LAMINA_ISA_NAMESPACE),
                                                   run_layernorm, row_tasks, scratch_bytes};

}  // namespace lamina::LAMINA_ISA_NAMESPACE

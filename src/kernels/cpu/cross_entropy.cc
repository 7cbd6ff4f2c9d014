// cross_entropy and cross_entropy_bwd, by rows.
#include "kernels/cpu/cross_entropy.h"

namespace lamina::LAMINA_ISA_NAMESPACE {
namespace {

LAMINA_FLATTEN void run_cross_entropy(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  const int64_t V = last_dim(args.in[0]);
  const int64_t last = smaller(end * rows_per_task(args), row_count(args.in[0]));
  for (int64_t r = begin * rows_per_task(args); r < last; ++r) {
    const FloatPair got = row_loss(input(args, 0) + r * V, input_i32(args, 1)[r], V);
    output(args, 0)[r] = got.a;
    output(args, 1)[r] = got.b;
  }
}

LAMINA_FLATTEN void run_cross_entropy_bwd(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  const int64_t V = last_dim(args.in[0]);
  const int64_t last = smaller(end * rows_per_task(args), row_count(args.in[0]));
  for (int64_t r = begin * rows_per_task(args); r < last; ++r)
    row_gradient(input(args, 0) + r * V, input_i32(args, 1)[r], input(args, 2)[r], input(args, 3)[r],
                 output(args, 0) + r * V, V);
}

}  // namespace

extern constinit const Kernel kernel_cross_entropy_f32 = {
    Op::cross_entropy, "cross_entropy.f32." LAMINA_STRING(LAMINA_ISA_NAMESPACE) ".v2048", run_cross_entropy, row_tasks,
    no_scratch};
static_assert(kLogitsChunk == 2048);
LAMINA_KERNEL_F32(cross_entropy_bwd, row_tasks);

}  // namespace lamina::LAMINA_ISA_NAMESPACE

// linear_bwd_bias: the sum of each column of dy, plus acc. A task is a block of columns; a column is summed in the
// order of its rows, whatever the block.
#include "kernels/cpu/gemm.h"

namespace lamina::LAMINA_ISA_NAMESPACE {
namespace {

constexpr int kVecs = 256 / kLanes;
constexpr int64_t kColumns = kVecs * kLanes;  // of a task; their sums stay in the first-level cache

LAMINA_FLATTEN void run(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  const float* dy = input(args, 0);   // (M, N)
  const float* acc = input(args, 1);  // (N) or null
  float* db = output(args, 0);        // (N)
  const int64_t M = row_count(args.in[0]);
  const int64_t N = last_dim(args.in[0]);
  for (int64_t task = begin; task < end; ++task) {
    const int64_t first = task * kColumns;
    const int64_t columns = smaller(kColumns, N - first);
    float sums[kColumns];
    for (int64_t i = 0; i < columns; ++i) sums[i] = 0.0f;
    add_columns(dy + first, N, M, columns, sums);
    for (int64_t i = 0; i < columns; ++i) db[first + i] = acc == nullptr ? sums[i] : sums[i] + acc[first + i];
  }
}

int64_t tasks(const Args& args) noexcept { return ceil_div(last_dim(args.in[0]), kColumns); }

}  // namespace

extern constinit const Kernel kernel_linear_bwd_bias_f32{
    Op::linear_bwd_bias, "linear_bwd_bias.f32." LAMINA_STRING(LAMINA_ISA_NAMESPACE), run, tasks, no_scratch};

}  // namespace lamina::LAMINA_ISA_NAMESPACE

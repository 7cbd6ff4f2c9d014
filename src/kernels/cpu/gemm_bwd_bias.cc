// linear_bwd_bias: the sum of each column of dy, plus acc. A task is a block of columns; a column is summed in the
// order of its rows, whatever the block.
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/narrow.h"

namespace lamina::LAMINA_ISA_NAMESPACE {
namespace {

constexpr int kVecs = 256 / kLanes;
constexpr int64_t kColumns = kVecs * kLanes;  // of a task; their sums stay in the first-level cache

// A multiple of the rows that add_columns takes at once, so that its order is that of all rows together.
constexpr int64_t kRows = 16;

// Columns of dy whose numbers become fp32 first, some rows at a time.
LAMINA_NOINLINE void add_converted(const Operand& dy, int64_t ld, int64_t rows, int64_t columns, float* sums) {
  float space[kRows * kColumns];
  for (int64_t m = 0; m < rows; m += kRows) {
    const int64_t some = smaller(kRows, rows - m);
    for (int64_t r = 0; r < some; ++r) dy.from((m + r) * ld).read(columns, space + r * kColumns);
    add_columns(space, kColumns, some, columns, sums);
  }
}

LAMINA_FLATTEN void run(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  const Operand dy = operand(args, 0);  // (M, N)
  const float* acc = input(args, 1);    // (N) or null
  float* db = output(args, 0);          // (N)
  const int64_t M = row_count(args.in[0]);
  const int64_t N = last_dim(args.in[0]);
  for (int64_t task = begin; task < end; ++task) {
    const int64_t first = task * kColumns;
    const int64_t columns = smaller(kColumns, N - first);
    float sums[kColumns];
    for (int64_t i = 0; i < columns; ++i) sums[i] = 0.0f;
    if (dy.plain())
      add_columns(dy.floats() + first, N, M, columns, sums);
    else
      add_converted(dy.from(first), N, M, columns, sums);
    for (int64_t i = 0; i < columns; ++i) db[first + i] = acc == nullptr ? sums[i] : sums[i] + acc[first + i];
  }
}

int64_t tasks(const Args& args) noexcept { return ceil_div(last_dim(args.in[0]), kColumns); }

}  // namespace

extern constinit const Kernel kernel_linear_bwd_bias_f32{
    Op::linear_bwd_bias, "linear_bwd_bias.f32." LAMINA_STRING(LAMINA_ISA_NAMESPACE), run, tasks, no_scratch};

}  // namespace lamina::LAMINA_ISA_NAMESPACE

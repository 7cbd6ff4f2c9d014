// layernorm_bwd_input, by rows, and layernorm_bwd_params, by blocks of columns.
#include "kernels/cpu/args.h"

namespace lamina::LAMINA_ISA_NAMESPACE {
namespace {

// dx = rstd * (g - mean(g) - xhat * mean(g * xhat)) + acc, g = dy * weight. dx may lie on dy, x or acc.
LAMINA_INLINE void input_row(const float* dy, const float* x, const float* weight, float mean, float rstd,
                             const float* acc, float* dx, int64_t C) {
  const Vec center = broadcast(mean);
  const Vec scale = broadcast(rstd);
  const FloatPair sums = sum_pairs(C, [=](int64_t c, auto lanes) {
    const Vec g = mul(lanes.load(dy + c), lanes.load(weight + c));
    return VecPair{g, mul(g, mul(sub(lanes.load(x + c), center), scale))};
  });
  const Vec mean_g = broadcast(sums.a / static_cast<float>(C));
  const Vec mean_gx = broadcast(sums.b / static_cast<float>(C));
  for_lanes(0, C, [=](int64_t c, auto lanes) {
    const Vec g = mul(lanes.load(dy + c), lanes.load(weight + c));
    const Vec xhat = mul(sub(lanes.load(x + c), center), scale);
    const Vec inner = fnma(xhat, mean_gx, sub(g, mean_g));
    lanes.store(dx + c, acc == nullptr ? mul(scale, inner) : fma(scale, inner, lanes.load(acc + c)));
  });
}

LAMINA_FLATTEN void run_layernorm_bwd_input(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  const int64_t C = last_dim(args.in[0]);
  const float* acc = input(args, 5);
  const int64_t last = smaller(end * rows_per_task(args), row_count(args.in[0]));
  for (int64_t r = begin * rows_per_task(args); r < last; ++r)
    input_row(input(args, 0) + r * C, input(args, 1) + r * C, input(args, 2), input(args, 3)[r], input(args, 4)[r],
              acc == nullptr ? nullptr : acc + r * C, output(args, 0) + r * C, C);
}

// Columns of one task of layernorm_bwd_params, and rows that are summed in fp32 before their sum goes into a double: a
// column of many rows loses nothing.
constexpr int64_t kColumns = 64;
constexpr int64_t kRows = 64;

struct ColumnSums {
  double weight[kColumns];
  double bias[kColumns];
};

// Adds rows [begin, end) of kVecs vectors of columns at dy, x; the pointers are at the first row and column.
template <int kVecs, typename Lanes>
LAMINA_INLINE void sum_columns(const Args& args, int64_t begin, int64_t end, int64_t column, Lanes lanes,
                               double* weight, double* bias) {
  const int64_t C = last_dim(args.in[0]);
  const float* mean = input(args, 2);
  const float* rstd = input(args, 3);
  Vec w[kVecs];
  Vec b[kVecs];
  LAMINA_UNROLL for (int j = 0; j < kVecs; ++j) w[j] = b[j] = zero();
  for (int64_t r = begin; r < end; ++r) {
    const float* dy = input(args, 0) + r * C + column;
    const float* x = input(args, 1) + r * C + column;
    LAMINA_UNROLL for (int j = 0; j < kVecs; ++j) {
      const Vec g = lanes.load(dy + j * kLanes);
      const Vec xhat = mul(sub(lanes.load(x + j * kLanes), broadcast(mean[r])), broadcast(rstd[r]));
      w[j] = fma(g, xhat, w[j]);
      b[j] = add(b[j], g);
    }
  }
  float sums[kLanes];
  for (int j = 0; j < kVecs; ++j) {
    store(sums, w[j]);
    for (int i = 0; i < kLanes; ++i) weight[j * kLanes + i] += static_cast<double>(sums[i]);
    store(sums, b[j]);
    for (int i = 0; i < kLanes; ++i) bias[j * kLanes + i] += static_cast<double>(sums[i]);
  }
}

LAMINA_INLINE void column_block(const Args& args, int64_t first, int64_t width) {
  ColumnSums sums = {};
  const int64_t rows = row_count(args.in[0]);
  for (int64_t r = 0; r < rows; r += kRows) {
    const int64_t stop = smaller(r + kRows, rows);
    int64_t c = 0;
    for (; c + 4 * kLanes <= width; c += 4 * kLanes)
      sum_columns<4>(args, r, stop, first + c, AllLanes{}, sums.weight + c, sums.bias + c);
    for (; c + kLanes <= width; c += kLanes)
      sum_columns<1>(args, r, stop, first + c, AllLanes{}, sums.weight + c, sums.bias + c);
    if (c < width) sum_columns<1>(args, r, stop, first + c, FirstLanes{width - c}, sums.weight + c, sums.bias + c);
  }
  const float* acc_weight = input(args, 4);
  const float* acc_bias = input(args, 5);
  for (int64_t c = 0; c < width; ++c) {
    const double more_weight = acc_weight == nullptr ? 0.0 : static_cast<double>(acc_weight[first + c]);
    const double more_bias = acc_bias == nullptr ? 0.0 : static_cast<double>(acc_bias[first + c]);
    output(args, 0)[first + c] = static_cast<float>(sums.weight[c] + more_weight);
    output(args, 1)[first + c] = static_cast<float>(sums.bias[c] + more_bias);
  }
}

int64_t column_tasks(const Args& args) noexcept { return ceil_div(last_dim(args.in[0]), kColumns); }

LAMINA_FLATTEN void run_layernorm_bwd_params(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  for (int64_t t = begin; t < end; ++t)
    column_block(args, t * kColumns, smaller(kColumns, last_dim(args.in[0]) - t * kColumns));
}

}  // namespace

LAMINA_KERNEL_F32(layernorm_bwd_input, row_tasks);
LAMINA_KERNEL_F32(layernorm_bwd_params, column_tasks);

}  // namespace lamina::LAMINA_ISA_NAMESPACE

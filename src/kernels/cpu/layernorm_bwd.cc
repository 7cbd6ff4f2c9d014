// layernorm_bwd_input, by rows, layernorm_bwd_params, by blocks of columns, and layernorm_bwd, both in two phases:
// rows, with the sums of their columns, then the sums of these.
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

// Columns of one task that sums them up, and rows that are summed in fp32 before their sum goes into a double: a column
// of many rows loses nothing.
constexpr int64_t kColumns = 64;
constexpr int64_t kRows = kNormRows;

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

LAMINA_INLINE void write_columns(const ColumnSums& sums, int64_t first, int64_t width, const float* acc_weight,
                                 const float* acc_bias, float* dweight, float* dbias) {
  for (int64_t c = 0; c < width; ++c) {
    const double more_weight = acc_weight == nullptr ? 0.0 : static_cast<double>(acc_weight[first + c]);
    const double more_bias = acc_bias == nullptr ? 0.0 : static_cast<double>(acc_bias[first + c]);
    dweight[first + c] = static_cast<float>(sums.weight[c] + more_weight);
    dbias[first + c] = static_cast<float>(sums.bias[c] + more_bias);
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
  write_columns(sums, first, width, input(args, 4), input(args, 5), output(args, 0), output(args, 1));
}

int64_t column_tasks(const Args& args) noexcept { return ceil_div(last_dim(args.in[0]), kColumns); }

LAMINA_FLATTEN void run_layernorm_bwd_params(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  for (int64_t t = begin; t < end; ++t)
    column_block(args, t * kColumns, smaller(kColumns, last_dim(args.in[0]) - t * kColumns));
}

// The sums of kRows rows, weight then bias, in output 3 of layernorm_bwd.
LAMINA_INLINE float* partial_sums(const Args& args, int64_t block) {
  return output(args, 3) + block * 2 * last_dim(args.in[0]);
}

LAMINA_INLINE int64_t row_blocks(const Args& args) { return ceil_div(row_count(args.in[0]), kRows); }

LAMINA_FLATTEN void row_block(const Args& args, int64_t block) {
  const int64_t C = last_dim(args.in[0]);
  float* weight_sums = partial_sums(args, block);
  float* bias_sums = weight_sums + C;
  for_lanes(0, 2 * C, [=](int64_t i, auto lanes) { lanes.store(weight_sums + i, zero()); });
  const int64_t last = smaller((block + 1) * kRows, row_count(args.in[0]));
  for (int64_t r = block * kRows; r < last; ++r) {
    const float* dy = input(args, 0) + r * C;
    const float* x = input(args, 1) + r * C;
    const Vec center = broadcast(input(args, 3)[r]);
    const Vec scale = broadcast(input(args, 4)[r]);
    for_lanes(0, C, [=](int64_t c, auto lanes) {
      const Vec g = lanes.load(dy + c);
      const Vec xhat = mul(sub(lanes.load(x + c), center), scale);
      lanes.store(weight_sums + c, fma(g, xhat, lanes.load(weight_sums + c)));
      lanes.store(bias_sums + c, add(lanes.load(bias_sums + c), g));
    });
    input_row(dy, x, input(args, 2), input(args, 3)[r], input(args, 4)[r],
              input(args, 5) == nullptr ? nullptr : input(args, 5) + r * C, output(args, 0) + r * C, C);
  }
}

void sum_blocks(const Args& args, int64_t first, int64_t width) {
  ColumnSums sums = {};
  const int64_t C = last_dim(args.in[0]);
  for (int64_t block = 0; block < row_blocks(args); ++block) {
    const float* partial = partial_sums(args, block) + first;
    for (int64_t c = 0; c < width; ++c) {
      sums.weight[c] += static_cast<double>(partial[c]);
      sums.bias[c] += static_cast<double>(partial[C + c]);
    }
  }
  write_columns(sums, first, width, input(args, 6), input(args, 7), output(args, 1), output(args, 2));
}

void run_layernorm_bwd(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  const int64_t C = last_dim(args.in[0]);
  const int64_t blocks = row_blocks(args);
  for (int64_t t = begin; t < end; ++t) {
    const int64_t column = (t - blocks) * kColumns;
    t < blocks ? row_block(args, t) : sum_blocks(args, column, smaller(kColumns, C - column));
  }
}

int64_t layernorm_bwd_tasks(const Args& args) noexcept { return row_blocks(args) + column_tasks(args); }

int64_t layernorm_bwd_phase(const Args& args, int64_t first) noexcept {
  return first < row_blocks(args) ? row_blocks(args) : layernorm_bwd_tasks(args);
}

}  // namespace

extern constinit const Kernel kernel_layernorm_bwd_f32 = {
    Op::layernorm_bwd, "layernorm_bwd.f32." LAMINA_STRING(LAMINA_ISA_NAMESPACE) ".rows64",
    run_layernorm_bwd, layernorm_bwd_tasks,
    no_scratch,        layernorm_bwd_phase};
LAMINA_KERNEL_F32(layernorm_bwd_input, row_tasks);
extern constinit const Kernel kernel_layernorm_bwd_params_f32 = {
    Op::layernorm_bwd_params, "layernorm_bwd_params.f32." LAMINA_STRING(LAMINA_ISA_NAMESPACE) ".rows64",
    run_layernorm_bwd_params, column_tasks, no_scratch};
static_assert(kRows == 64);

}  // namespace lamina::LAMINA_ISA_NAMESPACE

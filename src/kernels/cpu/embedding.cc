// embedding, embedding_sum, embedding_bwd, select_rows. A table (C, V) is panels of nr columns, or one panel of V
// columns where it is row-major: element (c, v) at (v / nr) * C * nr + c * nr + v % nr.
#include "kernels/cpu/dropout.h"
#include "kernels/cpu/narrow.h"

namespace lamina::LAMINA_ISA_NAMESPACE {
namespace {

struct Table {
  int64_t C, V, nr;
  LAMINA_MEMBER int64_t column(int64_t v) const { return v / nr * C * nr + v % nr; }
};

LAMINA_INLINE Table table_of(const TensorArg& t) {
  const int64_t V = dims(t)[1];
  return {dims(t)[0], V, t.layout.kind == LayoutKind::panel ? t.layout.nr : V};
}

// A strided read costs a cache line for each element.
constexpr int64_t kTokens = 32;

int64_t token_tasks(const Args& args) noexcept { return ceil_div(element_count(args.in[1]), kTokens); }

// Channels [first, first + n) of row `id` of the table in input i, rounded to the precision.
LAMINA_INLINE void gather(const Args& args, int i, int32_t id, int64_t first, int64_t n, float* y) {
  const Table table = table_of(args.in[i]);
  const float* from = input(args, i) + table.column(id) + first * table.nr;
  for (int64_t c = 0; c < n; ++c) y[c] = from[c * table.nr];
  round_row(y, n, args.precision, y);
}

LAMINA_FLATTEN void run_embedding(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  const int64_t C = table_of(args.in[0]).C;
  const int64_t last = smaller(end * kTokens, element_count(args.in[1]));
  for (int64_t i = begin * kTokens; i < last; ++i)
    gather(args, 0, input_i32(args, 1)[i], 0, C, output(args, 0) + i * C);
}

// The rows of two tables, added and perhaps dropped.
LAMINA_FLATTEN void run_embedding_sum(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  constexpr int64_t kBlock = 256;
  const auto& a = attrs_of<DropoutAttrs>(args);
  const int64_t C = table_of(args.in[0]).C;
  ResidualDropout drop{};
  if (a.training) drop = residual_dropout(a, input_i64(args, 4), input_i64(args, 5), dims(args.in[1])[1] * C);
  const int64_t last = smaller(end * kTokens, element_count(args.in[1]));
  for (int64_t i = begin * kTokens; i < last; ++i) {
    float* y = output(args, 0) + i * C;
    for (int64_t first = 0; first < C; first += kBlock) {
      const int64_t n = smaller(kBlock, C - first);
      float position[kBlock];
      gather(args, 0, input_i32(args, 1)[i], first, n, y + first);
      gather(args, 2, input_i32(args, 3)[i], first, n, position);
      for (int64_t c = 0; c < n; ++c) y[first + c] += position[c];
    }
    if (!a.training) continue;
    const int64_t element = i * C % drop.elements;
    const uint64_t key = drop.key(i * C / drop.elements);
    for_lanes(0, C, [=](int64_t c, auto lanes) { lanes.store(y + c, drop(lanes.load(y + c), key, element + c)); });
  }
}

// Channels of one task of embedding_bwd: it sees all tokens, in order, so that the sums are the same for any threads.
constexpr int64_t kChannels = 32;

int64_t channel_tasks(const Args& args) noexcept { return ceil_div(last_dim(args.in[0]), kChannels); }

// Channels [first, stop) of the table: those of acc, or 0.
LAMINA_INLINE void begin_gradient(const Table& table, const float* acc, float* dtable, int64_t first, int64_t stop) {
  if (acc == dtable) return;
  const int64_t panels = ceil_div(table.V, table.nr);
  for (int64_t p = 0; p < panels; ++p) {
    const int64_t panel = p * table.C * table.nr;
    for_lanes(panel + first * table.nr, panel + stop * table.nr,
              [=](int64_t i, auto lanes) { lanes.store(dtable + i, acc == nullptr ? zero() : lanes.load(acc + i)); });
  }
}

LAMINA_FLATTEN void run_embedding_bwd(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  const Table table = table_of(args.out[0]);
  const float* dy = input(args, 0);
  const int32_t* ids = input_i32(args, 1);
  float* dtable = output(args, 0);
  const int64_t tokens = element_count(args.in[1]);
  for (int64_t task = begin; task < end; ++task) {
    const int64_t first = task * kChannels;
    const int64_t stop = smaller(first + kChannels, table.C);
    begin_gradient(table, input(args, 2), dtable, first, stop);
    for (int64_t i = 0; i < tokens; ++i) {
      float* to = dtable + table.column(ids[i]);
      if (i + 1 < tokens) {
        const float* next = dtable + table.column(ids[i + 1]);
        for (int64_t c = first; c < stop; ++c) __builtin_prefetch(next + c * table.nr, 1);
      }
      for (int64_t c = first; c < stop; ++c) to[c * table.nr] += dy[i * table.C + c];
    }
  }
}

int64_t batch_tasks(const Args& args) noexcept { return dims(args.in[0])[0]; }

LAMINA_FLATTEN void run_select_rows(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  const int64_t T = dims(args.in[0])[1];
  const int64_t C = dims(args.in[0])[2];
  for (int64_t b = begin; b < end; ++b) {
    const float* from = input(args, 0) + (b * T + input_i32(args, 1)[b]) * C;
    float* y = output(args, 0) + b * C;
    for_lanes(0, C, [=](int64_t c, auto lanes) { lanes.store(y + c, lanes.load(from + c)); });
  }
}

}  // namespace

LAMINA_KERNEL_F32(embedding, token_tasks);
LAMINA_KERNEL_F32(embedding_sum, token_tasks);
LAMINA_KERNEL_F32(embedding_bwd, channel_tasks);
LAMINA_KERNEL_F32(select_rows, batch_tasks);

}  // namespace lamina::LAMINA_ISA_NAMESPACE

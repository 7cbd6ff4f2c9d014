// embedding, embedding_sum, embedding_bwd, select_rows. A table (C, V) is panels of nr columns, or one panel of V
// columns where it is row-major: element (c, v) at (v / nr) * C * nr + c * nr + v % nr.
#include "kernels/cpu/dropout.h"

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

LAMINA_FLATTEN void run_embedding(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  const Table table = table_of(args.in[0]);
  const int32_t* ids = input_i32(args, 1);
  const int64_t last = smaller(end * kTokens, element_count(args.in[1]));
  for (int64_t i = begin * kTokens; i < last; ++i) {
    const float* from = input(args, 0) + table.column(ids[i]);
    float* y = output(args, 0) + i * table.C;
    for (int64_t c = 0; c < table.C; ++c) y[c] = from[c * table.nr];
  }
}

// The rows of two tables, added and perhaps dropped.
LAMINA_FLATTEN void run_embedding_sum(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  const Table tables[] = {table_of(args.in[0]), table_of(args.in[2])};
  const auto& a = attrs_of<DropoutAttrs>(args);
  const int64_t C = tables[0].C;
  ResidualDropout drop{};
  if (a.training) drop = residual_dropout(a, input_i64(args, 4), input_i64(args, 5), dims(args.in[1])[1] * C);
  const int64_t last = smaller(end * kTokens, element_count(args.in[1]));
  for (int64_t i = begin * kTokens; i < last; ++i) {
    const float* token = input(args, 0) + tables[0].column(input_i32(args, 1)[i]);
    const float* position = input(args, 2) + tables[1].column(input_i32(args, 3)[i]);
    float* y = output(args, 0) + i * C;
    for (int64_t c = 0; c < C; ++c) y[c] = token[c * tables[0].nr] + position[c * tables[1].nr];
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

// The forward products: linear, y = x W + bias? + residual?, and what a layer cell makes of it. W lies in panels of
// kPanel columns.
//
//   linear_dropout     y = residual + dropout(x W + bias)
//   linear_gelu        pre = x W + bias, y = gelu(pre)
//   linear_qkv         q, k, v = x W + bias, for three W
//
// The last two may take layernorm(x) in place of x.
//
// x is read row-major: a sliver of kTileRows rows of x stays in the first-level cache and is broadcast, while a block
// of panels stays in the second-level cache and is read as vectors:
//
//   for each block of panels:  for each chunk of K:  for each sliver of rows:  for each panel:  one register tile
//
// Sums of chunks before the last wait in scratch, so that y may lie on the residual. Where there are several chunks,
// the sliver is copied together: its rows are far apart then, often by a multiple of what a way of the cache holds, and
// would compete for the same sets. A task is a block of rows by a block of panels, or, after a layernorm, by a group of
// blocks: the rows are normalized into scratch once for the whole group and are nowhere else.
//
// With 16-bit operands a task prepares what it multiplies (gemm_operands.h): each chunk of a block of W in scratch, the
// rows of x there too, once for a group of blocks as after a layernorm, or, of several chunks, with each sliver. Rows
// that lie in memory as the tiles want them are read where they are.
#include "kernels/cpu/dropout.h"
#include "kernels/cpu/gelu.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_operands.h"
#include "kernels/cpu/layernorm.h"

namespace lamina::LAMINA_ISA_NAMESPACE {
namespace {

constexpr int64_t kChunk = 768;                // of K
constexpr int64_t kBlockPanels = 96 / kPanel;  // 96 columns: 288 KB of a chunk of W
constexpr int64_t kBlockTiles = 96 / kWide;    // across
static_assert(kBlockPanels * kPanel == kScaleColumns);
constexpr int64_t kStride = kBlockPanels * kPanel;  // of sums in scratch
constexpr int64_t kMostRows = 1024;
constexpr int64_t kMostRowsInScratch = 256;
constexpr int64_t kFewRows = 64;  // no task smaller than this for the sake of balance
constexpr int64_t kEnoughTasks = 16;
constexpr int64_t kLeastGroup = 8;  // blocks of a group, so that rows are not made too often, unless they are few
constexpr int kRowsAhead = (kTileRows + kBlockTiles - 1) / kBlockTiles;  // rows of the next sliver fetched per tile
constexpr int64_t kCopyStride = words_of(kChunk) + kLine;                // of a sliver that was copied
constexpr int64_t kColdAhead = 2048;  // floats of W fetched ahead by the first sliver, more than a memory latency

struct Target {
  const float* weight;  // (K, N) in panels
  const float* bias;    // (N) or null
  Numbers y;            // (M, N)
};

enum class Finish : uint8_t { plain, gelu_tanh, gelu_exact, dropout };

struct Problem {
  Numbers x;  // (M, K)
  Dtype precision;
  int64_t half_chunk;
  Target to[3];
  int64_t targets;
  int64_t M, K, N;
  Finish finish;
  const float* residual;  // (M, N) or null
  Numbers pre;            // (M, N): the sums that GELU takes, or null
  ResidualDropout dropout;
  const float *norm_weight, *norm_bias;  // (K), null: x is taken as it is
  float *mean, *rstd;                    // (M)
  float eps;
  int64_t panels, column_blocks, row_blocks, rows_per_block;
  int64_t groups, blocks_per_group;  // of column blocks of all targets
};

LAMINA_INLINE bool normalizes(const Problem& p) { return p.norm_weight != nullptr; }
// The rows of x are words where they lie.
LAMINA_INLINE bool x_is_ready(const Problem& p) {
  return !normalizes(p) && (!prepares(p.precision) || (kDepth == 2 && !p.x.wide() && p.K % 2 == 0));
}
// The rows of a task are made in scratch, as wide as they are.
LAMINA_INLINE bool gathers(const Problem& p) { return normalizes(p) || (!x_is_ready(p) && p.K <= kChunk); }
// Slivers are copied together, chunk by chunk.
LAMINA_INLINE bool copies(const Problem& p) { return !gathers(p) && p.K > kChunk; }

void cut(Problem& p) {
  p.panels = ceil_div(p.N, kPanel);
  p.column_blocks = ceil_div(p.panels, kBlockPanels);
  const int64_t all = p.column_blocks * p.targets;
  p.blocks_per_group = gathers(p) ? larger(1, all) : 1;
  int64_t blocks = ceil_div(p.M, p.K > kChunk || gathers(p) ? kMostRowsInScratch : kMostRows);
  if (gathers(p) && blocks < kEnoughTasks) {
    blocks = smaller(ceil_div(p.M, 2 * kFewRows), kEnoughTasks);
    const int64_t wanted = ceil_div(kEnoughTasks, larger(1, blocks));
    p.blocks_per_group = larger(p.M > kFewRows ? kLeastGroup : 1, ceil_div(all, wanted));
  }
  p.groups = ceil_div(all, p.blocks_per_group);
  if (p.groups * blocks < kEnoughTasks)
    blocks = smaller(ceil_div(p.M, kFewRows), ceil_div(kEnoughTasks, larger(1, p.groups)));
  p.rows_per_block = ceil_div(ceil_div(p.M, larger(1, blocks)), kTileRows) * kTileRows;
  p.row_blocks = p.M == 0 ? 0 : ceil_div(p.M, p.rows_per_block);
}

// x in input 0, the weight in input `weight` with its bias after it.
Problem product_of(const Args& args, int weight) {
  Problem p{};
  p.x = numbers(args.in[0]);
  p.precision = args.precision;
  p.half_chunk = kHalfChunk;
  p.M = row_count(args.in[0]);
  p.K = dims(args.in[weight])[0];
  p.N = dims(args.in[weight])[1];
  p.targets = 1;
  p.to[0] = {input(args, weight), input(args, weight + 1), numbers(args.out[0])};
  return p;
}

Problem linear(const Args& args) {
  Problem p = product_of(args, 1);
  p.residual = input(args, 3);
  cut(p);
  return p;
}

Problem head_logits(const Args& args) {
  Problem p = linear(args);
  p.half_chunk = kHeadHalfChunk;
  return p;
}

Problem linear_dropout(const Args& args) {
  Problem p = product_of(args, 1);
  const auto& a = attrs_of<DropoutAttrs>(args);
  p.residual = input(args, 3);
  p.finish = Finish::dropout;
  p.dropout = residual_dropout(a, input_i64(args, 4), input_i64(args, 5), dims(args.in[3])[1] * p.N);
  cut(p);
  return p;
}

void add_norm(Problem& p, const Args& args, int mean, double eps) {
  if (input(args, 1) == nullptr) return;
  p.norm_weight = input(args, 1);
  p.norm_bias = input(args, 2);
  p.mean = output(args, mean);
  p.rstd = output(args, mean + 1);
  p.eps = static_cast<float>(eps);
}

Problem linear_gelu(const Args& args) {
  Problem p = product_of(args, 3);
  const auto& a = attrs_of<LinearGeluAttrs>(args);
  p.finish = a.tanh ? Finish::gelu_tanh : Finish::gelu_exact;
  p.pre = a.keep ? numbers(args.out[1]) : Numbers{};
  add_norm(p, args, 2, a.eps);
  cut(p);
  return p;
}

Problem linear_qkv(const Args& args) {
  Problem p = product_of(args, 3);
  for (int t = 0; t < 3; ++t) p.to[t] = {input(args, 3 + 2 * t), input(args, 4 + 2 * t), numbers(args.out[t])};
  p.targets = 3;
  add_norm(p, args, 3, attrs_of<LayerNormAttrs>(args).eps);
  cut(p);
  return p;
}

// Where the sums of one sliver and one chunk come from and go to.
struct Span {
  const Word* x;  // first row, first k of the chunk
  int64_t ld;     // from row to row of x
  const Target* to;
  const Word* weight;  // first tile of the block, first k of the chunk
  int64_t tile_step;   // from tile to tile across
  int64_t n;           // words of the chunk
  const float* row_exponents;
  float exponent;       // of the block of W
  float* partial;       // sums so far, (rows of the task, kStride) in scratch; null where one chunk is all
  int64_t sliver;       // where the sliver begins in `partial`
  bool first, last;     // the chunk
  int64_t row, column;  // of y, where the tile begins
  const Word* next;     // the sliver after this one, fetched meanwhile into the second-level cache
  int64_t next_ld;
  bool cold;  // the first sliver: it meets the block of W in memory
};

LAMINA_INLINE void add_dropped(const Problem& p, const float* tile, int64_t at, float* y, int64_t columns) {
  const float* residual = p.residual + at;
  const int64_t element = at % p.dropout.elements;
  const uint64_t key = p.dropout.key(at / p.dropout.elements);
  for_lanes(0, columns, [&](int64_t j, auto lanes) {
    lanes.store(y + j, add(p.dropout(load(tile + j), key, element + j), lanes.load(residual + j)));
  });
}

// What follows the sums of a finished tile, kPanel columns a row, in the first-level cache: GELU, dropout, 16 bits.
LAMINA_FLATTEN LAMINA_NOINLINE void finish_rows(const Problem& p, const Target& to, float* tile, int64_t row,
                                                int64_t rows, int64_t column) {
  const int64_t columns = smaller(kPanel, p.N - column);
  for (int64_t i = 0; i < rows; ++i, ++row, tile += kPanel) {
    const int64_t at = row * p.N + column;
    float* y = to.y.wide() ? to.y.floats() + at : tile;
    if (p.finish == Finish::dropout) {
      add_dropped(p, tile, at, y, columns);
    } else if (p.finish != Finish::plain) {
      round_row(tile, columns, p.precision, tile);
      if (p.pre.data != nullptr) narrow(tile, columns, p.pre.from(at));
      gelu_row(tile, p.finish == Finish::gelu_tanh, y, columns);
    }
    if (!to.y.wide()) narrow(tile, columns, to.y.from(at));
  }
}

template <int rows, int vecs>
LAMINA_INLINE void finish_in_memory(const Problem& p, const Target& to, Vec (&sum)[rows][vecs], int64_t row,
                                    int64_t column) {
  float tile[rows * vecs * kLanes];
  LAMINA_UNROLL for (int i = 0; i < rows; ++i) {
    LAMINA_UNROLL for (int j = 0; j < vecs; ++j) store(tile + (i * vecs + j) * kLanes, sum[i][j]);
  }
  finish_rows(p, to, tile, row, rows, column);
}

// Adds bias and residual to a finished tile and stores it.
template <int rows, int vecs>
LAMINA_INLINE void finish(const Problem& p, const Target& to, Vec (&sum)[rows][vecs], int64_t row, int64_t column) {
  const int64_t left = p.N - column;
  const bool whole = left >= vecs * kLanes;
  const auto read = [&](const float* from, int j) {
    return whole ? load(from + j * kLanes) : load_n(from + j * kLanes, smaller(larger(left - j * kLanes, 0), kLanes));
  };
  if (to.bias != nullptr) {
    LAMINA_UNROLL for (int j = 0; j < vecs; ++j) {
      const Vec b = read(to.bias + column, j);
      LAMINA_UNROLL for (int i = 0; i < rows; ++i) sum[i][j] = add(sum[i][j], b);
    }
  }
  if (p.finish == Finish::plain && p.residual != nullptr) {
    LAMINA_UNROLL for (int i = 0; i < rows; ++i) {
      LAMINA_UNROLL for (int j = 0; j < vecs; ++j) {
        sum[i][j] = add(sum[i][j], read(p.residual + (row + i) * p.N + column, j));
      }
    }
  }
  if (p.finish != Finish::plain || !to.y.wide()) return finish_in_memory(p, to, sum, row, column);
  LAMINA_UNROLL for (int i = 0; i < rows; ++i) {
    float* y = to.y.floats() + (row + i) * p.N + column;
    LAMINA_UNROLL for (int j = 0; j < vecs; ++j) {
      if (whole)
        store(y + j * kLanes, sum[i][j]);
      else
        store_n(y + j * kLanes, sum[i][j], smaller(larger(left - j * kLanes, 0), kLanes));
    }
  }
}

// The tile's target is fetched while its sums are made.
template <int rows>
LAMINA_INLINE void fetch_target(const Problem& p, const Span& s, int64_t t) {
  LAMINA_UNROLL for (int i = 0; i < rows; ++i) {
    const std::byte* y = static_cast<const std::byte*>(s.to->y.from((s.row + i) * p.N + s.column + t * kWide).data);
    LAMINA_UNROLL for (int j = 0; j < kWide; j += kLine) {
      if (s.last) __builtin_prefetch(y + j * 4, 1, 2);
      if (!s.first) __builtin_prefetch(s.partial + s.sliver + i * kStride + t * kWide + j, 0, 3);
    }
    if (s.last) __builtin_prefetch(y + kWide * 4 - 4, 1, 2);
  }
}

// A panel of a tile whose sums of this chunk are done: adds those of the chunks before, and finishes or keeps them.
// `at`: where the panel begins in the block.
template <int rows>
LAMINA_INLINE void end_chunk(const Problem& p, const Span& s, Vec (&sum)[rows][kTileVecs], int64_t at) {
  float* partial = s.partial + s.sliver + at;
  if (!s.first) {
    LAMINA_UNROLL for (int i = 0; i < rows; ++i) {
      LAMINA_UNROLL for (int j = 0; j < kTileVecs; ++j) {
        sum[i][j] = add(load(partial + i * kStride + j * kLanes), sum[i][j]);
      }
    }
  }
  if (s.last) return finish(p, *s.to, sum, s.row, s.column + at);
  LAMINA_UNROLL for (int i = 0; i < rows; ++i) {
    LAMINA_UNROLL for (int j = 0; j < kTileVecs; ++j) store(partial + i * kStride + j * kLanes, sum[i][j]);
  }
}

// One register tile: `rows` rows of x by the tile t of the block.
template <int rows>
LAMINA_NOINLINE void tile(const Problem& p, const Span& s, int64_t t) {
  Sums<rows, kTileVecs> sums;
  sums.begin(p.half_chunk);
  const Word* w = s.weight + t * s.tile_step;
  fetch_target<rows>(p, s, t);
  int64_t k = 0;
  for (; k + kLine <= s.n; k += kLine) {
    LAMINA_UNROLL for (int i = 0; i < kRowsAhead; ++i) {
      __builtin_prefetch(s.next + (t * kRowsAhead + i) % kTileRows * s.next_ld + k, 0, 2);
    }
    if (s.cold) {
      LAMINA_UNROLL for (int i = 0; i < kPanel; ++i) __builtin_prefetch(w + k * kPanel + kColdAhead + i * kLine, 0, 3);
    }
    sums.add(s.x + k, s.ld, 1, w + k * kPanel, kPanel, kLine);
  }
  sums.add(s.x + k, s.ld, 1, w + k * kPanel, kPanel, s.n - k);
  sums.end(s.row_exponents, s.exponent);
  LAMINA_UNROLL for (int part = 0; part < kAcross; ++part) {
    const int64_t at = t * kWide + part * kPanel;
    if (part > 0 && s.column + at >= p.N) continue;
    Vec sum[rows][kTileVecs];
    sums.take(part, sum);
    end_chunk(p, s, sum, at);
  }
}

// n columns of kTileRows rows or fewer  ->  the same, prepared, with kCopyStride between rows.
LAMINA_NOINLINE void copy_sliver(const Problem& p, int64_t at, int64_t rows, int64_t n, Word* to, float* exponents) {
  for (int64_t i = 0; i < rows; ++i, at += p.K, to += kCopyStride) {
    const float exponent = prepare_row(p.x.from(at), n, p.precision, to);
    if (kScaled) exponents[i] = exponent;
  }
}

// From row to row of those in scratch.
LAMINA_INLINE int64_t row_stride(const Problem& p) { return ceil_div(words_of(p.K), kLine) * kLine + kLine; }

// A row of a task, chunk by chunk. `exponents`: those of a chunk are rows_per_block apart.
LAMINA_INLINE void prepare_chunks(const Problem& p, const Numbers& x, Word* to, float* exponents) {
  for (int64_t k = 0; k < p.K; k += kChunk, exponents += p.rows_per_block) {
    const float exponent = prepare_row(x.from(k), smaller(kChunk, p.K - k), p.precision, to + k / kDepth);
    if (kScaled) *exponents = exponent;
  }
}

// Rows [first, end) of x, normalized where that is asked for, prepared, in scratch; statistics are kept by the task
// that has `keep` set. `row`: room for one in fp32 where it is normalized.
LAMINA_FLATTEN LAMINA_NOINLINE void gather_rows(const Problem& p, int64_t first, int64_t end, bool keep, Word* to,
                                                float* exponents, float* row) {
  for (int64_t r = first; r < end; ++r, to += row_stride(p), ++exponents) {
    const Numbers x = p.x.from(r * p.K);
    if (!normalizes(p)) {
      prepare_chunks(p, x, to, exponents);
      continue;
    }
    float* h = floats_before(to, row);
    const LayerNormRow statistics = normalize(x.floats(), p.norm_weight, p.norm_bias, h, p.K, p.eps);
    if (prepares(p.precision)) prepare_chunks(p, fp32(h), to, exponents);
    if (!keep) continue;
    p.mean[r] = statistics.mean;
    p.rstd[r] = statistics.rstd;
  }
}

// The parts of a task's scratch, in words.
struct Memory {
  int64_t rows, sliver, partial, weight, row, exponents;
};

Memory memory_of(const Problem& p) {
  return {gathers(p) ? p.rows_per_block * row_stride(p) : 0,
          copies(p) ? kTileRows * kCopyStride : 0,
          p.K > kChunk ? p.rows_per_block * kStride : 0,
          prepares(p.precision) ? kStride / kAcross * words_of(smaller(kChunk, p.K)) : 0,
          normalizes(p) ? ceil_div(p.K, kLine) * kLine : 0,
          kScaled ? larger(kTileRows, p.rows_per_block * ceil_div(p.K, kChunk)) : 0};
}

struct Rows {
  int64_t first, end;
  const Word* x;  // the first of them in memory that the tiles read; null where slivers are copied
  int64_t ld;
  Word* sliver;    // where they are copied to
  float* partial;  // the sums of chunks before the last
  Word* weight;    // where a chunk of a block of W is prepared
  float* exponents;
};

// A chunk of a block of W as the tiles read it.
LAMINA_INLINE void set_weight(const Problem& p, const Rows& rows, int64_t first_panel, int64_t panels, int64_t k,
                              Span& s) {
  const int64_t step = p.K * kPanel;
  const float* weight = s.to->weight + first_panel * step + k * kPanel;
  s.weight = as_words(fp32(weight));
  s.tile_step = step;
  if (!prepares(p.precision)) return;
  s.weight = rows.weight;
  s.tile_step = s.n * kPanel;
  s.exponent =
      prepare_block(weight, step, panels, smaller(kChunk, p.K - k), p.precision, vector_top(p.half_chunk), rows.weight);
}

// All tiles of some rows and one block of panels.
void run_block(const Problem& p, const Rows& rows, const Target& to, int64_t first_panel) {
  const int64_t panels = smaller(kBlockPanels, p.panels - first_panel);
  for (int64_t k = 0; k == 0 || k < p.K; k += kChunk) {
    Span s{};
    s.to = &to;
    s.n = words_of(smaller(kChunk, p.K - k));
    s.first = k == 0;
    s.last = k + kChunk >= p.K;
    s.column = first_panel * kPanel;
    s.partial = rows.partial;
    s.ld = copies(p) ? kCopyStride : rows.ld;
    s.next_ld = rows.ld;
    set_weight(p, rows, first_panel, panels, k, s);
    for (s.row = rows.first; s.row < rows.end; s.row += kTileRows) {
      if (copies(p))
        copy_sliver(p, s.row * p.K + k, smaller(kTileRows, rows.end - s.row), smaller(kChunk, p.K - k), rows.sliver,
                    rows.exponents);
      s.row_exponents = rows.exponents;
      if (kScaled && !copies(p)) s.row_exponents += k / kChunk * p.rows_per_block + s.row - rows.first;
      const Word* x = rows.x == nullptr ? rows.sliver : rows.x + (s.row - rows.first) * rows.ld + k / kDepth;
      s.x = copies(p) ? rows.sliver : x;
      s.next = rows.x != nullptr && s.row + 2 * kTileRows <= rows.end ? x + kTileRows * rows.ld : x;
      s.cold = s.row == rows.first && !prepares(p.precision);
      s.sliver = (s.row - rows.first) * kStride;
      with_rows<kTileRows>(rows.end - s.row, [&]<int count>() {
        for (int64_t t = 0; t < ceil_div(panels, kAcross); ++t) tile<count>(p, s, t);
      });
    }
  }
}

void run_task(const Problem& p, int64_t task, float* scratch) {
  const int64_t group = task / p.row_blocks;
  const Memory memory = memory_of(p);
  Rows rows{};
  rows.first = task % p.row_blocks * p.rows_per_block;
  rows.end = smaller(p.M, rows.first + p.rows_per_block);
  Word* room = as_words(scratch);
  rows.sliver = room + memory.rows;
  rows.partial = scratch + memory.rows + memory.sliver;
  rows.weight = rows.sliver + memory.sliver + memory.partial;
  float* row = scratch + memory.rows + memory.sliver + memory.partial + memory.weight;
  rows.exponents = row + memory.row;
  if (gathers(p)) {
    gather_rows(p, rows.first, rows.end, group == 0, room, rows.exponents, row);
    rows.x = room;
    rows.ld = row_stride(p);
  } else if (x_is_ready(p)) {
    rows.x = as_words(p.x.from(rows.first * p.K));
    rows.ld = words_of(p.K);
  }
  const int64_t end = smaller((group + 1) * p.blocks_per_group, p.column_blocks * p.targets);
  for (int64_t block = group * p.blocks_per_group; block < end; ++block)
    run_block(p, rows, p.to[block / p.column_blocks], block % p.column_blocks * kBlockPanels);
}

template <Problem (*problem_of)(const Args&)>
int64_t tasks(const Args& args) noexcept {
  const Problem p = problem_of(args);
  return p.groups * p.row_blocks;
}

template <Problem (*problem_of)(const Args&)>
int64_t scratch_bytes(const Args& args) noexcept {
  const Memory m = memory_of(problem_of(args));
  return (m.rows + m.sliver + m.partial + m.weight + m.row + m.exponents) * static_cast<int64_t>(sizeof(Word));
}

}  // namespace

LAMINA_GEMM_KERNEL(linear, "kc768");
LAMINA_GEMM_KERNEL(linear_dropout, "kc768");
LAMINA_GEMM_KERNEL(linear_gelu, "kc768");
LAMINA_GEMM_KERNEL(linear_qkv, "kc768");
LAMINA_GEMM_PART(head_logits, linear, "kc768" LAMINA_HALF_CHUNK("ch64"));

}  // namespace lamina::LAMINA_ISA_NAMESPACE

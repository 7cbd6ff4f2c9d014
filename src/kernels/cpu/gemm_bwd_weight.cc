// linear_bwd_weight: dW = xᵀ dy + acc?, written in panels, padding zero; linear_bwd_params: with it db, the sum of each
// column of dy, + acc?, from the rows that are being packed; qkv_bwd_params: both for three dy. The sum runs over
// tokens m:
//
//        m ->                   n ->                      n ->
//   k  | xᵀ xᵀ xᵀ |    x   m  | dy dy dy … |    =    k  | dW … |
//
// Both operands would be read with the stride of a whole row, so both are packed: x into slivers of kTileRows columns,
// dy into panels of kPanel columns, each with its tokens one after the other. A task is a block of k by a block of n:
//
//   for each chunk of tokens: pack dy; for each sub-block of k: pack x, which stays in the second-level cache;
//     for each panel, which stays in the first-level cache: for each sliver: one register tile, added to dW
//
// acc comes first, then the chunks in rising order. 16-bit operands are prepared a few rows at a time before they are
// packed, and db is the sum of those.
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_operands.h"

namespace lamina::LAMINA_ISA_NAMESPACE {
namespace {

constexpr int64_t kChunk = kTokenChunk;
constexpr int64_t kMostPanels = 768 / kPanel;  // of a task
constexpr int64_t kMostK = 768;                // of a task
constexpr int64_t kSubK = 192;                 // packed at a time; a multiple of kTileRows
constexpr int64_t kManyTasks = 8;              // while they are fewer, blocks of n are halved once
constexpr int64_t kEnoughTasks = 4;            // and then k is cut: every further cut packs something twice
static_assert(kSubK % kTileRows == 0);
static_assert(!kScaled || kMostPanels / 2 * kPanel % kScaleColumns == 0);

struct Target {
  Numbers dy;             // (M, N)
  const float* acc;       // (K, N) in panels, or null
  float* dw;              // (K, N) in panels
  const float* acc_bias;  // (N) or null
  float* db;              // (N) or null
};

struct Problem {
  Numbers x;  // (M, K)
  Dtype precision;
  int64_t half_chunk;
  Target to[3];
  int64_t targets;
  int64_t M, K, N;
  int64_t panels, panels_per_task, k_per_task;
  int64_t n_tasks, k_tasks;  // of one target
};

// dy of all targets after x, then for each its accumulators and outputs.
Problem product_of(const Args& args, int64_t targets, bool bias) {
  Problem p{};
  p.x = numbers(args.in[0]);
  p.precision = args.precision;
  p.half_chunk = kHalfChunk;
  p.targets = targets;
  for (int t = 0; t < targets; ++t) {
    const int first = (bias ? 2 : 1) * t;
    const int acc = static_cast<int>(targets) + 1 + first;
    p.to[t] = {numbers(args.in[1 + t]), input(args, acc), output(args, first), bias ? input(args, acc + 1) : nullptr,
               bias ? output(args, first + 1) : nullptr};
  }
  p.M = row_count(args.in[0]);
  p.K = last_dim(args.in[0]);
  p.N = last_dim(args.in[1]);
  p.panels = ceil_div(p.N, kPanel);
  int64_t k_tasks = ceil_div(p.K, kMostK);
  p.panels_per_task = kMostPanels;
  if (ceil_div(p.panels, kMostPanels) * k_tasks * targets < kManyTasks) p.panels_per_task /= 2;
  p.n_tasks = ceil_div(p.panels, p.panels_per_task);
  if (p.n_tasks * k_tasks * targets < kEnoughTasks)
    k_tasks = smaller(ceil_div(p.K, kSubK), ceil_div(kEnoughTasks, larger(1, p.n_tasks * targets)));
  p.k_per_task = ceil_div(ceil_div(p.K, larger(1, k_tasks)), kTileRows) * kTileRows;
  p.k_tasks = p.K == 0 ? 0 : ceil_div(p.K, p.k_per_task);
  return p;
}

Problem linear_bwd_weight(const Args& args) { return product_of(args, 1, false); }
Problem head_weight(const Args& args) {
  Problem p = linear_bwd_weight(args);
  p.half_chunk = kHeadHalfChunk;
  return p;
}
Problem linear_bwd_params(const Args& args) { return product_of(args, 1, true); }
Problem qkv_bwd_params(const Args& args) { return product_of(args, 3, true); }

// Words between strips, so that they do not compete for the same sets of a cache; the packer may spill into them.
constexpr int64_t kGap = 16;
constexpr int64_t strip(int64_t width, int64_t steps) { return width * steps + kGap; }

constexpr int64_t kGroup = 8;  // rows that are packed together, so that whole lines are written and few are open

// Where rows of words are packed from: columns [0, n) of src, of which `readable` exist, n or more.
struct Source {
  const Word* src;
  int64_t ld;
  int64_t n, readable;
};

// Some rows of kGroup or fewer, the first of which has the number `first` among `steps`  ->  strips of `width` columns,
// each with its rows one after the other; zero beyond n. `ahead`: as many rows again follow in memory.
template <int width>
LAMINA_INLINE void pack_group(const Source& s, int64_t rows, bool ahead, int64_t first, int64_t steps, Word* dst) {
  constexpr int64_t moved = width > 4 ? (width + 7) / 8 * 8 : width;  // whole vectors: what is too much is overwritten
  static_assert(moved - width <= kGap);
  for (int64_t c = 0; c < s.n; c += width) {
    Word* to = dst + c / width * strip(width, steps) + first * width;
    const Word* from = s.src + c;
    if (c % kLine < width && ahead) {  // a line that was not met before: fetch that of later rows
      LAMINA_UNROLL for (int64_t m = kGroup; m < 2 * kGroup; ++m) __builtin_prefetch(from + m * s.ld, 0, 3);
    }
    if (rows == kGroup && c + width <= s.n && c + moved <= s.readable) {
      LAMINA_UNROLL for (int64_t m = 0; m < kGroup; ++m) {
        __builtin_memcpy(to + m * width, from + m * s.ld, moved * sizeof(Word));
      }
      continue;
    }
    for (int64_t m = 0; m < rows; ++m) {
      for (int64_t i = 0; i < width; ++i) to[m * width + i] = c + i < s.n ? from[m * s.ld + i] : Word{};
    }
  }
}

// Columns [0, n) of `steps` rows  ->  strips.
template <int width>
LAMINA_NOINLINE void pack(Source s, int64_t steps, Word* dst) {
  for (int64_t first = 0; first < steps; first += kGroup, s.src += kGroup * s.ld)
    pack_group<width>(s, smaller(kGroup, steps - first), first + 2 * kGroup <= steps, first, steps, dst);
}

// Room for some rows on their way: rounded, in fp32, and prepared.
struct FewRows {
  float* rounded;
  Word* prepared;
};

// The same of columns that have to be prepared: words of vectors with `across`, else of broadcasts. `exponents`: of
// each column. `sums`, where it is not null: each column is added to it.
template <int width, bool across>
LAMINA_NOINLINE void pack_prepared(const LaneRows& r, int top, Word* dst, const FewRows& few, float* exponents,
                                   float* sums) {
  column_exponents<across>(r, top, few.rounded, exponents);
  const int64_t words = across ? ceil_div(r.n, kAcross) : r.n;
  for (int64_t first = 0; first < r.rows; first += kGroup * kDepth) {
    const int64_t rows = smaller(kGroup * kDepth, r.rows - first);
    for (int64_t m = 0; m < rows; ++m)
      read_operands(r.from.from((first + m) * r.ld), r.n, r.precision, few.rounded + m * r.n);
    if (sums != nullptr) add_columns(few.rounded, r.n, rows, r.n, sums);
    const Word* prepared = prepare_rows<across>(few.rounded, rows, r.n, exponents, few.prepared);
    pack_group<width>({prepared, words, words, words}, words_of(rows), false, first / kDepth, words_of(r.rows), dst);
  }
}

struct Step {
  int64_t steps;     // words of the chunk's tokens
  const float* add;  // what the sums are added to, in the place of `to`, or null
  float* to;
  int64_t panel_step;  // to the panel beside it
  int64_t rows;        // rows of the tile that exist
  int64_t columns;     // columns of the tile that exist
  int64_t half_chunk;
  const float* row_exponents;
  float exponent;  // of dy
};

// A panel of a tile, `columns` of which exist.
LAMINA_INLINE void store_panel(const Step& s, Vec (&sum)[kTileRows][kTileVecs], int64_t at, int64_t columns) {
  LAMINA_UNROLL for (int i = 0; i < kTileRows; ++i) {
    if (i >= s.rows) continue;
    LAMINA_UNROLL for (int j = 0; j < kTileVecs; ++j) {
      const int64_t to = at + i * kPanel + j * kLanes;
      Vec v = sum[i][j];
      if (s.add != nullptr) v = add(load(s.add + to), v);
      if (columns < kPanel) v = select(first_lanes(columns - j * kLanes), v, zero());
      store(s.to + to, v);
    }
  }
}

// One register tile: kTileRows rows k by one panel of words.
LAMINA_NOINLINE void tile(const Step& s, const Word* x, const Word* dy) {
  LAMINA_UNROLL for (int i = 0; i < kTileRows * kPanel; i += kLine) __builtin_prefetch(s.to + i, 1, 3);
  Sums<kTileRows, kTileVecs> sums;
  sums.begin(s.half_chunk);
  sums.add(x, 1, kTileRows, dy, kPanel, s.steps);
  sums.end(s.row_exponents, s.exponent);
  LAMINA_UNROLL for (int part = 0; part < kAcross; ++part) {
    const int64_t columns = s.columns - part * kPanel;
    if (part > 0 && columns <= 0) continue;
    Vec sum[kTileRows][kTileVecs];
    sums.take(part, sum);
    store_panel(s, sum, part * s.panel_step, columns);
  }
}

struct Part {
  int64_t m, tokens;         // the chunk
  int64_t panel, end_panel;  // of the task
  int64_t k, end_k;          // the sub-block
};

// What a task has in scratch.
struct Room {
  float* sums;  // of the columns of dy
  Word *slivers, *panels;
  FewRows few;
  float *x_exponents, *dy_exponents;  // of each column
};

// All tiles of one sub-block of k.
void multiply(const Problem& p, const Target& to, const Part& part, const Room& room) {
  Step s{};
  s.steps = words_of(part.tokens);
  s.panel_step = p.K * kPanel;
  s.half_chunk = p.half_chunk;
  const Word* panels = room.panels;
  for (int64_t panel = part.panel; panel < part.end_panel; panel += kAcross) {
    s.columns = p.N - panel * kPanel;
    if (kScaled) s.exponent = room.dy_exponents[(panel - part.panel) * kPanel];
    const Word* x = room.slivers;
    for (int64_t k = part.k; k < part.end_k; k += kTileRows) {
      const int64_t at = (panel * p.K + k) * kPanel;
      s.rows = part.end_k - k;
      s.to = to.dw + at;
      s.add = part.m > 0 ? s.to : to.acc == nullptr ? nullptr : to.acc + at;
      if (kScaled) s.row_exponents = room.x_exponents + k - part.k;
      tile(s, x, panels);
      x += strip(kTileRows, s.steps);
    }
    panels += strip(kPanel, s.steps);
  }
}

// Packs some columns of dy, from n on, and adds them to `sums` where it is not null.
void pack_dy(const Problem& p, const Numbers& dy, int64_t columns, int64_t n, int64_t tokens, const Room& room,
             float* sums) {
  if (prepares(p.precision))
    return pack_prepared<kPanel, true>({dy, p.N, tokens, columns, p.precision}, vector_top(p.half_chunk), room.panels,
                                       room.few, room.dy_exponents, sums);
  pack<kPanel>({as_words(dy), p.N, columns, p.N - n}, tokens, room.panels);
  if (sums != nullptr) add_columns(dy.floats(), p.N, tokens, columns, sums);
}

// Packs x of one part.
void pack_x(const Problem& p, const Part& part, const Room& room) {
  const Numbers x = p.x.from(part.m * p.K + part.k);
  const int64_t columns = part.end_k - part.k;
  if (prepares(p.precision))
    return pack_prepared<kTileRows, false>({x, p.K, part.tokens, columns, p.precision}, kBroadcastTop, room.slivers,
                                           room.few, room.x_exponents, nullptr);
  pack<kTileRows>({as_words(x), p.K, columns, p.K - part.k}, part.tokens, room.slivers);
}

// The parts of a task's scratch, in words.
struct Memory {
  int64_t sums, slivers, panels, rounded, prepared, x_exponents, dy_exponents;
};

Memory memory_of(const Problem& p) {
  const int64_t columns = p.panels_per_task * kPanel;
  const int64_t few = prepares(p.precision) ? kGroup * larger(kSubK, columns) : 0;
  return {columns,
          kSubK / kTileRows * strip(kTileRows, words_of(kChunk)),
          p.panels_per_task / kAcross * strip(kPanel, words_of(kChunk)),
          few * kDepth,
          kWordsAreFloats ? 0 : few,
          kScaled ? kSubK + kTileRows : 0,
          kScaled ? columns : 0};
}

Room room_of(const Problem& p, float* scratch) {
  const Memory m = memory_of(p);
  Room room{};
  room.sums = scratch;
  room.slivers = as_words(scratch + m.sums);
  room.panels = room.slivers + m.slivers;
  room.few = {as_floats(room.panels + m.panels), room.panels + m.panels + m.rounded};
  room.x_exponents = as_floats(room.few.prepared + m.prepared);
  room.dy_exponents = room.x_exponents + m.x_exponents;
  return room;
}

void run_task(const Problem& p, int64_t task, float* scratch) {
  const Target& to = p.to[task / p.k_tasks / p.n_tasks];
  const int64_t first_k = task % p.k_tasks * p.k_per_task;
  const int64_t end_k = smaller(p.K, first_k + p.k_per_task);
  Part part{};
  part.panel = task / p.k_tasks % p.n_tasks * p.panels_per_task;
  part.end_panel = smaller(p.panels, part.panel + p.panels_per_task);
  const int64_t n = part.panel * kPanel;
  const int64_t columns = smaller(p.N, part.end_panel * kPanel) - n;
  const Room room = room_of(p, scratch);
  const bool bias = to.db != nullptr && first_k == 0;
  for (int64_t i = 0; bias && i < columns; ++i) room.sums[i] = 0.0f;
  for (part.m = 0; part.m == 0 || part.m < p.M; part.m += kChunk) {
    part.tokens = smaller(kChunk, p.M - part.m);
    pack_dy(p, to.dy.from(part.m * p.N + n), columns, n, part.tokens, room, bias ? room.sums : nullptr);
    for (part.k = first_k; part.k < end_k; part.k += kSubK) {
      part.end_k = smaller(end_k, part.k + kSubK);
      pack_x(p, part, room);
      multiply(p, to, part, room);
    }
  }
  for (int64_t i = 0; bias && i < columns; ++i)
    to.db[n + i] = to.acc_bias == nullptr ? room.sums[i] : room.sums[i] + to.acc_bias[n + i];
}

template <Problem (*problem_of)(const Args&)>
int64_t tasks(const Args& args) noexcept {
  const Problem p = problem_of(args);
  return p.targets * p.n_tasks * p.k_tasks;
}

template <Problem (*problem_of)(const Args&)>
int64_t scratch_bytes(const Args& args) noexcept {
  const Memory m = memory_of(problem_of(args));
  return (m.sums + m.slivers + m.panels + m.rounded + m.prepared + m.x_exponents + m.dy_exponents) *
         static_cast<int64_t>(sizeof(Word));
}

}  // namespace

LAMINA_GEMM_KERNEL(linear_bwd_weight, "kc256");
LAMINA_GEMM_KERNEL(linear_bwd_params, "kc256");
LAMINA_GEMM_KERNEL(qkv_bwd_params, "kc256");
LAMINA_GEMM_PART(head_weight, linear_bwd_weight, "kc256" LAMINA_HALF_CHUNK("ch64"));

}  // namespace lamina::LAMINA_ISA_NAMESPACE

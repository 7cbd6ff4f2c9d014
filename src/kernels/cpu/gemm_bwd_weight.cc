// linear_bwd_weight: dW = xᵀ dy + acc?, written in panels, padding zero; linear_bwd_params: with it db, the sum of each
// column of dy, + acc?, from the rows that are being packed; qkv_bwd_params: both for three dy. linear_bwd_update and
// qkv_bwd_update do not keep dW: AdamW takes it where it is finished. The sum runs over tokens m:
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
// With an update the tiles of a task go to its scratch, and after the last chunk each sub-block is applied to W, m and
// v and its squares are summed, row by row over kSquareColumns columns, whatever the task: dW has the bits and the
// update the arithmetic of the ops apart.
//
// acc comes first, then the chunks in rising order. 16-bit operands are prepared a few rows at a time before they are
// packed, and db is the sum of those.
#include "kernels/cpu/adamw.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_operands.h"

namespace lamina::LAMINA_ISA_NAMESPACE {
namespace {

constexpr int64_t kChunk = kTokenChunk;
constexpr int64_t kBlockPanels = kSquareColumns / kPanel;
constexpr int64_t kMostPanels = 2 * kBlockPanels;  // of a task
constexpr int64_t kMostK = 768;                    // of a task
constexpr int64_t kSubK = 192;                     // packed at a time; a multiple of kTileRows
constexpr int64_t kManyTasks = 8;                  // while they are fewer, blocks of n are halved once
constexpr int64_t kEnoughTasks = 4;                // and then k is cut: every further cut packs something twice
static_assert(kSubK % kTileRows == 0);
static_assert(kSquareColumns == 384, "ids of kernels name it");
static_assert(kSquareColumns % kPanel == 0, "a block of squares is some whole panels of one task");
static_assert(!kScaled || kMostPanels / 2 * kPanel % kScaleColumns == 0);

struct Target {
  Numbers dy;             // (M, N)
  const float* acc;       // (K, N) in panels, or null
  float* dw;              // (K, N) in panels; null with an update
  const float* acc_bias;  // (N) or null
  float* db;              // (N) or null
  const float* from[3];   // W, m, v (K, N) in panels, with an update
  float* updated[3];
  float* squares;  // (K, blocks of kSquareColumns)
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
  const AdamWAttrs* adamw;   // null: no update
  const float* hyper;
  int64_t kept_rows;  // of a task's dW that are in scratch at once: all, or those of a sub-block
};

Problem sizes_of(const Args& args, int64_t targets) {
  Problem p{};
  p.x = numbers(args.in[0]);
  p.precision = args.precision;
  p.half_chunk = kHalfChunk;
  p.targets = targets;
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

// dy of all targets after x, then for each its accumulators and outputs.
Problem product_of(const Args& args, int64_t targets, bool bias) {
  Problem p = sizes_of(args, targets);
  for (int t = 0; t < targets; ++t) {
    Target& to = p.to[t];
    const int first = (bias ? 2 : 1) * t;
    const int acc = static_cast<int>(targets) + 1 + first;
    to.dy = numbers(args.in[1 + t]);
    to.acc = input(args, acc);
    to.dw = output(args, first);
    if (!bias) continue;
    to.acc_bias = input(args, acc + 1);
    to.db = output(args, first + 1);
  }
  return p;
}

// dy of all targets after x, the rates, then for each W, m and v; the outputs are these, the squares and db.
Problem update_of(const Args& args, int64_t targets) {
  Problem p = sizes_of(args, targets);
  const int hyper = static_cast<int>(targets) + 1;
  p.adamw = &attrs_of<AdamWAttrs>(args);
  p.hyper = input(args, hyper);
  p.kept_rows = p.M > kChunk ? p.k_per_task : smaller(kSubK, p.k_per_task);
  for (int t = 0; t < targets; ++t) {
    Target& to = p.to[t];
    to.dy = numbers(args.in[1 + t]);
    for (int i = 0; i < 3; ++i) {
      to.from[i] = input(args, hyper + 1 + 3 * t + i);
      to.updated[i] = output(args, 5 * t + i);
    }
    to.squares = output(args, 5 * t + 3);
    to.db = output(args, 5 * t + 4);
  }
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
Problem linear_bwd_update(const Args& args) { return update_of(args, 1); }
Problem qkv_bwd_update(const Args& args) { return update_of(args, 3); }

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
  int64_t kept_k;            // the first row of dW in scratch
};

// What a task has in scratch.
struct Room {
  float* dw;       // with an update: panels of kept_rows rows
  float* squares;  // kLanes sums for each row of a sub-block
  float* sums;     // of the columns of dy
  Word *slivers, *panels;
  FewRows few;
  float *x_exponents, *dy_exponents;  // of each column
};

// All tiles of one sub-block of k.
void multiply(const Problem& p, const Target& to, const Part& part, const Room& room) {
  Step s{};
  s.steps = words_of(part.tokens);
  s.half_chunk = p.half_chunk;
  const int64_t first = (part.panel * p.K + part.k) * kPanel;  // in a whole dW
  const bool whole = to.dw != nullptr;
  float* dw = whole ? to.dw + first : room.dw + (part.k - part.kept_k) * kPanel;
  const float* acc = to.acc == nullptr ? nullptr : to.acc + first;
  s.panel_step = (whole ? p.K : p.kept_rows) * kPanel;
  const Word* panels = room.panels;
  for (int64_t panel = part.panel; panel < part.end_panel; panel += kAcross) {
    s.columns = p.N - panel * kPanel;
    if (kScaled) s.exponent = room.dy_exponents[(panel - part.panel) * kPanel];
    const Word* x = room.slivers;
    for (int64_t k = part.k; k < part.end_k; k += kTileRows) {
      const int64_t at = (panel - part.panel) * s.panel_step + (k - part.k) * kPanel;
      s.rows = part.end_k - k;
      s.to = dw + at;
      s.add = part.m > 0 ? s.to : acc == nullptr ? nullptr : acc + at;
      if (kScaled) s.row_exponents = room.x_exponents + k - part.k;
      tile(s, x, panels);
      x += strip(kTileRows, s.steps);
    }
    panels += strip(kPanel, s.steps);
  }
}

// AdamW on `rows` rows of one panel, at `at` of W, m and v; the squares of the gradient are added to `squares`.
LAMINA_INLINE void update_panel(const AdamWFactors& f, const Target& to, int64_t at, const float* dw, int64_t rows,
                                float* squares) {
  for (int64_t r = 0; r < rows; ++r) {
    Vec square = load(squares + r * kLanes);
    LAMINA_UNROLL for (int j = 0; j < kTileVecs; ++j) {
      const int64_t i = at + r * kPanel + j * kLanes;
      const Vec grad = load(dw + r * kPanel + j * kLanes);
      square = fma(grad, grad, square);
      const AdamWState s = adamw_step(f, {load(to.from[0] + i), load(to.from[1] + i), load(to.from[2] + i)}, grad);
      store(to.updated[0] + i, s.param);
      store(to.updated[1] + i, s.m);
      store(to.updated[2] + i, s.v);
    }
    store(squares + r * kLanes, square);
  }
}

// One sub-block of a finished dW.
LAMINA_FLATTEN LAMINA_NOINLINE void update(const Problem& p, const Target& to, const Part& part, const Room& room) {
  const AdamWFactors f = adamw_factors(*p.adamw, p.hyper, 1.0f);
  const int64_t rows = part.end_k - part.k, blocks = ceil_div(p.N, kSquareColumns);
  for (int64_t first = part.panel; first < part.end_panel; first += kBlockPanels) {
    for (int64_t r = 0; r < rows; ++r) store(room.squares + r * kLanes, zero());
    for (int64_t panel = first; panel < smaller(first + kBlockPanels, part.end_panel); ++panel) {
      const float* dw = room.dw + ((panel - part.panel) * p.kept_rows + part.k - part.kept_k) * kPanel;
      update_panel(f, to, (panel * p.K + part.k) * kPanel, dw, rows, room.squares);
    }
    for (int64_t r = 0; r < rows; ++r)
      to.squares[(part.k + r) * blocks + first / kBlockPanels] = horizontal_sum(load(room.squares + r * kLanes));
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
  int64_t dw, squares, sums, slivers, panels, rounded, prepared, x_exponents, dy_exponents;

  LAMINA_MEMBER int64_t words() const {
    return dw + squares + sums + slivers + panels + rounded + prepared + x_exponents + dy_exponents;
  }
};

Memory memory_of(const Problem& p) {
  const int64_t columns = p.panels_per_task * kPanel;
  const int64_t few = prepares(p.precision) ? kGroup * larger(kSubK, columns) : 0;
  return {p.kept_rows * columns,
          p.adamw != nullptr ? kSubK * kLanes : 0,
          columns,
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
  room.dw = scratch;
  room.squares = room.dw + m.dw;
  room.sums = room.squares + m.squares;
  room.slivers = as_words(room.sums + m.sums);
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
      part.kept_k = p.M > kChunk ? first_k : part.k;
      pack_x(p, part, room);
      multiply(p, to, part, room);
      if (p.adamw != nullptr && part.m + kChunk >= p.M) update(p, to, part, room);
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
  return memory_of(problem_of(args)).words() * static_cast<int64_t>(sizeof(Word));
}

}  // namespace

LAMINA_GEMM_KERNEL(linear_bwd_weight, "kc256");
LAMINA_GEMM_KERNEL(linear_bwd_params, "kc256");
LAMINA_GEMM_KERNEL(qkv_bwd_params, "kc256");
LAMINA_GEMM_KERNEL(linear_bwd_update, "kc256.sq384");
LAMINA_GEMM_KERNEL(qkv_bwd_update, "kc256.sq384");
LAMINA_GEMM_PART(head_weight, linear_bwd_weight, "kc256" LAMINA_HALF_CHUNK("ch64"));

}  // namespace lamina::LAMINA_ISA_NAMESPACE

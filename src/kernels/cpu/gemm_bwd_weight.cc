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

// The same of n columns that have to be prepared. `sums`, where it is not null: each column is added to it.
template <int width>
LAMINA_NOINLINE void pack_prepared(const Numbers& from, int64_t ld, int64_t n, Dtype precision, int64_t tokens,
                                   Word* dst, const FewRows& few, float* sums) {
  for (int64_t first = 0; first < tokens; first += kGroup * kDepth) {
    const int64_t rows = smaller(kGroup * kDepth, tokens - first);
    for (int64_t m = 0; m < rows; ++m)
      load_operands(from.from((first + m) * ld), n, precision, few.rounded + m * n);
    if (sums != nullptr) add_columns(few.rounded, n, rows, n, sums);
    const Word* words = prepare_rows(few.rounded, rows, n, few.prepared);
    pack_group<width>({words, n, n, n}, words_of(rows), false, first / kDepth, words_of(tokens), dst);
  }
}

struct Step {
  int64_t steps;     // words of the chunk's tokens
  const float* add;  // what the sums are added to, in the place of `to`, or null
  float* to;
  int64_t rows;     // rows of the tile that exist
  int64_t columns;  // columns of the tile that exist
};

// One register tile: kTileRows rows k by one panel.
LAMINA_NOINLINE void tile(const Step& s, const Word* x, const Word* dy) {
  LAMINA_UNROLL for (int i = 0; i < kTileRows * kPanel; i += kLine) __builtin_prefetch(s.to + i, 1, 3);
  Vec sum[kTileRows][kTileVecs];
  clear(sum);
  multiply_add(sum, x, 1, kTileRows, dy, kPanel, s.steps);
  LAMINA_UNROLL for (int i = 0; i < kTileRows; ++i) {
    if (i >= s.rows) continue;
    LAMINA_UNROLL for (int j = 0; j < kTileVecs; ++j) {
      const int64_t at = i * kPanel + j * kLanes;
      Vec v = sum[i][j];
      if (s.add != nullptr) v = add(load(s.add + at), v);
      if (s.columns < kPanel) v = select(first_lanes(s.columns - j * kLanes), v, zero());
      store(s.to + at, v);
    }
  }
}

struct Part {
  int64_t m, tokens;         // the chunk
  int64_t panel, end_panel;  // of the task
  int64_t k, end_k;          // the sub-block
};

// All tiles of one sub-block of k.
void multiply(const Problem& p, const Target& to, const Part& part, const Word* slivers, const Word* panels) {
  Step s{};
  s.steps = words_of(part.tokens);
  for (int64_t panel = part.panel; panel < part.end_panel; ++panel) {
    s.columns = p.N - panel * kPanel;
    const Word* x = slivers;
    for (int64_t k = part.k; k < part.end_k; k += kTileRows) {
      const int64_t at = (panel * p.K + k) * kPanel;
      s.rows = part.end_k - k;
      s.to = to.dw + at;
      s.add = part.m > 0 ? s.to : to.acc == nullptr ? nullptr : to.acc + at;
      tile(s, x, panels);
      x += strip(kTileRows, s.steps);
    }
    panels += strip(kPanel, s.steps);
  }
}

// Packs some columns of dy, from n on, and adds them to `sums` where it is not null.
void pack_dy(const Problem& p, const Numbers& dy, int64_t columns, int64_t n, int64_t tokens, Word* panels,
             const FewRows& few, float* sums) {
  if (prepares(p.precision))
    return pack_prepared<kPanel>(dy, p.N, columns, p.precision, tokens, panels, few, sums);
  pack<kPanel>({as_words(dy), p.N, columns, p.N - n}, tokens, panels);
  if (sums != nullptr) add_columns(dy.floats(), p.N, tokens, columns, sums);
}

// Packs x of one part.
void pack_x(const Problem& p, const Part& part, Word* slivers, const FewRows& few) {
  const Numbers x = p.x.from(part.m * p.K + part.k);
  const int64_t columns = part.end_k - part.k;
  if (prepares(p.precision))
    return pack_prepared<kTileRows>(x, p.K, columns, p.precision, part.tokens, slivers, few, nullptr);
  pack<kTileRows>({as_words(x), p.K, columns, p.K - part.k}, part.tokens, slivers);
}

// The parts of a task's scratch, in words.
struct Memory {
  int64_t sums, slivers, panels, rounded, prepared;
};

Memory memory_of(const Problem& p) {
  const int64_t few = prepares(p.precision) ? kGroup * larger(kSubK, p.panels_per_task * kPanel) : 0;
  return {p.panels_per_task * kPanel, kSubK / kTileRows * strip(kTileRows, words_of(kChunk)),
          p.panels_per_task * strip(kPanel, words_of(kChunk)), few * kDepth, kDepth > 1 ? few : 0};
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
  float* sums = scratch;
  const Memory memory = memory_of(p);
  Word* slivers = as_words(scratch) + memory.sums;
  Word* panels = slivers + memory.slivers;
  const FewRows few{as_floats(panels + memory.panels), panels + memory.panels + memory.rounded};
  const bool bias = to.db != nullptr && first_k == 0;
  for (int64_t i = 0; bias && i < columns; ++i) sums[i] = 0.0f;
  for (part.m = 0; part.m == 0 || part.m < p.M; part.m += kChunk) {
    part.tokens = smaller(kChunk, p.M - part.m);
    pack_dy(p, to.dy.from(part.m * p.N + n), columns, n, part.tokens, panels, few, bias ? sums : nullptr);
    for (part.k = first_k; part.k < end_k; part.k += kSubK) {
      part.end_k = smaller(end_k, part.k + kSubK);
      pack_x(p, part, slivers, few);
      multiply(p, to, part, slivers, panels);
    }
  }
  for (int64_t i = 0; bias && i < columns; ++i)
    to.db[n + i] = to.acc_bias == nullptr ? sums[i] : sums[i] + to.acc_bias[n + i];
}

template <Problem (*problem_of)(const Args&)>
int64_t tasks(const Args& args) noexcept {
  const Problem p = problem_of(args);
  return p.targets * p.n_tasks * p.k_tasks;
}

template <Problem (*problem_of)(const Args&)>
int64_t scratch_bytes(const Args& args) noexcept {
  const Memory m = memory_of(problem_of(args));
  return (m.sums + m.slivers + m.panels + m.rounded + m.prepared) * static_cast<int64_t>(sizeof(Word));
}

}  // namespace

LAMINA_GEMM_KERNEL(linear_bwd_weight, "kc256");
LAMINA_GEMM_KERNEL(linear_bwd_params, "kc256");
LAMINA_GEMM_KERNEL(qkv_bwd_params, "kc256");

}  // namespace lamina::LAMINA_ISA_NAMESPACE

// linear_bwd_weight: dW = xᵀ dy + acc?, written in panels, padding zero. The sum runs over tokens m:
//
//        m ->                   n ->                      n ->
//   k  | xᵀ xᵀ xᵀ |    x   m  | dy dy dy … |    =    k  | dW … |
//
// Both operands would be read with the stride of a whole row, so both are packed: x into slivers of kTileRows columns,
// dy into panels of kPanel columns, each with its tokens one after the other. For each chunk of tokens: pack x of the
// task; for some panels at a time: pack dy; for each panel, which stays in the first-level cache: for each sliver of x:
// one register tile, added to dW in the order of its memory. acc comes first, then the chunks in rising order. A task
// is a block of k by a block of n.
#include "kernels/cpu/gemm.h"

namespace lamina::LAMINA_ISA_NAMESPACE {
namespace {

constexpr int64_t kChunk = 256;                // tokens
constexpr int64_t kSubPanels = 192 / kPanel;   // packed at a time
constexpr int64_t kMostPanels = 384 / kPanel;  // of a task
constexpr int64_t kMostK = 768;
constexpr int64_t kLeastK = 192;
constexpr int64_t kEnoughTasks = 4;  // every further cut packs something twice

struct Problem {
  const float* x;    // (M, K)
  const float* dy;   // (M, N)
  const float* acc;  // (K, N) in panels, or null
  float* dw;         // (K, N) in panels
  int64_t M, K, N;
  int64_t panels, n_blocks, k_blocks, k_per_block;
};

Problem problem_of(const Args& args) {
  Problem p{};
  p.x = input(args, 0);
  p.dy = input(args, 1);
  p.acc = input(args, 2);
  p.dw = output(args, 0);
  p.M = row_count(args.in[0]);
  p.K = last_dim(args.in[0]);
  p.N = last_dim(args.in[1]);
  p.panels = ceil_div(p.N, kPanel);
  p.n_blocks = ceil_div(p.panels, kMostPanels);
  int64_t blocks = ceil_div(p.K, kMostK);
  if (p.n_blocks * blocks < kEnoughTasks)
    blocks = smaller(ceil_div(p.K, kLeastK), ceil_div(kEnoughTasks, larger(1, p.n_blocks)));
  p.k_per_block = ceil_div(ceil_div(p.K, larger(1, blocks)), kTileRows) * kTileRows;
  p.k_blocks = p.K == 0 ? 0 : ceil_div(p.K, p.k_per_block);
  return p;
}

// Columns [0, n) of `tokens` rows of src  ->  strips of `width` columns, each with its rows one after the other; zero
// beyond n. Some rows at a time, so that whole lines are written.
template <int width>
LAMINA_NOINLINE void pack(const float* src, int64_t ld, int64_t n, int64_t tokens, float* dst) {
  constexpr int64_t group = 16;
  for (int64_t first = 0; first < tokens; first += group) {
    const int64_t end = smaller(tokens, first + group);
    for (int64_t c = 0; c < n; c += width) {
      float* to = dst + c * tokens + first * width;
      const float* from = src + first * ld + c;
      const int64_t valid = smaller(width, n - c);
      for (int64_t m = first; m < end; ++m, to += width, from += ld) {
        if (valid == width) {
          __builtin_memcpy(to, from, width * sizeof(float));
        } else {
          for (int64_t i = 0; i < width; ++i) to[i] = i < valid ? from[i] : 0.0f;
        }
      }
    }
  }
}

struct Step {
  int64_t tokens;    // of the chunk
  const float* add;  // what the sums are added to, in the place of `to`, or null
  float* to;
  int64_t rows;     // rows of the tile that exist
  int64_t columns;  // columns of the tile that exist
};

// One register tile: kTileRows rows k by one panel.
LAMINA_NOINLINE void tile(const Step& s, const float* x, const float* dy) {
  LAMINA_UNROLL for (int i = 0; i < kTileRows * kPanel; i += kLine) __builtin_prefetch(s.to + i, 1, 3);
  Vec sum[kTileRows][kTileVecs];
  clear(sum);
  multiply_add(sum, x, 1, kTileRows, dy, kPanel, s.tokens);
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

void run_task(const Problem& p, int64_t task, float* scratch) {
  const int64_t k0 = task % p.k_blocks * p.k_per_block;
  const int64_t k_end = smaller(p.K, k0 + p.k_per_block);
  const int64_t first_panel = task / p.k_blocks * kMostPanels;
  const int64_t end_panel = smaller(p.panels, first_panel + kMostPanels);
  float* slivers = scratch;
  float* panels = scratch + p.k_per_block * kChunk;
  for (int64_t m = 0; m == 0 || m < p.M; m += kChunk) {
    Step s{};
    s.tokens = smaller(kChunk, p.M - m);
    pack<kTileRows>(p.x + m * p.K + k0, p.K, k_end - k0, s.tokens, slivers);
    for (int64_t sub = first_panel; sub < end_panel; sub += kSubPanels) {
      const int64_t sub_end = smaller(end_panel, sub + kSubPanels);
      pack<kPanel>(p.dy + m * p.N + sub * kPanel, p.N, smaller(p.N, sub_end * kPanel) - sub * kPanel, s.tokens, panels);
      for (int64_t panel = sub; panel < sub_end; ++panel) {
        s.columns = p.N - panel * kPanel;
        for (int64_t k = k0; k < k_end; k += kTileRows) {
          const int64_t at = (panel * p.K + k) * kPanel;
          s.rows = k_end - k;
          s.to = p.dw + at;
          s.add = m > 0 ? s.to : p.acc == nullptr ? nullptr : p.acc + at;
          tile(s, slivers + (k - k0) * s.tokens, panels + (panel - sub) * kPanel * s.tokens);
        }
      }
    }
  }
}

void run(const Args& args, int64_t begin, int64_t end, std::byte* scratch) noexcept {
  const Problem p = problem_of(args);
  for (int64_t task = begin; task < end; ++task) run_task(p, task, reinterpret_cast<float*>(scratch));
}

int64_t tasks(const Args& args) noexcept {
  const Problem p = problem_of(args);
  return p.n_blocks * p.k_blocks;
}

int64_t scratch_bytes(const Args& args) noexcept {
  const Problem p = problem_of(args);
  return (p.k_per_block + kSubPanels * kPanel) * kChunk * static_cast<int64_t>(sizeof(float));
}

}  // namespace

extern constinit const Kernel kernel_linear_bwd_weight_f32{
    Op::linear_bwd_weight, "linear_bwd_weight.f32." LAMINA_STRING(LAMINA_ISA_NAMESPACE) ".kc256", run, tasks,
    scratch_bytes};

}  // namespace lamina::LAMINA_ISA_NAMESPACE

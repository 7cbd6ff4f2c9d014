// linear: y = x W + bias? + residual?, W in panels of kPanel columns.
//
// x is read where it lies, row-major: a sliver of kTileRows rows of x stays in the first-level cache and is broadcast,
// while a block of panels stays in the second-level cache and is read as vectors:
//
//   for each chunk of K:  for each sliver of rows:  for each panel of the block:  one register tile
//
// Sums of chunks before the last wait in scratch, so that y may lie on the residual. Where there are several chunks,
// the sliver is copied together: its rows are far apart then, often by a multiple of what a way of the cache holds, and
// would compete for the same sets. A task is a block of rows by a block of panels.
#include "kernels/cpu/gemm.h"

namespace lamina::LAMINA_ISA_NAMESPACE {
namespace {

constexpr int64_t kChunk = 768;
constexpr int64_t kBlockPanels = 96 / kPanel;       // 96 columns: 288 KB of a chunk of W
constexpr int64_t kStride = kBlockPanels * kPanel;  // of sums in scratch
constexpr int64_t kMostRows = 1024;
constexpr int64_t kMostRowsInScratch = 256;
constexpr int64_t kFewRows = 64;  // no task smaller than this for the sake of balance
constexpr int64_t kEnoughTasks = 16;
constexpr int kRowsAhead = (kTileRows + kBlockPanels - 1) / kBlockPanels;  // rows of the next sliver fetched per panel
constexpr int64_t kCopyStride = kChunk + kLine;                            // of a sliver that was copied
constexpr int64_t kColdAhead = 2048;  // floats of W fetched ahead by the first sliver, more than a memory latency

struct Problem {
  const float* x;         // (M, K)
  const float* weight;    // (K, N) in panels
  const float* bias;      // (N) or null
  const float* residual;  // (M, N) or null
  float* y;               // (M, N)
  int64_t M, K, N;
  int64_t panels, column_blocks, row_blocks, rows_per_block;
};

Problem problem_of(const Args& args) {
  Problem p{};
  p.x = input(args, 0);
  p.weight = input(args, 1);
  p.bias = input(args, 2);
  p.residual = input(args, 3);
  p.y = output(args, 0);
  p.M = row_count(args.in[0]);
  p.K = dims(args.in[1])[0];
  p.N = dims(args.in[1])[1];
  p.panels = ceil_div(p.N, kPanel);
  p.column_blocks = ceil_div(p.panels, kBlockPanels);
  int64_t blocks = ceil_div(p.M, p.K > kChunk ? kMostRowsInScratch : kMostRows);
  if (p.column_blocks * blocks < kEnoughTasks)
    blocks = smaller(ceil_div(p.M, kFewRows), ceil_div(kEnoughTasks, larger(1, p.column_blocks)));
  p.rows_per_block = ceil_div(ceil_div(p.M, larger(1, blocks)), kTileRows) * kTileRows;
  p.row_blocks = p.M == 0 ? 0 : ceil_div(p.M, p.rows_per_block);
  return p;
}

// Where the sums of one sliver and one chunk come from and go to.
struct Span {
  const float* x;       // first row, first k of the chunk
  int64_t ld;           // from row to row of x
  const float* weight;  // first panel of the block, first k of the chunk
  int64_t n;            // k in the chunk
  float* partial;       // sums so far, (rows of the task, kStride) in scratch; null where one chunk is all
  int64_t sliver;       // where the sliver begins in `partial`
  bool first, last;     // the chunk
  int64_t row, column;  // of y, where the tile begins
  const float* next;    // the sliver after this one, fetched meanwhile into the second-level cache
  bool cold;            // the first sliver: it meets the block of W in memory
};

template <int rows, int vecs>
LAMINA_INLINE void finish(const Problem& p, Vec (&sum)[rows][vecs], int64_t row, int64_t column) {
  const int64_t left = p.N - column;
  const bool whole = left >= vecs * kLanes;
  const auto read = [&](const float* from, int j) {
    return whole ? load(from + j * kLanes) : load_n(from + j * kLanes, smaller(larger(left - j * kLanes, 0), kLanes));
  };
  if (p.bias != nullptr) {
    LAMINA_UNROLL for (int j = 0; j < vecs; ++j) {
      const Vec b = read(p.bias + column, j);
      LAMINA_UNROLL for (int i = 0; i < rows; ++i) sum[i][j] = add(sum[i][j], b);
    }
  }
  if (p.residual != nullptr) {
    LAMINA_UNROLL for (int i = 0; i < rows; ++i) {
      LAMINA_UNROLL for (int j = 0; j < vecs; ++j) {
        sum[i][j] = add(sum[i][j], read(p.residual + (row + i) * p.N + column, j));
      }
    }
  }
  LAMINA_UNROLL for (int i = 0; i < rows; ++i) {
    float* y = p.y + (row + i) * p.N + column;
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
LAMINA_INLINE void fetch_target(const Problem& p, const Span& s, int64_t panel) {
  LAMINA_UNROLL for (int i = 0; i < rows; ++i) {
    const float* y = p.y + (s.row + i) * p.N + s.column + panel * kPanel;
    LAMINA_UNROLL for (int j = 0; j < kPanel; j += kLine) {
      if (s.last) __builtin_prefetch(y + j, 1, 2);
      if (!s.first) __builtin_prefetch(s.partial + s.sliver + i * kStride + panel * kPanel + j, 0, 3);
    }
    if (s.last) __builtin_prefetch(y + kPanel - 1, 1, 2);
  }
}

// One register tile: `rows` rows of x by one panel.
template <int rows>
LAMINA_NOINLINE void tile(const Problem& p, const Span& s, int64_t panel) {
  Vec sum[rows][kTileVecs];
  clear(sum);
  const float* w = s.weight + panel * p.K * kPanel;
  fetch_target<rows>(p, s, panel);
  int64_t k = 0;
  for (; k + kLine <= s.n; k += kLine) {
    LAMINA_UNROLL for (int i = 0; i < kRowsAhead; ++i) {
      __builtin_prefetch(s.next + (panel * kRowsAhead + i) % kTileRows * p.K + k, 0, 2);
    }
    if (s.cold) {
      LAMINA_UNROLL for (int i = 0; i < kPanel; ++i) __builtin_prefetch(w + k * kPanel + kColdAhead + i * kLine, 0, 3);
    }
    multiply_add(sum, s.x + k, s.ld, 1, w + k * kPanel, kPanel, kLine);
  }
  multiply_add(sum, s.x + k, s.ld, 1, w + k * kPanel, kPanel, s.n - k);
  const int64_t at = s.sliver + panel * kPanel;
  if (!s.first) {
    LAMINA_UNROLL for (int i = 0; i < rows; ++i) {
      LAMINA_UNROLL for (int j = 0; j < kTileVecs; ++j) {
        sum[i][j] = add(load(s.partial + at + i * kStride + j * kLanes), sum[i][j]);
      }
    }
  }
  if (s.last) {
    finish(p, sum, s.row, s.column + panel * kPanel);
  } else {
    LAMINA_UNROLL for (int i = 0; i < rows; ++i) {
      LAMINA_UNROLL for (int j = 0; j < kTileVecs; ++j) store(s.partial + at + i * kStride + j * kLanes, sum[i][j]);
    }
  }
}

// n columns of kTileRows rows or fewer  ->  the same with kCopyStride between rows.
LAMINA_NOINLINE void copy_sliver(const float* x, int64_t ld, int64_t rows, int64_t n, float* to) {
  for (int64_t i = 0; i < rows; ++i, x += ld, to += kCopyStride) {
    for_lanes(0, n, [=](int64_t k, auto lanes) { lanes.store(to + k, lanes.load(x + k)); });
  }
}

void run_task(const Problem& p, int64_t task, float* scratch) {
  float* copied = scratch;
  const bool copy = p.K > kChunk;
  const int64_t first_panel = task / p.row_blocks * kBlockPanels;
  const int64_t panels = smaller(kBlockPanels, p.panels - first_panel);
  const int64_t first_row = task % p.row_blocks * p.rows_per_block;
  const int64_t end_row = smaller(p.M, first_row + p.rows_per_block);
  for (int64_t k = 0; k == 0 || k < p.K; k += kChunk) {
    Span s{};
    s.n = smaller(kChunk, p.K - k);
    s.first = k == 0;
    s.last = k + kChunk >= p.K;
    s.weight = p.weight + first_panel * p.K * kPanel + k * kPanel;
    s.column = first_panel * kPanel;
    s.partial = scratch + kTileRows * kCopyStride;
    s.ld = copy ? kCopyStride : p.K;
    for (s.row = first_row; s.row < end_row; s.row += kTileRows) {
      const float* x = p.x + s.row * p.K + k;
      if (copy) copy_sliver(x, p.K, smaller(kTileRows, end_row - s.row), s.n, copied);
      s.x = copy ? copied : x;
      s.next = s.row + 2 * kTileRows <= end_row ? x + kTileRows * p.K : x;
      s.cold = s.row == first_row;
      s.sliver = (s.row - first_row) * kStride;
      with_rows<kTileRows>(end_row - s.row, [&]<int rows>() {
        for (int64_t panel = 0; panel < panels; ++panel) tile<rows>(p, s, panel);
      });
    }
  }
}

void run(const Args& args, int64_t begin, int64_t end, std::byte* scratch) noexcept {
  const Problem p = problem_of(args);
  for (int64_t task = begin; task < end; ++task) run_task(p, task, reinterpret_cast<float*>(scratch));
}

int64_t tasks(const Args& args) noexcept {
  const Problem p = problem_of(args);
  return p.column_blocks * p.row_blocks;
}

int64_t scratch_bytes(const Args& args) noexcept {
  const Problem p = problem_of(args);
  if (p.K <= kChunk) return 0;
  return (kTileRows * kCopyStride + p.rows_per_block * kStride) * static_cast<int64_t>(sizeof(float));
}

}  // namespace

extern constinit const Kernel kernel_linear_f32{Op::linear, "linear.f32." LAMINA_STRING(LAMINA_ISA_NAMESPACE) ".kc768",
                                                run, tasks, scratch_bytes};

}  // namespace lamina::LAMINA_ISA_NAMESPACE

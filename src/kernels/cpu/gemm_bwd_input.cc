// linear_bwd_input: dx = dy Wᵀ + acc?, from the panels in which W already lies; and what a layer cell makes of it:
//
//   linear_bwd_gelu    dx = dy Wᵀ * gelu'(pre)
//   qkv_bwd_input      dx = dq Wqᵀ + dk Wkᵀ + dv Wvᵀ + acc?, one long sum
//
// The roles of the forward product are swapped: elements of W are broadcast, dy is packed so that its rows m become the
// lanes of vectors, and the sums are dxᵀ, transposed on their way out:
//
//        n ->                   m ->                      m ->
//   k  | w w w w |    x    n  | dy dy dy … |    =    k  | dxᵀ … |
//
// For each chunk of N: pack dy; for each sliver of kTileRows rows k: copy it; for each vector panel of m: one register
// tile. The packed chunk stays in the second-level cache. The sliver stays in the first, which is why it is copied:
// where it lies, its parts are K panel rows apart, and with K a multiple of 64 they all want the same sets of a cache.
// dxᵀ is summed up in scratch. A task is a block of m by a block of k.
//
// 16-bit operands are prepared on the way: W where the sliver is copied, dy by some rows before they are transposed.
#include "kernels/cpu/gelu.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_operands.h"

namespace lamina::LAMINA_ISA_NAMESPACE {
namespace {

constexpr int64_t kChunk = 384;  // of N: shorter than in the forward product, for a wider block of m
#if defined(LAMINA_ISA_AVX512)
constexpr int64_t kBlockPanels = 4 * kDepth;
#else
constexpr int64_t kBlockPanels = kScaled ? 6 : 8;
#endif
constexpr int64_t kBlockM = kBlockPanels * kWide;  // packed chunk: 192 KB, AVX-512 288 KB
static_assert(kChunk % kPanel == 0 && kPanel % kDepth == 0);
static_assert(!kScaled || (kBlockM % kScaleColumns == 0 && kScaleColumns % kWide == 0));
constexpr int64_t kMostK = 768;  // of a task: what the packing of dy is spread over
constexpr int64_t kLeastK = 192;
constexpr int64_t kEnoughTasks = 8;
constexpr int64_t kSliverPart = kTileRows * kPanel;    // of one panel of W: contiguous there
constexpr int64_t kStride = words_of(kChunk) + kLine;  // from row to row of what is prepared
constexpr int64_t kLinesAhead = (kSliverPart / kLine + kBlockPanels - 1) / kBlockPanels;  // fetched per panel of m

struct Source {
  Numbers dy;           // (M, N)
  const float* weight;  // (K, N) in panels
};

struct Problem {
  Source from[3];
  int64_t sources;
  Dtype precision;
  int64_t half_chunk;
  const float* acc;  // (M, K) or null
  Numbers pre;       // (M, K) or null: what GELU took
  bool tanh;
  Numbers dx;  // (M, K)
  int64_t M, K, N;
  int64_t m_blocks, k_blocks, k_per_block;
};

// The weight of the first source in input `weight`.
Problem product_of(const Args& args, int weight) {
  Problem p{};
  p.sources = weight;
  for (int i = 0; i < weight; ++i) p.from[i] = {numbers(args.in[i]), input(args, weight + i)};
  p.precision = args.precision;
  p.half_chunk = kHalfChunk;
  p.dx = numbers(args.out[0]);
  p.M = row_count(args.in[0]);
  p.K = dims(args.in[weight])[0];
  p.N = dims(args.in[weight])[1];
  p.m_blocks = ceil_div(p.M, kBlockM);
  int64_t blocks = ceil_div(p.K, kMostK);
  if (p.m_blocks * blocks < kEnoughTasks)
    blocks = smaller(ceil_div(p.K, kLeastK), ceil_div(kEnoughTasks, larger(1, p.m_blocks)));
  p.k_per_block = ceil_div(ceil_div(p.K, larger(1, blocks)), kTileRows) * kTileRows;
  p.k_blocks = p.K == 0 ? 0 : ceil_div(p.K, p.k_per_block);
  return p;
}

Problem linear_bwd_input(const Args& args) {
  Problem p = product_of(args, 1);
  p.acc = input(args, 2);
  return p;
}

Problem head_input(const Args& args) {
  Problem p = linear_bwd_input(args);
  p.half_chunk = kHeadHalfChunk;
  return p;
}

Problem linear_bwd_gelu(const Args& args) {
  Problem p = product_of(args, 1);
  p.pre = numbers(args.in[2]);
  p.tanh = attrs_of<GeluAttrs>(args).tanh;
  return p;
}

Problem qkv_bwd_input(const Args& args) {
  Problem p = product_of(args, 3);
  p.acc = input(args, 6);
  return p;
}

// rows of m of the block, `n` columns of dy  ->  panels of kPanel lanes of words, the last one of as few vectors as do.
// `few_rows`: room for kLanes rows. `exponents`: of each kScaleColumns rows.
void pack(const Problem& p, const Numbers& dy, int64_t rows, int64_t n, Word* packed, Word* few_rows,
          float* exponents) {
  for (int64_t m = 0; m < rows; m += kWide, packed += kPanel * words_of(n)) {
    const int64_t left = smaller(kWide, rows - m);
    const int64_t lanes = ceil_div(left, kAcross * kLanes) * kLanes;
    if (!prepares(p.precision)) {
      transpose_rows(as_words(dy.from(m * p.N)), p.N, left, n, packed, lanes);
      continue;
    }
    LaneRows few{dy.from(m * p.N), p.N, smaller(kScaleColumns, rows - m), n, p.precision};
    float& exponent = exponents[m / kScaleColumns];
    if (m % kScaleColumns == 0) exponent = group_exponent(few, vector_top(p.half_chunk));
    for (int64_t r = 0; r < left; r += kAcross * kLanes) {
      few.from = dy.from((m + r) * p.N);
      few.rows = smaller(kAcross * kLanes, left - r);
      prepare_lanes(few, exponent, kStride, few_rows);
      transpose_rows(few_rows, kStride, ceil_div(few.rows, kAcross), words_of(n), packed + r / kAcross, lanes);
    }
  }
}

struct Sliver {
  const Word* weight;  // copied: rows of kStride
  const float* next;   // the sliver after this one where it lies, fetched meanwhile
  int64_t n;           // columns of the chunk
  bool first;          // the chunk, of the first source
  float exponents[kTileRows];
};

// The parts of `rows` rows in each panel of W, from `weight` on  ->  rows of n. `row`: room for one in fp32.
template <int rows>
LAMINA_NOINLINE void copy_sliver(const Problem& p, const float* weight, Sliver& s, Word* to, float* row) {
  for (int i = 0; i < rows; ++i, weight += kPanel, to += kStride) {
    float* numbers = floats_before(to, row);
    const float* from = weight;
    for (int64_t done = 0; done < s.n; done += kPanel, from += p.K * kPanel) {
      LAMINA_UNROLL for (int j = 0; j < kPanel; j += kLanes) store(numbers + done + j, load(from + j));
    }
    if (prepares(p.precision)) s.exponents[i] = prepare_row(fp32(numbers), s.n, p.precision, to);
  }
}

// One register tile: `rows` rows k by one panel of m. `exponent`: of the panel.
template <int rows, int vecs>
LAMINA_NOINLINE void tile(const Problem& p, const Sliver& s, const Word* packed, int64_t panel, float exponent,
                          float* to) {
  constexpr int width = vecs * kLanes;
  Sums<rows, vecs> sums;
  sums.begin(p.half_chunk);
  if (!s.first) {
    LAMINA_UNROLL for (int i = 0; i < rows; ++i) {
      LAMINA_UNROLL for (int j = 0; j < width * kAcross; j += kLine) __builtin_prefetch(to + i * kBlockM + j, 1, 3);
    }
  }
  const Word* w = s.weight;
  const float* next = s.next;
  int64_t n = 0;
  for (; n + kPanel <= s.n; n += kPanel) {
    LAMINA_UNROLL for (int64_t i = 0; i < kLinesAhead; ++i) {
      __builtin_prefetch(next + (panel * kLinesAhead + i) * kLine % kSliverPart, 0, 2);
    }
    sums.add(w, kStride, 1, packed, width, kPanel / kDepth);
    w += kPanel / kDepth;
    packed += kPanel / kDepth * width;
    next += p.K * kPanel;
  }
  sums.add(w, kStride, 1, packed, width, words_of(s.n - n));
  sums.end(s.exponents, exponent);
  LAMINA_UNROLL for (int part = 0; part < kAcross; ++part, to += width) {
    Vec sum[rows][vecs];
    sums.take(part, sum);
    LAMINA_UNROLL for (int i = 0; i < rows; ++i) {
      LAMINA_UNROLL for (int j = 0; j < vecs; ++j) {
        float* at = to + i * kBlockM + j * kLanes;
        store(at, s.first ? sum[i][j] : add(load(at), sum[i][j]));
      }
    }
  }
}

struct Block {
  int64_t m, rows;
  int64_t k, k_end;
};

// What a task has in scratch.
struct Room {
  Word* packed;                                  // a chunk of the block of dy
  Word* sliver;                                  // of W
  float* row;                                    // of W, before it is prepared
  Word* few_rows;                                // of dy, prepared
  float* sums;                                   // dxᵀ
  float exponents[kBlockM / kScaleColumns + 1];  // of the block of dy
};

// All tiles of one chunk, the columns of dy from n0 on.
void multiply(const Problem& p, int64_t source, int64_t n0, const Block& block, const Room& room) {
  Sliver s{};
  s.weight = room.sliver;
  s.n = smaller(kChunk, p.N - n0);
  s.first = source == 0 && n0 == 0;
  int64_t step = kTileRows;
  for (int64_t k = block.k; k < block.k_end; k += step) {
    if (k + kTileRows > block.k_end) step = 1;  // the last rows, where K is no multiple, one by one
    const float* weight = p.from[source].weight + n0 * p.K + k * kPanel;
    if (step == kTileRows)
      copy_sliver<kTileRows>(p, weight, s, room.sliver, room.row);
    else
      copy_sliver<1>(p, weight, s, room.sliver, room.row);
    s.next = k + 2 * kTileRows <= block.k_end ? weight + kSliverPart : weight;
    for (int64_t m = 0; m < block.rows; m += kWide) {
      const Word* packed = room.packed + m / kAcross * words_of(s.n);
      const float exponent = room.exponents[m / kScaleColumns];
      float* to = room.sums + (k - block.k) * kBlockM + m;
      with_vecs<kTileVecs>(ceil_div(block.rows - m, kAcross), [&]<int vecs>() {
        if (step == kTileRows)
          tile<kTileRows, vecs>(p, s, packed, m / kWide, exponent, to);
        else
          tile<1, vecs>(p, s, packed, m / kWide, exponent, to);
      });
    }
  }
}

// dx[m][k] = sums[k][m] + acc[m][k], in blocks of kLanes x kLanes, for kLanes rows from m on, `ld` from row to row.
LAMINA_NOINLINE void write_rows(const Problem& p, const Block& b, int64_t m, const float* sums, float* dx, int64_t ld) {
  for (int64_t k = b.k; k < b.k_end; k += kLanes) {
    const int64_t width = smaller(kLanes, b.k_end - k);
    Vec block[kLanes];
    LAMINA_UNROLL for (int i = 0; i < kLanes; ++i) {
      block[i] = i < width ? load(sums + (k - b.k + i) * kBlockM + m) : zero();
    }
    transpose(block);
    const int64_t at = (b.m + m) * p.K + k;
    LAMINA_UNROLL for (int i = 0; i < kLanes; ++i) {
      if (m + i >= b.rows) continue;
      const int64_t from = at + i * p.K;
      float* to = dx + i * ld + k - b.k;
      if (width == kLanes)
        store(to, p.acc == nullptr ? block[i] : add(block[i], load(p.acc + from)));
      else
        store_n(to, p.acc == nullptr ? block[i] : add(block[i], load_n(p.acc + from, width)), width);
    }
  }
}

// Multiplies a part of a row of dx by the slope of GELU where it goes through one, and stores it where it is kept in 16
// bits. `row`: room for n floats.
LAMINA_FLATTEN LAMINA_NOINLINE void finish_row(const Problem& p, int64_t at, float* dx, int64_t n, float* row) {
  if (p.pre.data != nullptr) {
    const bool as_it_is = p.precision == Dtype::f32;
    if (!as_it_is) load_operands(p.pre.from(at), n, p.precision, row);
    gelu_slope_row(dx, as_it_is ? p.pre.floats() + at : row, p.tanh, dx, n);
  }
  if (!p.dx.wide()) narrow(dx, n, p.dx.from(at));
}

// `free`: room for kLanes + 1 rows of the block.
void write(const Problem& p, const Block& b, const float* sums, float* free) {
  const int64_t n = b.k_end - b.k;
  const int64_t ld = p.dx.wide() ? p.K : n;
  for (int64_t m = 0; m < b.rows; m += kLanes) {
    const int64_t at = (b.m + m) * p.K + b.k;
    float* dx = p.dx.wide() ? p.dx.floats() + at : free;
    write_rows(p, b, m, sums, dx, ld);
    if (p.pre.data == nullptr && p.dx.wide()) continue;
    for (int64_t i = 0; i < smaller(b.rows - m, kLanes); ++i)
      finish_row(p, at + i * p.K, dx + i * ld, n, free + kLanes * n);
  }
}

constexpr int64_t kPackedWords = kBlockPanels * kPanel * words_of(kChunk);
constexpr int64_t kSliverWords = kTileRows * kStride;
constexpr int64_t kRowWords = kWordsAreFloats ? 0 : kChunk;
static_assert(kPackedWords >= (kLanes + 1) * (kMostK + kTileRows));  // what was packed gives room to rows of dx
LAMINA_INLINE int64_t fixed_words(const Problem& p) {
  return kPackedWords + kSliverWords + kRowWords + (prepares(p.precision) ? kLanes * kStride : 0);
}

void run_task(const Problem& p, int64_t task, float* scratch) {
  Room room{};
  room.packed = as_words(scratch);
  room.sliver = room.packed + kPackedWords;
  room.row = scratch + kPackedWords + kSliverWords;
  room.few_rows = room.sliver + kSliverWords + kRowWords;
  room.sums = scratch + fixed_words(p);
  Block b{};
  b.m = task / p.k_blocks * kBlockM;
  b.rows = smaller(kBlockM, p.M - b.m);
  b.k = task % p.k_blocks * p.k_per_block;
  b.k_end = smaller(p.K, b.k + p.k_per_block);
  for (int64_t source = 0; source < p.sources; ++source) {
    for (int64_t n = 0; n == 0 || n < p.N; n += kChunk) {
      pack(p, p.from[source].dy.from(b.m * p.N + n), b.rows, smaller(kChunk, p.N - n), room.packed, room.few_rows,
           room.exponents);
      multiply(p, source, n, b, room);
    }
  }
  write(p, b, room.sums, scratch);
}

template <Problem (*problem_of)(const Args&)>
int64_t tasks(const Args& args) noexcept {
  const Problem p = problem_of(args);
  return p.m_blocks * p.k_blocks;
}

template <Problem (*problem_of)(const Args&)>
int64_t scratch_bytes(const Args& args) noexcept {
  const Problem p = problem_of(args);
  return (fixed_words(p) + kBlockM * p.k_per_block) * static_cast<int64_t>(sizeof(Word));
}

}  // namespace

LAMINA_GEMM_KERNEL(linear_bwd_input, "kc384");
LAMINA_GEMM_KERNEL(linear_bwd_gelu, "kc384");
LAMINA_GEMM_KERNEL(qkv_bwd_input, "kc384");
LAMINA_GEMM_PART(head_input, linear_bwd_input, "kc384" LAMINA_HALF_CHUNK("ch64"));

}  // namespace lamina::LAMINA_ISA_NAMESPACE

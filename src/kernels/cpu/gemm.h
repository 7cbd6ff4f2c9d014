// The inner part of matrix products: a tile of sums that stays in registers while one operand is broadcast and the
// other is read as vectors. What is packed, in which order tiles are visited and what happens to a finished tile is in
// the gemm_*.cc that include this; attention uses the same tile.
//
//              k ->                      vecs * kLanes columns
//   rows  | a a a a a |    x    k | b b b b … |     =    rows x columns of sums
//
// Every sum is a chain of fused multiply-adds in rising k (portable: product and sum rounded apart). A long product is
// cut into chunks, whose length is part of the kernel's id; the chunks are added in rising order. Nothing else decides
// the bits of a result: not the number of rows or tasks around it.
//
// These sources are compiled once more for each arithmetic in which 16-bit operands can be multiplied: words.h says
// what a, b and the sums are in each. With operands of fp32 there is only the f32 of a rung.
#pragma once

#include "kernels/cpu/args.h"
#include "kernels/cpu/words.h"

// The constant of a product's row in the arithmetic that is being compiled.
#define LAMINA_PRODUCT_OF(op, arithmetic) kernel_##op##_##arithmetic
#define LAMINA_PRODUCT_IN(op, arithmetic) LAMINA_PRODUCT_OF(op, arithmetic)
#define LAMINA_PRODUCT(op) LAMINA_PRODUCT_IN(op, LAMINA_ARITHMETIC)
// Its id; `order` names the constants that set the order of summation.
#define LAMINA_PRODUCT_ID(op, order) #op "." LAMINA_STRING(LAMINA_ARITHMETIC) "." LAMINA_STRING(LAMINA_ISA) "." order

// Defines a kernel of a file that has run_task, and templates tasks and scratch_bytes over the function `name` that
// reads the arguments: the row of an op, or what the head takes in its place.
#define LAMINA_GEMM_PART(name, op, order)                                                       \
  extern constinit const Kernel LAMINA_PRODUCT(name) = {Op::op, LAMINA_PRODUCT_ID(name, order), \
                                                        run_product<name, run_task>, tasks<name>, scratch_bytes<name>}
#define LAMINA_GEMM_KERNEL(op, order) LAMINA_GEMM_PART(op, op, order LAMINA_HALF_CHUNK("ch128"))

namespace lamina::LAMINA_ISA_NAMESPACE {

template <auto problem_of, auto run_task>
static void run_product(const Args& args, int64_t begin, int64_t end, std::byte* scratch) noexcept {
  const auto problem = problem_of(args);
  for (int64_t task = begin; task < end; ++task) run_task(problem, task, reinterpret_cast<float*>(scratch));
}

// The register tile: kTileRows x kTileVecs sums, kTileVecs vectors and a broadcast. nr, the width of a weight's panel,
// is kPanel.
#if defined(LAMINA_ISA_AVX512)
constexpr int kTileRows = 8;
constexpr int kTileVecs = 3;
#elif defined(LAMINA_ISA_AVX2)
constexpr int kTileRows = 6;
constexpr int kTileVecs = 2;
#else
constexpr int kTileRows = 2;
constexpr int kTileVecs = 1;
#endif
constexpr int kPanel = kTileVecs * kLanes;
constexpr int64_t kWide = kPanel * kAcross;  // columns of a tile

constexpr int64_t kLine = 16;         // words in a cache line
constexpr int64_t kTokenChunk = 256;  // tokens of a chunk in the gradient of a weight

// sum[i][j] += a(i, k) * b(k, j) for words k in [0, n): a(i, k) at a[i*row + k*a_step], vector j of b(k, ·) at
// b[k*b_step + j*kLanes].
template <int rows, int vecs>
LAMINA_INLINE void multiply_add(Sum (&sum)[rows][vecs], const Word* a, int64_t row, int64_t a_step, const Word* b,
                                int64_t b_step, int64_t n) {
#pragma GCC unroll 4
  for (int64_t k = 0; k < n; ++k) {
    Words v[vecs];
    LAMINA_UNROLL for (int j = 0; j < vecs; ++j) v[j] = load(b + k * b_step + j * kLanes);
    LAMINA_UNROLL for (int i = 0; i < rows; ++i) {
      const Words x = broadcast_word(a + i * row + k * a_step);
      LAMINA_UNROLL for (int j = 0; j < vecs; ++j) sum[i][j] = step(x, v[j], sum[i][j]);
    }
  }
}

template <int rows, int vecs>
LAMINA_INLINE void clear(Vec (&sum)[rows][vecs]) {
  LAMINA_UNROLL for (int i = 0; i < rows; ++i) { LAMINA_UNROLL for (int j = 0; j < vecs; ++j) sum[i][j] = zero(); }
}

#if defined(LAMINA_ARITHMETIC_F16CHUNK)

// The sums of a tile, in fp16 for `half_chunk` products at most and then in fp32.
template <int rows, int vecs>
struct Sums {
  static constexpr int64_t width = vecs * 2 * kLanes;
  Sum half[rows][vecs];
  float wide[rows * width];
  int64_t half_chunk, left;

  LAMINA_MEMBER void begin(int64_t products) {
    half_chunk = left = products;
    LAMINA_UNROLL for (int i = 0; i < rows; ++i) {
      LAMINA_UNROLL for (int j = 0; j < vecs; ++j) half[i][j] = broadcast_int(0);
      LAMINA_UNROLL for (int j = 0; j < width; j += kLanes) store(wide + i * width + j, zero());
    }
  }
  LAMINA_MEMBER void add(const Word* a, int64_t row, int64_t a_step, const Word* b, int64_t b_step, int64_t n) {
    while (n > 0) {
      const int64_t now = smaller(n, left);
      multiply_add(half, a, row, a_step, b, b_step, now);
      a += now * a_step;
      b += now * b_step;
      n -= now;
      left -= now;
      if (left == 0) flush();
    }
  }
  LAMINA_MEMBER void flush() {
    left = half_chunk;
    LAMINA_UNROLL for (int i = 0; i < rows; ++i) {
      LAMINA_UNROLL for (int j = 0; j < vecs; ++j) {
        float* to = wide + i * width + j * 2 * kLanes;
        store(to, LAMINA_ISA_NAMESPACE::add(load(to), first_halves(half[i][j])));
        store(to + kLanes, LAMINA_ISA_NAMESPACE::add(load(to + kLanes), second_halves(half[i][j])));
        half[i][j] = broadcast_int(0);
      }
    }
  }
  // Takes the scales back, those of the rows and that of the columns.
  LAMINA_MEMBER void end(const float* row_exponents, float exponent) {
    if (left < half_chunk) flush();
    LAMINA_UNROLL for (int i = 0; i < rows; ++i) {
      const float back = -(row_exponents[i] + exponent);
      const Vec power = broadcast(back < -200.0f ? -200.0f : back > 200.0f ? 200.0f : back);  // 0 and infinity beyond
      LAMINA_UNROLL for (int j = 0; j < width; j += kLanes) {
        float* to = wide + i * width + j;
        store(to, scale_by_power(load(to), power));
      }
    }
  }
  // The sums of vecs * kLanes columns, the first ones or the second ones.
  LAMINA_MEMBER void take(int part, Vec (&to)[rows][vecs]) const {
    LAMINA_UNROLL for (int i = 0; i < rows; ++i) {
      LAMINA_UNROLL for (int j = 0; j < vecs; ++j) to[i][j] = load(wide + i * width + (part * vecs + j) * kLanes);
    }
  }
};

#else

// The sums of a tile.
template <int rows, int vecs>
struct Sums {
  Vec sum[rows][vecs];

  LAMINA_MEMBER void begin(int64_t) { clear(sum); }
  LAMINA_MEMBER void add(const Word* a, int64_t row, int64_t a_step, const Word* b, int64_t b_step, int64_t n) {
    multiply_add(sum, a, row, a_step, b, b_step, n);
  }
  LAMINA_MEMBER void end(const float*, float) {}
  LAMINA_MEMBER void take(int, Vec (&to)[rows][vecs]) const {
    LAMINA_UNROLL for (int i = 0; i < rows; ++i) { LAMINA_UNROLL for (int j = 0; j < vecs; ++j) to[i][j] = sum[i][j]; }
  }
};

#endif

// dst[c*dst_ld + r] = src[r*ld + c]; the lanes r from `rows` up to the next multiple of kLanes become zero. Whatever
// the words are, they are moved as they are.
LAMINA_NOINLINE void transpose_rows(const Word* words, int64_t ld, int64_t rows, int64_t columns, Word* to,
                                    int64_t dst_ld) {
  const float* src = reinterpret_cast<const float*>(words);
  float* dst = reinterpret_cast<float*>(to);
  for (int64_t c = 0; c < columns; c += kLanes) {
    const int64_t width = smaller(kLanes, columns - c);
    for (int64_t r = 0; r < rows; r += kLanes) {
      Vec block[kLanes];
      LAMINA_UNROLL for (int i = 0; i < kLanes; ++i) {
        const float* from = src + (r + i) * ld + c;
        block[i] = r + i >= rows ? zero() : width == kLanes ? load(from) : load_n(from, width);
      }
      transpose(block);
      LAMINA_UNROLL for (int i = 0; i < kLanes; ++i) {
        if (i < width) store(dst + (c + i) * dst_ld + r, block[i]);
      }
    }
  }
}

// sums[i] += the column i of `rows` rows, in their order.
template <int rows>
LAMINA_INLINE void add_rows(const float* from, int64_t ld, int64_t columns, float* sums) {
  for_lanes(0, columns, [=](int64_t i, auto lanes) {
    Vec sum = lanes.load(sums + i);
    LAMINA_UNROLL for (int r = 0; r < rows; ++r) sum = add(sum, lanes.load(from + r * ld + i));
    lanes.store(sums + i, sum);
  });
}
LAMINA_FLATTEN LAMINA_NOINLINE void add_columns(const float* from, int64_t ld, int64_t rows, int64_t columns,
                                                float* sums) {
  int64_t m = 0;
  for (; m + 4 <= rows; m += 4) add_rows<4>(from + m * ld, ld, columns, sums);
  for (; m < rows; ++m) add_rows<1>(from + m * ld, ld, columns, sums);
}

// Calls f.template operator()<rows>() for the given number of rows, 1 <= rows <= most.
template <int most, typename F>
LAMINA_INLINE void with_rows(int64_t rows, const F& f) {
  if constexpr (most > 1) {
    if (rows < most) return with_rows<most - 1>(rows, f);
  }
  f.template operator()<most>();
}

// Calls f.template operator()<vecs>() for the vectors that so many lanes need, at most `most`.
template <int most, typename F>
LAMINA_INLINE void with_vecs(int64_t lanes, const F& f) {
  with_rows<most>(ceil_div(lanes, kLanes), f);
}

}  // namespace lamina::LAMINA_ISA_NAMESPACE

// Operands of a matrix product as its tiles read them (words.h): what lies in memory in fp32 is rounded to the
// precision of the product, 16 bits become what the arithmetic takes. Packing does this on its way; what is not packed
// is prepared in scratch. Each arithmetic has the same functions; those that scale give the exponent of two, others 0.
//
//   prepare_row     n numbers that follow each other along the sum, for broadcasts: words_of(n) words
//   prepare_block   `panels` panels of weights, n rows of each, for vectors: tiles of words_of(n) rows of kPanel words
//   prepare_lanes   up to kLanes * kAcross rows that follow each other along the sum, to become lanes of vectors: a row
//                   of words, `stride` apart, for each kAcross of them; scaled as group_exponent of their group says
//   prepare_rows    some rows, rounded, n floats each, which follow each other along the sum, for vectors or (across
//                   false) for broadcasts: words_of(rows) rows of words; scaled as column_exponents says
#pragma once

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/narrow.h"

namespace lamina::LAMINA_ISA_NAMESPACE {

LAMINA_INLINE Numbers fp32(const float* p) { return {const_cast<float*>(p), Dtype::f32}; }
// Numbers that need no preparation.
LAMINA_INLINE const Word* as_words(const Numbers& from) { return static_cast<const Word*>(from.data); }

// Rows that become lanes, where they lie.
struct LaneRows {
  Numbers from;
  int64_t ld;
  int64_t rows, n;
  Dtype precision;
};

}  // namespace lamina::LAMINA_ISA_NAMESPACE

#if defined(LAMINA_ARITHMETIC_F16CHUNK)
#include "kernels/cpu/gemm_operands_f16chunk.h"
#else

namespace lamina::LAMINA_ISA_NAMESPACE {

LAMINA_INLINE void read_operands(const Numbers& from, int64_t n, Dtype precision, float* to) {
  load_operands(from, n, precision, to);
}

#if defined(LAMINA_ARITHMETIC_BF16DOT)

LAMINA_FLATTEN LAMINA_NOINLINE float prepare_row(const Numbers& from, int64_t n, Dtype, Word* to) {
  if (!from.wide()) {
    if (n % 2 != 0) to[n / 2] = 0;
    __builtin_memcpy(to, from.data, static_cast<uint64_t>(n) * sizeof(uint16_t));
    return 0.0f;
  }
  const float* x = from.floats();
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) store(to + i / 2, pairs_along(load(x + i), load(x + i + kLanes)));
  if (i == n) return 0.0f;
  Word rest[kLanes];
  const int64_t first = smaller(kLanes, n - i);
  store(rest, pairs_along(load_n(x + i, first), load_n(x + i + first, n - i - first)));
  __builtin_memcpy(to + i / 2, rest, static_cast<uint64_t>(words_of(n - i)) * sizeof(Word));
  return 0.0f;
}

// The numbers of two rows that follow each other along the sum; `second` may be null: zero.
LAMINA_INLINE void join_rows(const float* first, const float* second, int64_t n, Word* to) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    store(to + i, pairs_across(load(first + i), second == nullptr ? zero() : load(second + i)));
  if (i == n) return;
  Word rest[kLanes];
  store(rest, pairs_across(load_n(first + i, n - i), second == nullptr ? zero() : load_n(second + i, n - i)));
  __builtin_memcpy(to + i, rest, static_cast<uint64_t>(n - i) * sizeof(Word));
}

LAMINA_FLATTEN LAMINA_NOINLINE void prepare_panel(const float* from, int64_t n, Dtype, Word* to) {
  for (int64_t k = 0; k < n; k += 2, to += kPanel)
    join_rows(from + k * kPanel, k + 1 < n ? from + (k + 1) * kPanel : nullptr, kPanel, to);
}

template <bool across>
LAMINA_FLATTEN LAMINA_NOINLINE const Word* prepare_rows(const float* from, int64_t rows, int64_t n, const float*,
                                                        Word* room) {
  for (int64_t m = 0; m < rows; m += 2)
    join_rows(from + m * n, m + 1 < rows ? from + (m + 1) * n : nullptr, n, room + m / 2 * n);
  return room;
}

#else

LAMINA_FLATTEN LAMINA_NOINLINE float prepare_row(const Numbers& from, int64_t n, Dtype precision, Word* to) {
  load_operands(from, n, precision, to);
  return 0.0f;
}
LAMINA_FLATTEN LAMINA_NOINLINE void prepare_panel(const float* from, int64_t n, Dtype precision, Word* to) {
  round_row(from, n * kPanel, precision, to);
}
template <bool across>
LAMINA_INLINE const Word* prepare_rows(const float* from, int64_t, int64_t, const float*, Word*) {
  return from;
}

#endif

LAMINA_INLINE float prepare_block(const float* from, int64_t panel_step, int64_t panels, int64_t n, Dtype precision,
                                  int, Word* to) {
  for (int64_t panel = 0; panel < panels; ++panel)
    prepare_panel(from + panel * panel_step, n, precision, to + panel * words_of(n) * kPanel);
  return 0.0f;
}

LAMINA_INLINE float group_exponent(const LaneRows&, int) { return 0.0f; }
LAMINA_INLINE void prepare_lanes(const LaneRows& r, float, int64_t stride, Word* to) {
  for (int64_t m = 0; m < r.rows; ++m) prepare_row(r.from.from(m * r.ld), r.n, r.precision, to + m * stride);
}

template <bool across>
LAMINA_INLINE void column_exponents(const LaneRows&, int, float*, float*) {}

}  // namespace lamina::LAMINA_ISA_NAMESPACE

#endif

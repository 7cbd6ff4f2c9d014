// Operands of a matrix product as its tiles read them (words.h): what lies in memory in fp32 is rounded to the precision
// of the product, 16 bits become what the arithmetic takes. Packing does this on its way; what is not packed is prepared
// in scratch.
#pragma once

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/narrow.h"

namespace lamina::LAMINA_ISA_NAMESPACE {

LAMINA_INLINE Numbers fp32(const float* p) { return {const_cast<float*>(p), Dtype::f32}; }
// Numbers that need no preparation.
LAMINA_INLINE const Word* as_words(const Numbers& from) { return static_cast<const Word*>(from.data); }

#if defined(LAMINA_ARITHMETIC_BF16DOT)

// n numbers that follow each other along the sum, for broadcasts; what is missing to a whole word is zero.
LAMINA_FLATTEN LAMINA_NOINLINE void prepare_row(const Numbers& from, int64_t n, Dtype, Word* to) {
  if (!from.wide()) {
    if (n % 2 != 0) to[n / 2] = 0;
    __builtin_memcpy(to, from.data, static_cast<uint64_t>(n) * sizeof(uint16_t));
    return;
  }
  const float* x = from.floats();
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) store(to + i / 2, pairs_along(load(x + i), load(x + i + kLanes)));
  if (i == n) return;
  Word rest[kLanes];
  const int64_t first = smaller(kLanes, n - i);
  store(rest, pairs_along(load_n(x + i, first), load_n(x + i + first, n - i - first)));
  __builtin_memcpy(to + i / 2, rest, static_cast<uint64_t>(words_of(n - i)) * sizeof(Word));
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

// n rows of a panel of weights, for vectors.
LAMINA_FLATTEN LAMINA_NOINLINE void prepare_panel(const float* from, int64_t n, Dtype, Word* to) {
  for (int64_t k = 0; k < n; k += 2, to += kPanel)
    join_rows(from + k * kPanel, k + 1 < n ? from + (k + 1) * kPanel : nullptr, kPanel, to);
}

// Some rows, rounded, n floats each, that follow each other along the sum. `room`: for the words of all.
LAMINA_FLATTEN LAMINA_NOINLINE const Word* prepare_rows(const float* from, int64_t rows, int64_t n, Word* room) {
  for (int64_t m = 0; m < rows; m += 2)
    join_rows(from + m * n, m + 1 < rows ? from + (m + 1) * n : nullptr, n, room + m / 2 * n);
  return room;
}

#else

LAMINA_FLATTEN LAMINA_NOINLINE void prepare_row(const Numbers& from, int64_t n, Dtype precision, Word* to) {
  load_operands(from, n, precision, to);
}
LAMINA_FLATTEN LAMINA_NOINLINE void prepare_panel(const float* from, int64_t n, Dtype precision, Word* to) {
  round_row(from, n * kPanel, precision, to);
}
LAMINA_INLINE const Word* prepare_rows(const float* from, int64_t, int64_t, Word*) { return from; }

#endif

}  // namespace lamina::LAMINA_ISA_NAMESPACE

// Operands of the products of attention as words (words.h). A row of a head, a query or a key, is wanted in two forms:
//
//   along    for sums over its own numbers: words of neighbours in the row    (rows, along_width)
//   across   for sums over rows: words of rows that follow each other         (words of rows, padded D)
//
// In f32 they are one and the same. Probabilities and gradients of scores are made for kLanes queries at a time and
// become words then: `joined` along the keys, `store_by_query` along the queries.
#pragma once

#include "kernels/cpu/gemm_operands.h"

namespace lamina::LAMINA_ISA_NAMESPACE {

LAMINA_INLINE int64_t padded(int64_t D) { return ceil_div(D, kLanes) * kLanes; }
LAMINA_INLINE int64_t along_width(int64_t D) { return padded(words_of(D)); }
// As many rows as need memory of their own for the form `along`, where both are wanted.
LAMINA_INLINE constexpr int64_t own_rows(int64_t rows) { return kWordsAreFloats ? 0 : rows; }

struct Prepared {
  const Word* along;
  bool finite;  // no infinity, no NaN
};

#if defined(LAMINA_ARITHMETIC_F32)

// dst (rows, width) = factor * src, zero from D to width. False where an element is infinite or NaN.
LAMINA_NOINLINE bool copy_rows(const Operand& src, int64_t ld, int64_t rows, int64_t D, float factor, float* dst) {
  const int64_t width = padded(D);
  Vec check = zero();
  for (int64_t r = 0; r < rows; ++r) {
    float* to = dst + r * width;
    const float* from = src.from(r * ld).read(D, to);
    for_lanes(0, D, [&](int64_t d, auto lanes) {
      const Vec v = mul(lanes.load(from + d), broadcast(factor));
      check = fma(v, zero(), check);  // 0 while all is finite, then NaN
      store(to + d, v);
    });
  }
  return !any(is_nan(check));
}

LAMINA_INLINE void rows_along(const Operand& src, int64_t ld, int64_t rows, int64_t D, float factor, Word* to) {
  copy_rows(src, ld, rows, D, factor, to);
}
LAMINA_INLINE bool rows_across(const Operand& src, int64_t ld, int64_t rows, int64_t D, Word*, Word* to) {
  return copy_rows(src, ld, rows, D, 1.0f, to);
}
LAMINA_INLINE Prepared rows_both(const Operand& src, int64_t ld, int64_t rows, int64_t D, float factor, Word*,
                                 Word* across) {
  const bool finite = copy_rows(src, ld, rows, D, factor, across);
  return {across, finite};
}

LAMINA_INLINE Vec joined(const Vec (&keys)[1]) { return keys[0]; }
LAMINA_INLINE void store_by_query(const Vec (&keys)[1], int64_t, Word* to) { store(to, keys[0]); }
LAMINA_INLINE Vec only_seen(Vec v, const bool (&)[1]) { return v; }

#else

// Operands of 16 bits take no factor: it would round them again.
LAMINA_INLINE void rows_along(const Operand& src, int64_t ld, int64_t rows, int64_t D, float, Word* to) {
  for (int64_t r = 0; r < rows; ++r) prepare_row(src.numbers.from(r * ld), D, src.precision, to + r * along_width(D));
}

// A row of bf16 where it lies, or made in `room`.
LAMINA_INLINE const uint16_t* halves_of(const Operand& row, int64_t D, Word* room) {
  if (!row.numbers.wide()) return row.numbers.halves();
  prepare_row(row.numbers, D, row.precision, room);
  return reinterpret_cast<const uint16_t*>(room);
}

LAMINA_INLINE Int load_halves_n(const uint16_t* from, int64_t n) {
  uint16_t rest[kLanes] = {};
  __builtin_memcpy(rest, from, static_cast<uint64_t>(n) * sizeof(uint16_t));
  return load_16(rest);
}

// Words of two rows, zero from D to its padding. `second` may be null: zero. `check` stays 0 while all is finite.
LAMINA_INLINE Vec join_halves(const uint16_t* first, const uint16_t* second, int64_t D, Vec check, Word* to) {
  for (int64_t d = 0; d < D; d += kLanes) {
    const bool whole = d + kLanes <= D;
    const Int low = whole ? load_16(first + d) : load_halves_n(first + d, D - d);
    Int high = broadcast_int(0);
    if (second != nullptr) high = whole ? load_16(second + d) : load_halves_n(second + d, D - d);
    high = shift_left<16>(high);
    check = fma(from_bits(shift_left<16>(low)), zero(), check);
    check = fma(from_bits(high), zero(), check);
    store(to + d, add(low, high));
  }
  return check;
}

// `room`: for two rows.
LAMINA_FLATTEN LAMINA_NOINLINE bool rows_across(const Operand& src, int64_t ld, int64_t rows, int64_t D, Word* room,
                                                Word* to) {
  Vec check = zero();
  for (int64_t r = 0; r < rows; r += 2) {
    const uint16_t* first = halves_of(src.from(r * ld), D, room);
    const uint16_t* second = r + 1 < rows ? halves_of(src.from((r + 1) * ld), D, room + along_width(D)) : nullptr;
    check = join_halves(first, second, D, check, to + r / 2 * padded(D));
  }
  return !any(is_nan(check));
}

// `along`: for all rows.
LAMINA_INLINE Prepared rows_both(const Operand& src, int64_t ld, int64_t rows, int64_t D, float factor, Word* along,
                                 Word* across) {
  rows_along(src, ld, rows, D, factor, along);
  const Operand made{{along, Dtype::bf16}, Dtype::bf16};
  return {along, rows_across(made, 2 * along_width(D), rows, D, nullptr, across)};
}

// kLanes queries of two keys.
LAMINA_INLINE Int joined(const Vec (&keys)[2]) { return pairs_across(keys[0], keys[1]); }
// The same, a row for each key, `ld` words apart, of pairs of queries.
LAMINA_INLINE void store_by_query(const Vec (&keys)[2], int64_t ld, Word* to) {
  store_parts(pairs_along(keys[0], keys[1]), to, to + ld);
}
LAMINA_INLINE Int only_seen(Int v, const bool (&seen)[2]) {
  return bit_and(v, broadcast_int((seen[0] ? 0x0000FFFFu : 0u) | (seen[1] ? 0xFFFF0000u : 0u)));
}

#endif

}  // namespace lamina::LAMINA_ISA_NAMESPACE

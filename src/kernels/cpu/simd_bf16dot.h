// Pairs of bf16 in 32-bit lanes, for the arithmetic bf16dot: vdpbf16ps, or what it does by plain operations. The
// instruction adds the product of the upper halves first and then that of the lower ones, each sum rounded once to
// nearest; subnormal numbers are zero to it, as they are to threads of the team.
#pragma once

#include "kernels/cpu/simd.h"

namespace lamina::LAMINA_ISA_NAMESPACE {

#if defined(LAMINA_ISA_AVX512)

LAMINA_INLINE Vec dot_pairs(Int x, Int v, Vec sum) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(v));
}

// Neighbours of a row, 2 * kLanes of them, two and two.
LAMINA_INLINE Int pairs_along(Vec first, Vec second) {
  return reinterpret_cast<Int>(_mm512_cvtne2ps_pbh(second, first));
}

// Lane by lane, `low` in the lower halves.
LAMINA_INLINE Int pairs_across(Vec low, Vec high) {
  const Int order = add(mul(lane_numbers(), broadcast_int(0x10001u)), broadcast_int(0x100000u));  // i, 16 + i
  return _mm512_permutexvar_epi16(order, pairs_along(low, high));
}

// The first half of the lanes and the second one.
LAMINA_INLINE void store_parts(Int v, uint32_t* first, uint32_t* second) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(first), _mm512_castsi512_si256(v));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(second), _mm512_extracti64x4_epi64(v, 1));
}

#else

typedef double Doubles __attribute__((vector_size(8 * kLanes)));

// a * b is exact in double, and a sum that was rounded there rounds to the same float.
LAMINA_INLINE Vec add_product(Vec a, Vec b, Vec c) {
  const Doubles product = __builtin_convertvector(a, Doubles) * __builtin_convertvector(b, Doubles);
  return __builtin_convertvector(product + __builtin_convertvector(c, Doubles), Vec);
}
LAMINA_INLINE Vec lower_half(Int v) { return from_bits(shift_left<16>(v)); }
LAMINA_INLINE Vec upper_half(Int v) { return from_bits(bit_and(v, broadcast_int(0xFFFF0000u))); }
LAMINA_INLINE Vec dot_pairs(Int x, Int v, Vec sum) {
  sum = add_product(upper_half(x), upper_half(v), sum);
  return add_product(lower_half(x), lower_half(v), sum);
}

LAMINA_INLINE Int pairs_along(Vec first, Vec second) {
  uint16_t halves[2 * kLanes];
  store_bf16(halves, first);
  store_bf16(halves + kLanes, second);
  Int pairs;
  __builtin_memcpy(&pairs, halves, sizeof(pairs));
  return pairs;
}

LAMINA_INLINE Int pairs_across(Vec low, Vec high) { return bf16_bits(low) | shift_left<16>(bf16_bits(high)); }

LAMINA_INLINE void store_parts(Int v, uint32_t* first, uint32_t* second) {
  uint32_t words[kLanes];
  store(words, v);
  __builtin_memcpy(first, words, sizeof(words) / 2);
  __builtin_memcpy(second, words + kLanes / 2, sizeof(words) / 2);
}

#endif

}  // namespace lamina::LAMINA_ISA_NAMESPACE

// The basic functions of simd.h for AVX2 with FMA: 8 lanes.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace lamina::LAMINA_ISA_NAMESPACE {

using Vec = __m256;
using Int = __m256i;
using Mask = __m256;  // all bits of a lane, or none
constexpr int kLanes = 8;

LAMINA_INLINE Vec load(const float* p) { return _mm256_loadu_ps(p); }
LAMINA_INLINE Int load(const uint32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
LAMINA_INLINE void store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
LAMINA_INLINE void store(uint32_t* p, Int v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }
LAMINA_INLINE Vec zero() { return _mm256_setzero_ps(); }
LAMINA_INLINE Vec broadcast(float x) { return _mm256_set1_ps(x); }
LAMINA_INLINE Int broadcast_int(uint32_t x) { return _mm256_set1_epi32(static_cast<int>(x)); }
LAMINA_INLINE Int lane_numbers() { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }

LAMINA_INLINE Vec from_bits(Int v) { return _mm256_castsi256_ps(v); }
LAMINA_INLINE Int to_bits(Vec v) { return _mm256_castps_si256(v); }
LAMINA_INLINE Vec to_float(Int v) { return _mm256_cvtepi32_ps(v); }
LAMINA_INLINE Int truncate(Vec v) { return _mm256_cvttps_epi32(v); }

// Lanes below n, for any n.
LAMINA_INLINE Mask first_lanes(int64_t n) {
  const int count = static_cast<int>(n < 0 ? 0 : n > kLanes ? kLanes : n);
  return from_bits(_mm256_cmpgt_epi32(_mm256_set1_epi32(count), lane_numbers()));
}
LAMINA_INLINE Vec load_n(const float* p, int64_t n) { return _mm256_maskload_ps(p, to_bits(first_lanes(n))); }
LAMINA_INLINE void store_n(float* p, Vec v, int64_t n) { _mm256_maskstore_ps(p, to_bits(first_lanes(n)), v); }

LAMINA_INLINE Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
LAMINA_INLINE Vec sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
LAMINA_INLINE Vec mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
LAMINA_INLINE Vec div(Vec a, Vec b) { return _mm256_div_ps(a, b); }
LAMINA_INLINE Vec sqrt(Vec a) { return _mm256_sqrt_ps(a); }
LAMINA_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
LAMINA_INLINE Vec fnma(Vec a, Vec b, Vec c) { return _mm256_fnmadd_ps(a, b, c); }

LAMINA_INLINE Int add(Int a, Int b) { return _mm256_add_epi32(a, b); }
LAMINA_INLINE Int sub(Int a, Int b) { return _mm256_sub_epi32(a, b); }
LAMINA_INLINE Int mul(Int a, Int b) { return _mm256_mullo_epi32(a, b); }
LAMINA_INLINE Int bit_xor(Int a, Int b) { return _mm256_xor_si256(a, b); }
LAMINA_INLINE Int bit_and(Int a, Int b) { return _mm256_and_si256(a, b); }
template <int k>
LAMINA_INLINE Int shift_left(Int a) {
  return _mm256_slli_epi32(a, k);
}
template <int k>
LAMINA_INLINE Int shift_right(Int a) {
  return _mm256_srli_epi32(a, k);
}

LAMINA_INLINE Mask less(Vec a, Vec b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
LAMINA_INLINE Mask less_equal(Vec a, Vec b) { return _mm256_cmp_ps(a, b, _CMP_LE_OQ); }
LAMINA_INLINE Mask equal(Vec a, Vec b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
LAMINA_INLINE Mask is_nan(Vec a) { return _mm256_cmp_ps(a, a, _CMP_UNORD_Q); }
LAMINA_INLINE Mask less_unsigned(Int a, Int b) {
  const Int sign = _mm256_set1_epi32(INT32_MIN);
  return from_bits(_mm256_cmpgt_epi32(_mm256_xor_si256(b, sign), _mm256_xor_si256(a, sign)));
}
LAMINA_INLINE Mask mask_and(Mask a, Mask b) { return _mm256_and_ps(a, b); }
LAMINA_INLINE Mask mask_or(Mask a, Mask b) { return _mm256_or_ps(a, b); }
LAMINA_INLINE Mask mask_not(Mask a) { return _mm256_xor_ps(a, from_bits(_mm256_set1_epi32(-1))); }
LAMINA_INLINE bool any(Mask a) { return _mm256_movemask_ps(a) != 0; }
LAMINA_INLINE Vec select(Mask m, Vec a, Vec b) { return _mm256_blendv_ps(b, a, m); }
LAMINA_INLINE Int select(Mask m, Int a, Int b) { return _mm256_blendv_epi8(b, a, to_bits(m)); }

// The instructions give their second operand where one is NaN.
LAMINA_INLINE Vec greater_or_second(Vec a, Vec b) { return _mm256_max_ps(a, b); }
LAMINA_INLINE Vec lesser_or_second(Vec a, Vec b) { return _mm256_min_ps(a, b); }
LAMINA_INLINE Vec max(Vec a, Vec b) { return select(is_nan(a), a, _mm256_max_ps(a, b)); }
LAMINA_INLINE Vec min(Vec a, Vec b) { return select(is_nan(a), a, _mm256_min_ps(a, b)); }
LAMINA_INLINE Vec abs(Vec a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
LAMINA_INLINE Vec copy_sign(Vec magnitude, Vec sign) {
  const Vec bit = _mm256_set1_ps(-0.0f);
  return _mm256_or_ps(_mm256_andnot_ps(bit, magnitude), _mm256_and_ps(bit, sign));
}

// In two factors, so that each is a normal number.
LAMINA_INLINE Vec scale_by_power(Vec p, Vec n) {
  const Int whole = _mm256_cvtps_epi32(n);
  const Int half = _mm256_srai_epi32(whole, 1);
  const Int bias = _mm256_set1_epi32(127);
  const Vec first = from_bits(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
  const Vec second = from_bits(_mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, half), bias), 23));
  return mul(mul(p, first), second);
}

LAMINA_INLINE Int load_16(const uint16_t* p) {
  return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
LAMINA_INLINE void store_16(uint16_t* p, Int v) {
  const Int pairs = _mm256_permute4x64_epi64(_mm256_packus_epi32(v, v), 0xD8);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(pairs));
}
LAMINA_INLINE Vec load_f16(const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
LAMINA_INLINE void store_f16(uint16_t* p, Vec v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
LAMINA_INLINE Vec round_f16(Vec v) { return _mm256_cvtph_ps(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT)); }

LAMINA_INLINE float horizontal_sum(Vec v) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
LAMINA_INLINE float horizontal_max(Vec v) {
  v = max(v, _mm256_permute2f128_ps(v, v, 1));
  v = max(v, _mm256_permute_ps(v, 0x4E));
  return _mm256_cvtss_f32(max(v, _mm256_permute_ps(v, 0xB1)));
}

LAMINA_INLINE void transpose(Vec (&r)[kLanes]) {
  Vec a[8], b[8];
  LAMINA_UNROLL for (int i = 0; i < 4; ++i) {
    a[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    a[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  LAMINA_UNROLL for (int i = 0; i < 2; ++i) {
    b[4 * i] = _mm256_shuffle_ps(a[4 * i], a[4 * i + 2], 0x44);
    b[4 * i + 1] = _mm256_shuffle_ps(a[4 * i], a[4 * i + 2], 0xEE);
    b[4 * i + 2] = _mm256_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0x44);
    b[4 * i + 3] = _mm256_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0xEE);
  }
  LAMINA_UNROLL for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
    r[i + 4] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
  }
}

}  // namespace lamina::LAMINA_ISA_NAMESPACE

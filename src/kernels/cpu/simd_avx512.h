// The basic functions of simd.h for AVX-512 (F, BW, DQ, VL): 16 lanes.
#pragma once

#include <cstdint>

// GCC 12 builds its own unmasked intrinsics on a deliberately undefined register and then warns of it.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

namespace lamina::LAMINA_ISA_NAMESPACE {

using Vec = __m512;
using Int = __m512i;
using Mask = __mmask16;
constexpr int kLanes = 16;

LAMINA_INLINE Vec load(const float* p) { return _mm512_loadu_ps(p); }
LAMINA_INLINE Int load(const uint32_t* p) { return _mm512_loadu_si512(p); }
LAMINA_INLINE void store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
LAMINA_INLINE void store(uint32_t* p, Int v) { _mm512_storeu_si512(p, v); }
LAMINA_INLINE Vec zero() { return _mm512_setzero_ps(); }
LAMINA_INLINE Vec broadcast(float x) { return _mm512_set1_ps(x); }
LAMINA_INLINE Int broadcast_int(uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); }
LAMINA_INLINE Int lane_numbers() { return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }

LAMINA_INLINE Vec from_bits(Int v) { return _mm512_castsi512_ps(v); }
LAMINA_INLINE Int to_bits(Vec v) { return _mm512_castps_si512(v); }
LAMINA_INLINE Vec to_float(Int v) { return _mm512_cvtepi32_ps(v); }
LAMINA_INLINE Int truncate(Vec v) { return _mm512_cvttps_epi32(v); }

// Lanes below n, for any n.
LAMINA_INLINE Mask first_lanes(int64_t n) {
  const int count = static_cast<int>(n < 0 ? 0 : n > kLanes ? kLanes : n);
  return static_cast<Mask>((1u << count) - 1u);
}
LAMINA_INLINE Vec load_n(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
LAMINA_INLINE void store_n(float* p, Vec v, int64_t n) { _mm512_mask_storeu_ps(p, first_lanes(n), v); }

LAMINA_INLINE Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
LAMINA_INLINE Vec sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
LAMINA_INLINE Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
LAMINA_INLINE Vec div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
LAMINA_INLINE Vec sqrt(Vec a) { return _mm512_sqrt_ps(a); }
LAMINA_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
LAMINA_INLINE Vec fnma(Vec a, Vec b, Vec c) { return _mm512_fnmadd_ps(a, b, c); }

LAMINA_INLINE Int add(Int a, Int b) { return _mm512_add_epi32(a, b); }
LAMINA_INLINE Int sub(Int a, Int b) { return _mm512_sub_epi32(a, b); }
LAMINA_INLINE Int mul(Int a, Int b) { return _mm512_mullo_epi32(a, b); }
LAMINA_INLINE Int bit_xor(Int a, Int b) { return _mm512_xor_si512(a, b); }
LAMINA_INLINE Int bit_and(Int a, Int b) { return _mm512_and_si512(a, b); }
template <int k>
LAMINA_INLINE Int shift_left(Int a) {
  return _mm512_slli_epi32(a, k);
}
template <int k>
LAMINA_INLINE Int shift_right(Int a) {
  return _mm512_srli_epi32(a, k);
}

LAMINA_INLINE Mask less(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
LAMINA_INLINE Mask less_equal(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
LAMINA_INLINE Mask equal(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
LAMINA_INLINE Mask is_nan(Vec a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
LAMINA_INLINE Mask less_unsigned(Int a, Int b) { return _mm512_cmplt_epu32_mask(a, b); }
LAMINA_INLINE Mask mask_and(Mask a, Mask b) { return static_cast<Mask>(a & b); }
LAMINA_INLINE Mask mask_or(Mask a, Mask b) { return static_cast<Mask>(a | b); }
LAMINA_INLINE Mask mask_not(Mask a) { return static_cast<Mask>(~a); }
LAMINA_INLINE bool any(Mask a) { return a != 0; }
LAMINA_INLINE Vec select(Mask m, Vec a, Vec b) { return _mm512_mask_blend_ps(m, b, a); }
LAMINA_INLINE Int select(Mask m, Int a, Int b) { return _mm512_mask_blend_epi32(m, b, a); }

// The instructions give their second operand where one is NaN.
LAMINA_INLINE Vec greater_or_second(Vec a, Vec b) { return _mm512_max_ps(a, b); }
LAMINA_INLINE Vec lesser_or_second(Vec a, Vec b) { return _mm512_min_ps(a, b); }
LAMINA_INLINE Vec max(Vec a, Vec b) { return select(is_nan(a), a, _mm512_max_ps(a, b)); }
LAMINA_INLINE Vec min(Vec a, Vec b) { return select(is_nan(a), a, _mm512_min_ps(a, b)); }
LAMINA_INLINE Vec abs(Vec a) { return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a); }
LAMINA_INLINE Vec copy_sign(Vec magnitude, Vec sign) {
  const Vec bit = _mm512_set1_ps(-0.0f);
  return _mm512_or_ps(_mm512_andnot_ps(bit, magnitude), _mm512_and_ps(bit, sign));
}

LAMINA_INLINE Vec scale_by_power(Vec p, Vec n) { return _mm512_scalef_ps(p, n); }

LAMINA_INLINE Int load_16(const uint16_t* p) {
  return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
LAMINA_INLINE void store_16(uint16_t* p, Int v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(v));
}
LAMINA_INLINE Vec load_f16(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
LAMINA_INLINE void store_f16(uint16_t* p, Vec v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
LAMINA_INLINE Vec round_f16(Vec v) { return _mm512_cvtph_ps(_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT)); }

LAMINA_INLINE float horizontal_sum(Vec v) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
LAMINA_INLINE float horizontal_max(Vec v) {
  v = max(v, _mm512_shuffle_f32x4(v, v, 0x4E));
  v = max(v, _mm512_shuffle_f32x4(v, v, 0xB1));
  v = max(v, _mm512_permute_ps(v, 0x4E));
  return _mm512_cvtss_f32(max(v, _mm512_permute_ps(v, 0xB1)));
}

// 4x4 blocks within the 128-bit quarters first, then the quarters as a 4x4 matrix.
LAMINA_INLINE void transpose(Vec (&r)[kLanes]) {
  Vec a[16], b[16];
  LAMINA_UNROLL for (int i = 0; i < 8; ++i) {
    a[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    a[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  LAMINA_UNROLL for (int i = 0; i < 4; ++i) {
    b[4 * i] = _mm512_shuffle_ps(a[4 * i], a[4 * i + 2], 0x44);
    b[4 * i + 1] = _mm512_shuffle_ps(a[4 * i], a[4 * i + 2], 0xEE);
    b[4 * i + 2] = _mm512_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0x44);
    b[4 * i + 3] = _mm512_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0xEE);
  }
  LAMINA_UNROLL for (int i = 0; i < 4; ++i) {
    const Vec low02 = _mm512_shuffle_f32x4(b[i], b[i + 4], 0x88);
    const Vec low13 = _mm512_shuffle_f32x4(b[i], b[i + 4], 0xDD);
    const Vec high02 = _mm512_shuffle_f32x4(b[i + 8], b[i + 12], 0x88);
    const Vec high13 = _mm512_shuffle_f32x4(b[i + 8], b[i + 12], 0xDD);
    r[i] = _mm512_shuffle_f32x4(low02, high02, 0x88);
    r[i + 4] = _mm512_shuffle_f32x4(low13, high13, 0x88);
    r[i + 8] = _mm512_shuffle_f32x4(low02, high02, 0xDD);
    r[i + 12] = _mm512_shuffle_f32x4(low13, high13, 0xDD);
  }
}

}  // namespace lamina::LAMINA_ISA_NAMESPACE

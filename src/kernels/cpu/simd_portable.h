// The basic functions of simd.h in the vector extension of GCC and Clang, for any machine: 16 lanes, which the compiler
// splits into whatever the machine has. fma is a product and a sum, each rounded: results differ from the other ISAs.
#pragma once

#include <cstdint>

#pragma GCC diagnostic ignored "-Wpsabi"  // no such vector crosses a function that is not inlined

namespace lamina::LAMINA_ISA_NAMESPACE {

constexpr int kLanes = 16;
typedef float Vec __attribute__((vector_size(64)));
typedef uint32_t Int __attribute__((vector_size(64)));
typedef int32_t Mask __attribute__((vector_size(64)));  // -1 or 0

LAMINA_INLINE Vec load(const float* p) {
  Vec v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}
LAMINA_INLINE Int load(const uint32_t* p) {
  Int v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}
LAMINA_INLINE void store(float* p, Vec v) { __builtin_memcpy(p, &v, sizeof(v)); }
LAMINA_INLINE void store(uint32_t* p, Int v) { __builtin_memcpy(p, &v, sizeof(v)); }
LAMINA_INLINE Vec zero() { return Vec{}; }
LAMINA_INLINE Vec broadcast(float x) { return Vec{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }
LAMINA_INLINE Int broadcast_int(uint32_t x) { return Int{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }
LAMINA_INLINE Int lane_numbers() { return Int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}; }

LAMINA_INLINE Vec from_bits(Int v) { return reinterpret_cast<Vec>(v); }
LAMINA_INLINE Int to_bits(Vec v) { return reinterpret_cast<Int>(v); }
LAMINA_INLINE Vec to_float(Int v) { return __builtin_convertvector(reinterpret_cast<Mask>(v), Vec); }
LAMINA_INLINE Int truncate(Vec v) { return reinterpret_cast<Int>(__builtin_convertvector(v, Mask)); }

// Lanes below n, for any n.
LAMINA_INLINE Mask first_lanes(int64_t n) {
  const uint32_t count = static_cast<uint32_t>(n < 0 ? 0 : n > kLanes ? kLanes : n);
  return lane_numbers() < broadcast_int(count);
}
LAMINA_INLINE Vec load_n(const float* p, int64_t n) {
  Vec v{};
  __builtin_memcpy(&v, p, static_cast<uint64_t>(n) * sizeof(float));
  return v;
}
LAMINA_INLINE void store_n(float* p, Vec v, int64_t n) {
  __builtin_memcpy(p, &v, static_cast<uint64_t>(n) * sizeof(float));
}

LAMINA_INLINE Vec add(Vec a, Vec b) { return a + b; }
LAMINA_INLINE Vec sub(Vec a, Vec b) { return a - b; }
LAMINA_INLINE Vec mul(Vec a, Vec b) { return a * b; }
LAMINA_INLINE Vec div(Vec a, Vec b) { return a / b; }
LAMINA_INLINE Vec sqrt(Vec a) {
  for (int i = 0; i < kLanes; ++i) a[i] = __builtin_sqrtf(a[i]);
  return a;
}
LAMINA_INLINE Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }
LAMINA_INLINE Vec fnma(Vec a, Vec b, Vec c) { return c - a * b; }

LAMINA_INLINE Int add(Int a, Int b) { return a + b; }
LAMINA_INLINE Int sub(Int a, Int b) { return a - b; }
LAMINA_INLINE Int mul(Int a, Int b) { return a * b; }
LAMINA_INLINE Int bit_xor(Int a, Int b) { return a ^ b; }
LAMINA_INLINE Int bit_and(Int a, Int b) { return a & b; }
template <int k>
LAMINA_INLINE Int shift_left(Int a) {
  return a << k;
}
template <int k>
LAMINA_INLINE Int shift_right(Int a) {
  return a >> k;
}

LAMINA_INLINE Mask less(Vec a, Vec b) { return a < b; }
LAMINA_INLINE Mask less_equal(Vec a, Vec b) { return a <= b; }
LAMINA_INLINE Mask equal(Vec a, Vec b) { return a == b; }
LAMINA_INLINE Mask is_nan(Vec a) { return a != a; }
LAMINA_INLINE Mask less_unsigned(Int a, Int b) { return a < b; }
LAMINA_INLINE Mask mask_and(Mask a, Mask b) { return a & b; }
LAMINA_INLINE Mask mask_or(Mask a, Mask b) { return a | b; }
LAMINA_INLINE Mask mask_not(Mask a) { return ~a; }
LAMINA_INLINE bool any(Mask a) {
  int32_t all = 0;
  for (int i = 0; i < kLanes; ++i) all |= a[i];
  return all != 0;
}
LAMINA_INLINE Int select(Mask m, Int a, Int b) {
  const Int bits = reinterpret_cast<Int>(m);
  return (a & bits) | (b & ~bits);
}
LAMINA_INLINE Vec select(Mask m, Vec a, Vec b) { return from_bits(select(m, to_bits(a), to_bits(b))); }

LAMINA_INLINE Vec greater_or_second(Vec a, Vec b) { return select(b < a, a, b); }
LAMINA_INLINE Vec lesser_or_second(Vec a, Vec b) { return select(a < b, a, b); }
LAMINA_INLINE Vec max(Vec a, Vec b) { return select(mask_or(b < a, is_nan(a)), a, b); }
LAMINA_INLINE Vec min(Vec a, Vec b) { return select(mask_or(a < b, is_nan(a)), a, b); }
LAMINA_INLINE Vec abs(Vec a) { return from_bits(to_bits(a) & broadcast_int(0x7FFFFFFFu)); }
LAMINA_INLINE Vec copy_sign(Vec magnitude, Vec sign) {
  const Int bit = broadcast_int(0x80000000u);
  return from_bits((to_bits(magnitude) & ~bit) | (to_bits(sign) & bit));
}

// In two factors, so that each is a normal number. Rounding by the magic number keeps NaN away from the conversion.
LAMINA_INLINE Vec scale_by_power(Vec p, Vec n) {
  const Vec magic = broadcast(0x1.8p23f);
  const Mask whole = reinterpret_cast<Mask>(to_bits(n + magic) - to_bits(magic));
  const Mask half = whole >> 1;
  const Vec first = from_bits((reinterpret_cast<Int>(half) + broadcast_int(127)) << 23);
  const Vec second = from_bits((reinterpret_cast<Int>(whole - half) + broadcast_int(127)) << 23);
  return p * first * second;
}

LAMINA_INLINE Int load_16(const uint16_t* p) {
  Int v{};
  for (int i = 0; i < kLanes; ++i) v[i] = p[i];
  return v;
}
LAMINA_INLINE void store_16(uint16_t* p, Int v) {
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<uint16_t>(v[i]);
}
// By integers, which no flushing of subnormals touches.
LAMINA_INLINE Vec load_f16(const uint16_t* p) {
  const Int half = load_16(p);
  const Int magnitude = half & broadcast_int(0x7FFFu);
  const Int shifted = magnitude << 13;
  Int bits = select(magnitude < broadcast_int(0x7C00u), shifted + broadcast_int(112u << 23),
                    shifted | broadcast_int(0x7F800000u));
  bits = select(magnitude < broadcast_int(0x400u), to_bits(to_float(magnitude) * broadcast(0x1.0p-24f)), bits);
  return from_bits(bits | (half & broadcast_int(0x8000u)) << 16);
}
LAMINA_INLINE void store_f16(uint16_t* p, Vec v) {
  const Int bits = to_bits(v);
  const Int magnitude = bits & broadcast_int(0x7FFFFFFFu);
  const Int odd = (magnitude >> 13) & broadcast_int(1);
  Int half = (magnitude + broadcast_int(0xFFFu) + odd - broadcast_int(112u << 23)) >> 13;
  const Int tiny = to_bits(from_bits(magnitude) + broadcast(0.5f)) - to_bits(broadcast(0.5f));  // in units of 2^-24
  half = select(magnitude < broadcast_int(113u << 23), tiny, half);
  half = select(magnitude < broadcast_int(0x477FF000u), half, broadcast_int(0x7C00u));  // 65520
  const Int nan = broadcast_int(0x7E00u) | ((magnitude >> 13) & broadcast_int(0x3FFu));
  half = select(magnitude < broadcast_int(0x7F800001u), half, nan);
  store_16(p, half | ((bits >> 16) & broadcast_int(0x8000u)));
}
LAMINA_INLINE Vec round_f16(Vec v) {
  uint16_t half[kLanes];
  store_f16(half, v);
  return load_f16(half);
}

LAMINA_INLINE float horizontal_sum(Vec v) {
  LAMINA_UNROLL for (int half = kLanes / 2; half > 0; half /= 2) {
    LAMINA_UNROLL for (int i = 0; i < half; ++i) v[i] += v[i + half];
  }
  return v[0];
}
LAMINA_INLINE float horizontal_max(Vec v) {
  float best = v[0];
  LAMINA_UNROLL for (int i = 1; i < kLanes; ++i) {
    if (v[i] > best || v[i] != v[i]) best = v[i];  // a NaN stays: no comparison with it holds
  }
  return best;
}

LAMINA_INLINE void transpose(Vec (&r)[kLanes]) {
  float block[kLanes][kLanes];
  for (int i = 0; i < kLanes; ++i) store(block[i], r[i]);
  for (int i = 0; i < kLanes; ++i) {
    for (int j = 0; j < kLanes; ++j) r[i][j] = block[j][i];
  }
}

}  // namespace lamina::LAMINA_ISA_NAMESPACE

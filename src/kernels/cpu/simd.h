// A thin vector type, one per ISA, for the sources in this folder, which are compiled once per ISA. The build sets one
// of LAMINA_ISA_PORTABLE, LAMINA_ISA_AVX2 and LAMINA_ISA_AVX512, and the namespace to put everything into.
//
//   Vec   kLanes floats          8 lanes on AVX2, 16 on AVX-512 and portable, so that code for 16 lanes runs everywhere
//   Int   kLanes uint32          arithmetic wraps
//   Mask  kLanes booleans
//
// Everything is static and always inlined: an object of one ISA exports no helper that the linker could hand to
// another. The basic functions are in simd_<isa>.h, each with the same set:
//
//   load store load_n store_n      unaligned; _n touches the first n lanes only, 0 <= n <= kLanes, others load as 0
//   zero broadcast lane_numbers
//   add sub mul div sqrt           correctly rounded
//   fma(a, b, c)                   a*b + c, rounded once; portable: product rounded, then sum rounded
//   fnma(a, b, c)                  c - a*b, likewise
//   max min                        NaN where an operand is NaN
//   greater_or_second              the greater one, the second operand where one is NaN; likewise lesser_or_second
//   abs copy_sign(magnitude, sign)
//   less less_equal equal is_nan   Mask; less_unsigned for Int
//   mask_and mask_or mask_not first_lanes(n) any(mask)
//   select(mask, a, b)             a where the mask is set
//   to_bits from_bits              the same bits; to_float(Int as signed), truncate(Vec to signed Int)
//   add sub mul bit_xor bit_and shift_left<k> shift_right<k>   on Int
//   horizontal_sum horizontal_max  fixed order: lanes i and i + w/2, then halves of that, down to one lane
//   scale_by_power(p, n)           p * 2^n for an integral n in [-200, 200]
//   load_16 store_16               kLanes uint16 as the low halves of an Int; store_16 wants the high halves to be zero
//   load_f16 store_f16             kLanes f16 in memory; rounded to nearest, ties to even
//   round_f16(v)                   through f16 and back
//   transpose(rows)                a kLanes x kLanes block in registers
//
// and the functions below are made of them.
#pragma once

#include <cstdint>

#define LAMINA_INLINE static inline __attribute__((always_inline))
#define LAMINA_NOINLINE static __attribute__((noinline, unused))
#define LAMINA_UNROLL _Pragma("GCC unroll 32")

#if defined(LAMINA_ISA_AVX512)
#include "kernels/cpu/simd_avx512.h"
#elif defined(LAMINA_ISA_AVX2)
#include "kernels/cpu/simd_avx2.h"
#elif defined(LAMINA_ISA_PORTABLE)
#include "kernels/cpu/simd_portable.h"
#else
#error "the build names the ISA"
#endif

namespace lamina::LAMINA_ISA_NAMESPACE {

// An upper or lower bound that lets NaN through.
LAMINA_INLINE Vec at_least(Vec x, float limit) { return greater_or_second(broadcast(limit), x); }
LAMINA_INLINE Vec at_most(Vec x, float limit) { return lesser_or_second(broadcast(limit), x); }

// fp32 to bf16 and back: to nearest, ties to even; a NaN stays one.
LAMINA_INLINE Int bf16_bits(Vec x) {
  const Int bits = to_bits(x);
  const Int high = shift_right<16>(bits);
  const Int rounded = add(add(bits, broadcast_int(0x7FFFu)), bit_and(high, broadcast_int(1)));
  const Int quiet = shift_right<16>(to_bits(add(x, x)));  // a NaN with the quiet bit set, its payload kept
  return select(is_nan(x), quiet, shift_right<16>(rounded));
}
LAMINA_INLINE Vec load_bf16(const uint16_t* p) { return from_bits(shift_left<16>(load_16(p))); }
LAMINA_INLINE void store_bf16(uint16_t* p, Vec v) { store_16(p, bf16_bits(v)); }
LAMINA_INLINE Vec round_bf16(Vec v) { return from_bits(shift_left<16>(bf16_bits(v))); }

// e^x within 1 ulp, results below 2^-126 within one unit of 2^-149, or 0 where the thread flushes
// subnormals. 0 from -104 down, inf from 88.73 up, NaN for NaN.
//
// x = n ln 2 + r with |r| <= ln(2)/2; e^r = 1 + r + r^2 P(r), P of degree 4, minimax, relative error 3.2e-9.
LAMINA_INLINE Vec exp(Vec x) {
  x = at_most(at_least(x, -104.0f), 89.0f);
  const Vec magic = broadcast(0x1.8p23f);  // adding it rounds to an integer
  const Vec n = sub(fma(x, broadcast(0x1.715476p0f), magic), magic);
  const Vec r = fnma(n, broadcast(0x1.7f7d1cp-20f), fnma(n, broadcast(0x1.62e4p-1f), x));
  Vec p = broadcast(0x1.6a2242p-10f);
  p = fma(p, r, broadcast(0x1.123b0ep-7f));
  p = fma(p, r, broadcast(0x1.5558f8p-5f));
  p = fma(p, r, broadcast(0x1.555490p-3f));
  p = fma(p, r, broadcast(0x1.fffffcp-2f));
  p = add(fma(mul(r, r), p, r), broadcast(1.0f));
  return scale_by_power(p, n);
}

// tanh(x) within 1.4 ulp; ±1 at ±inf, NaN for NaN, tanh(-x) = -tanh(x) exactly.
//
// Below 0.625: x + x^3 P(x^2), relative error 4.4e-9; above: 1 - 2/(e^(2|x|) + 1).
LAMINA_INLINE Vec tanh(Vec x) {
  const Vec one = broadcast(1.0f);
  const Vec z = abs(x);
  const Vec s = mul(x, x);
  Vec p = broadcast(-0x1.75e1cep-8f);
  p = fma(p, s, broadcast(0x1.52269cp-6f));
  p = fma(p, s, broadcast(-0x1.b83c5ap-5f));
  p = fma(p, s, broadcast(0x1.110726p-3f));
  p = fma(p, s, broadcast(-0x1.555532p-2f));
  const Vec near_zero = fma(mul(z, s), p, z);
  const Vec far = sub(one, div(broadcast(2.0f), add(exp(add(z, z)), one)));
  return copy_sign(select(less(z, broadcast(0.625f)), near_zero, far), x);
}

// erf(x) within 1.2 ulp; ±1 from ±3.93 on, NaN for NaN, erf(-x) = -erf(x) exactly.
//
// Below 0.875: x + x P(x^2), relative error 8.5e-9; above: 1 - e^-(x + x Q(x)), Q of degree 6, error 3.2e-9.
LAMINA_INLINE Vec erf(Vec x) {
  const Vec z = at_most(abs(x), 4.0f);
  const Vec s = mul(z, z);
  Vec p = broadcast(-0x1.453ae8p-11f);
  p = fma(p, s, broadcast(0x1.49ca0ep-8f));
  p = fma(p, s, broadcast(-0x1.b6f38ep-6f));
  p = fma(p, s, broadcast(0x1.ce211ep-4f));
  p = fma(p, s, broadcast(-0x1.81270cp-2f));
  p = fma(p, s, broadcast(0x1.06eba6p-3f));
  const Vec near_zero = fma(z, p, z);
  Vec q = broadcast(-0x1.c35c0cp-13f);
  q = fma(q, z, broadcast(0x1.a6b934p-9f));
  q = fma(q, z, broadcast(-0x1.778f72p-6f));
  q = fma(q, z, broadcast(0x1.af5bbcp-4f));
  q = fma(q, z, broadcast(0x1.4577e8p-1f));
  q = fma(q, z, broadcast(0x1.07385ep-3f));
  const Vec far = sub(broadcast(1.0f), exp(sub(zero(), fma(z, q, z))));
  return copy_sign(select(less(z, broadcast(0.875f)), near_zero, far), x);
}

// The 32 uniform bits of the elements first, first+1, …: dropout_bits of base/rng.h, lane by lane.
LAMINA_INLINE Int mix32(Int x) {
  x = mul(bit_xor(x, shift_right<16>(x)), broadcast_int(0x7FEB352Du));
  x = mul(bit_xor(x, shift_right<15>(x)), broadcast_int(0x846CA68Bu));
  return bit_xor(x, shift_right<16>(x));
}
LAMINA_INLINE Int dropout_bits(uint64_t key, uint32_t first) {
  const Int element = add(lane_numbers(), broadcast_int(first + static_cast<uint32_t>(key)));
  return mix32(bit_xor(mix32(element), broadcast_int(static_cast<uint32_t>(key >> 32))));
}

}  // namespace lamina::LAMINA_ISA_NAMESPACE

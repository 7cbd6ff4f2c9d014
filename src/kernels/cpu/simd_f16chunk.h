// 2 * kLanes numbers of fp16 in the lanes of an Int, in the order of memory, for the arithmetic f16chunk: AVX512-FP16,
// or what it does by plain operations. Subnormal halves are numbers like all others, whatever a thread flushes.
#pragma once

#include "kernels/cpu/simd.h"

namespace lamina::LAMINA_ISA_NAMESPACE {

#if defined(LAMINA_ISA_AVX512)

// x * v + sum, rounded once.
LAMINA_INLINE Int fma_halves(Int x, Int v, Int sum) {
  return _mm512_castph_si512(_mm512_fmadd_ph(_mm512_castsi512_ph(x), _mm512_castsi512_ph(v), _mm512_castsi512_ph(sum)));
}

LAMINA_INLINE Vec first_halves(Int v) { return _mm512_cvtph_ps(_mm512_castsi512_si256(v)); }
LAMINA_INLINE Vec second_halves(Int v) { return _mm512_cvtph_ps(_mm512_extracti64x4_epi64(v, 1)); }

// Each number as fp16 in the lower half of its lane.
LAMINA_INLINE Int half_bits(Vec v) { return _mm512_cvtepu16_epi32(_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT)); }

#else

typedef double Doubles __attribute__((vector_size(8 * kLanes)));
typedef int64_t Longs __attribute__((vector_size(8 * kLanes)));

LAMINA_INLINE Vec halves_from(Int v, int first) {
  uint16_t halves[2 * kLanes];
  __builtin_memcpy(halves, &v, sizeof(v));
  return load_f16(halves + first);
}
LAMINA_INLINE Vec first_halves(Int v) { return halves_from(v, 0); }
LAMINA_INLINE Vec second_halves(Int v) { return halves_from(v, kLanes); }

// a * b + c in double, rounded to what fp16 holds but for its largest number. The product is exact. The sum may be
// rounded in double where one side is far below the other, but then it is not near a tie of fp16: one rounding is what
// remains.
LAMINA_INLINE Vec round_product(Vec a, Vec b, Vec c) {
  const Doubles x =
      __builtin_convertvector(a, Doubles) * __builtin_convertvector(b, Doubles) + __builtin_convertvector(c, Doubles);
  const Longs exponent = reinterpret_cast<Longs>(x) & (int64_t{0x7FF} << 52);
  const Longs least = Longs{} + (int64_t{1023 - 14} << 52);
  const Doubles magic = reinterpret_cast<Doubles>(exponent > least ? exponent : least) * 0x1.8p42;  // 2^52 * 1.5 units
  const Doubles rounded = (x + magic) - magic;
  return __builtin_convertvector(x - x == 0.0 ? rounded : x, Vec);
}

// Called, not inlined: tiles are made of hundreds of these, and compilers take minutes over that.
LAMINA_NOINLINE void add_products(const uint32_t* x, const uint32_t* v, uint32_t* sum) {
  uint16_t halves[2 * kLanes];
  const Int a = load(x), b = load(v), c = load(sum);
  store_f16(halves, round_product(first_halves(a), first_halves(b), first_halves(c)));
  store_f16(halves + kLanes, round_product(second_halves(a), second_halves(b), second_halves(c)));
  __builtin_memcpy(sum, halves, sizeof(halves));
}
LAMINA_INLINE Int fma_halves(Int x, Int v, Int sum) {
  uint32_t words[3][kLanes];
  store(words[0], x);
  store(words[1], v);
  store(words[2], sum);
  add_products(words[0], words[1], words[2]);
  return load(words[2]);
}

LAMINA_INLINE Int half_bits(Vec v) {
  uint16_t halves[kLanes];
  store_f16(halves, v);
  return load_16(halves);
}

#endif

}  // namespace lamina::LAMINA_ISA_NAMESPACE

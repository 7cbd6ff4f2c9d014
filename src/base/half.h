// 16-bit floating-point types in memory: bf16 (8 bits of significand, the range of fp32) and IEEE's f16 (11 bits,
// 2^-24 to 65504). Rounding is to nearest, ties to even; what is too large becomes infinite, a NaN stays a NaN.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/dtype.h"

namespace lamina {

inline bool is_16_bit(Dtype dtype) { return dtype == Dtype::bf16 || dtype == Dtype::f16; }

inline float from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
uint16_t to_bf16(float x);
float from_f16(uint16_t bits);
uint16_t to_f16(float x);

// Of one of the two types, `dtype`.
inline uint16_t to_16_bits(float x, Dtype dtype) { return dtype == Dtype::bf16 ? to_bf16(x) : to_f16(x); }
inline float from_16_bits(uint16_t bits, Dtype dtype) {
  return dtype == Dtype::bf16 ? from_bf16(bits) : from_f16(bits);
}

// The nearest value that `dtype` (bf16, f16 or f32) holds, rounded once from a double.
double round_to(double x, Dtype dtype);
inline float round_to(float x, Dtype dtype) {
  return dtype == Dtype::f32 ? x : static_cast<float>(round_to(static_cast<double>(x), dtype));
}

}  // namespace lamina

#include "base/half.h"

#include <algorithm>

#include "base/error.h"

namespace lamina {
namespace {

struct Format {
  int significand;   // bits, the hidden one included
  int least;         // exponent of the smallest normal number
  double too_large;  // from here on the nearest is infinite
};

Format format_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::bf16: return {8, -126, 0x1.FFp127};
    case Dtype::f16: return {11, -14, 65520.0};
    case Dtype::f32: return {24, -126, 0x1.FFFFFFp127};
    default: LAMINA_CHECK(false, "no rounding to {}", dtype_name(dtype));
  }
}

}  // namespace

double round_to(double x, Dtype dtype) {
  const Format f = format_of(dtype);
  if (!std::isfinite(x) || x == 0.0) return x;
  if (std::abs(x) >= f.too_large) return std::copysign(HUGE_VAL, x);
  const int exponent = std::max(std::ilogb(x), f.least);
  const double unit = std::ldexp(1.0, exponent - f.significand + 1);
  return std::copysign(std::nearbyint(x / unit) * unit, x);
}

uint16_t to_bf16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if (std::isnan(x)) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

float from_f16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7FFFu;
  if (magnitude >= 0x7C00u)  // infinities and NaN keep their payload
    return std::bit_cast<float>(sign | 0x7F800000u | (magnitude & 0x3FFu) << 13);
  if (magnitude >= 0x400u) return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
  const float subnormal = static_cast<float>(magnitude) * 0x1.0p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(subnormal));
}

uint16_t to_f16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  if (std::isnan(x)) return static_cast<uint16_t>(sign | 0x7E00u | (bits >> 13 & 0x3FFu));
  const double rounded = std::abs(round_to(static_cast<double>(x), Dtype::f16));
  if (std::isinf(rounded)) return static_cast<uint16_t>(sign | 0x7C00u);
  if (rounded < 0x1.0p-14) return static_cast<uint16_t>(sign | static_cast<uint16_t>(rounded * 0x1.0p24));
  const auto normal = std::bit_cast<uint32_t>(static_cast<float>(rounded));
  return static_cast<uint16_t>(sign | static_cast<uint16_t>((normal - (112u << 23)) >> 13));
}

}  // namespace lamina

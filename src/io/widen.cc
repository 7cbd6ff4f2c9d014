#include "io/widen.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/error.h"

namespace lamina {
namespace {

// sign 1, exponent 5 (bias 15), fraction 10  ->  sign 1, exponent 8 (bias 127), fraction 23. Payloads of NaN are kept.
uint32_t f32_bits_of_f16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half >> 15) << 31;
  const uint32_t exponent = half >> 10 & 31u;
  const uint32_t fraction = half & 1023u;
  if (exponent == 31) return sign | 0x7F800000u | fraction << 13;
  if (exponent > 0) return sign | (exponent + 112) << 23 | fraction << 13;
  // Zero and subnormal halves: fraction · 2^-24, which fp32 holds as a normal number.
  return sign | std::bit_cast<uint32_t>(static_cast<float>(fraction) * 0x1p-24f);
}

template <typename Convert>
void widen_16(std::span<const std::byte> bytes, float* out, Convert convert) {
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    uint16_t word;
    std::memcpy(&word, bytes.data() + i, 2);
    const uint32_t bits = convert(word);
    std::memcpy(out + i / 2, &bits, 4);
  }
}

}  // namespace

bool widens_exactly(std::string_view dtype) { return dtype == "F32" || dtype == "F16" || dtype == "BF16"; }

void widen(std::string_view dtype, std::span<const std::byte> bytes, float* out) {
  LAMINA_CHECK(widens_exactly(dtype), "dtype {}", dtype);
  if (dtype == "F32") {
    if (!bytes.empty()) std::memcpy(out, bytes.data(), bytes.size());
  } else if (dtype == "BF16") {
    widen_16(bytes, out, [](uint16_t word) { return static_cast<uint32_t>(word) << 16; });
  } else {
    widen_16(bytes, out, f32_bits_of_f16);
  }
}

}  // namespace lamina

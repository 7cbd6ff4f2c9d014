#include "io/widen.h"

#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "base/half.h"

namespace lamina {
namespace {

void widen_16(std::span<const std::byte> bytes, float* out, float (*convert)(uint16_t)) {
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    uint16_t word;
    std::memcpy(&word, bytes.data() + i, 2);
    const float value = convert(word);
    std::memcpy(out + i / 2, &value, 4);
  }
}

}  // namespace

bool widens_exactly(std::string_view dtype) { return dtype == "F32" || dtype == "F16" || dtype == "BF16"; }

void widen(std::string_view dtype, std::span<const std::byte> bytes, float* out) {
  LAMINA_CHECK(widens_exactly(dtype), "dtype {}", dtype);
  if (dtype == "F32") {
    if (!bytes.empty()) std::memcpy(out, bytes.data(), bytes.size());
  } else if (dtype == "BF16") {
    widen_16(bytes, out, from_bf16);
  } else {
    widen_16(bytes, out, from_f16);
  }
}

}  // namespace lamina

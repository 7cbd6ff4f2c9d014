// Floating-point bytes of a file as fp32, exactly: every f16 and bf16 value is an fp32 value.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace lamina {

// Whether `dtype` (as safetensors spells it) is F32, F16 or BF16: those that lose nothing.
bool widens_exactly(std::string_view dtype);

// out has as many elements as `bytes` holds of `dtype`. The bytes need no alignment.
void widen(std::string_view dtype, std::span<const std::byte> bytes, float* out);

}  // namespace lamina

// Element types of tensors in memory and in files.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace lamina {

enum class Dtype : uint8_t { f32, f64, bf16, f16, i32, i64, u8, u16, u32 };

int64_t dtype_bytes(Dtype dtype);
std::string_view dtype_name(Dtype dtype);  // "f32", "i32", …
std::optional<Dtype> parse_dtype(std::string_view name);

}  // namespace lamina

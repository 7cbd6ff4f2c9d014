// Little-endian numbers out of and into bytes, at any place, and texts out of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lamina {

template <typename T>
T read_le(std::span<const std::byte> bytes, size_t at) {  // at + sizeof(T) <= bytes.size()
  uint64_t value = 0;
  for (size_t i = sizeof(T); i-- > 0;) value = value << 8 | std::to_integer<uint64_t>(bytes[at + i]);
  return static_cast<T>(value);
}

inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <typename T>
void append_le(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i)
    out.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i) & 0xFF));
}

}  // namespace lamina

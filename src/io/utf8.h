// UTF-8, strictly: no surrogates, no overlong forms, nothing above U+10FFFF. The locale plays no part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lamina {

// The character at a place, or the ill-formed bytes there. `length` of ill-formed bytes is their maximal part as
// Unicode defines it (chapter 3.9): the bytes that could begin a character, at least one. They count as one U+FFFD.
struct Utf8Char {
  uint32_t code = 0;
  uint32_t length = 1;
  bool valid = false;
};

Utf8Char decode_utf8(std::string_view text, size_t at);  // at < text.size()

void append_utf8(std::string& out, uint32_t code);  // of a character: no surrogate, at most U+10FFFF

// What to do with ill-formed bytes: an error; the same with --invalid-utf8 as its hint, from commands that have the
// option; U+FFFD and a count.
enum class InvalidUtf8 { refuse, refuse_with_hint, replace };

inline constexpr size_t kNoFault = static_cast<size_t>(-1);

// Offset of the first ill-formed byte, or kNoFault.
size_t find_invalid_utf8(std::string_view text);

// Throws Error(invalid) that names the place, the offset of the first ill-formed byte (plus `base`) and its value.
void require_utf8(std::string_view text, const std::string& where, int64_t base = 0,
                  InvalidUtf8 invalid = InvalidUtf8::refuse);

// Each ill-formed part becomes U+FFFD; their number is added to `count`.
std::string replace_invalid_utf8(std::string_view text, int64_t& count);

}  // namespace lamina

#include "io/split.h"

#include <utf8proc.h>

#include <array>
#include <cstdint>

#include "io/utf8.h"

namespace lamina {
namespace {

enum class Kind : uint8_t { other, letter, number, space };

Kind kind_of_code(uint32_t code) {
  if (code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
      code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000)
    return Kind::space;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return Kind::letter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return Kind::number;
    default: return Kind::other;
  }
}

constexpr std::array<Kind, 128> ascii_kinds() {
  std::array<Kind, 128> kinds{};
  for (unsigned c = 0; c < 128; ++c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool number = c >= '0' && c <= '9';
    const bool space = c == ' ' || (c >= 9 && c <= 13);
    kinds[c] = letter ? Kind::letter : number ? Kind::number : space ? Kind::space : Kind::other;
  }
  return kinds;
}

constexpr std::array<Kind, 128> kAscii = ascii_kinds();

struct Step {
  Kind kind;
  uint32_t length;
};

inline Step step_at(std::string_view text, size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 128) return {kAscii[byte], 1};
  const Utf8Char next = decode_utf8(text, at);
  return {kind_of_code(next.code), next.length};
}

// Length of a contraction that begins here with its apostrophe, 0 for none.
size_t contraction(std::string_view text, size_t at) {
  const char first = at + 1 < text.size() ? text[at + 1] : '\0';
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  const char second = at + 2 < text.size() ? text[at + 2] : '\0';
  const bool three =
      (first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l');
  return three ? 3 : 0;
}

size_t run_end(std::string_view text, size_t at, Kind kind) {
  while (at < text.size()) {
    const Step step = step_at(text, at);
    if (step.kind != kind) break;
    at += step.length;
  }
  return at;
}

// A run of white space leaves its last character to what follows, unless it is that one character or the text ends.
size_t space_end(std::string_view text, size_t begin) {
  size_t at = begin, last = begin;
  while (at < text.size()) {
    const Step step = step_at(text, at);
    if (step.kind != Kind::space) break;
    last = at;
    at += step.length;
  }
  return at == text.size() || last == begin ? at : last;
}

}  // namespace

size_t piece_end(std::string_view text, size_t at) {
  if (text[at] == '\'')
    if (const size_t length = contraction(text, at); length > 0) return at + length;
  Step step = step_at(text, at);
  const size_t begin = at;
  if (text[at] == ' ' && at + 1 < text.size()) step = step_at(text, ++at);
  if (step.kind == Kind::space) return space_end(text, begin);
  return run_end(text, at + step.length, step.kind);
}

std::string unicode_version() { return utf8proc_unicode_version(); }

}  // namespace lamina

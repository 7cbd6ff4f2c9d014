#include "io/utf8.h"

#include <cstring>

#include "base/error.h"

namespace lamina {
namespace {

unsigned byte_at(std::string_view text, size_t at) { return static_cast<unsigned char>(text[at]); }

// What the first byte demands: the number of bytes and the range of the second one (Unicode, table 3-7).
struct Lead {
  uint32_t length;
  unsigned low, high;
};

Lead lead_of(unsigned byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte < 0xF0) return {3, byte == 0xE0 ? 0xA0u : 0x80u, byte == 0xED ? 0x9Fu : 0xBFu};
  if (byte < 0xF5) return {4, byte == 0xF0 ? 0x90u : 0x80u, byte == 0xF4 ? 0x8Fu : 0xBFu};
  return {0, 0, 0};
}

}  // namespace

Utf8Char decode_utf8(std::string_view text, size_t at) {
  const unsigned first = byte_at(text, at);
  const Lead lead = lead_of(first);
  if (lead.length == 1) return {first, 1, true};
  if (lead.length == 0) return {0, 1, false};
  uint32_t code = first & (0xFFu >> (lead.length + 1));
  for (uint32_t i = 1; i < lead.length; ++i) {
    if (at + i >= text.size()) return {0, i, false};
    const unsigned next = byte_at(text, at + i);
    if (next < (i == 1 ? lead.low : 0x80u) || next > (i == 1 ? lead.high : 0xBFu)) return {0, i, false};
    code = code << 6 | (next & 0x3Fu);
  }
  return {code, lead.length, true};
}

void append_utf8(std::string& out, uint32_t code) {
  const auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) return put(code);
  if (code >= 0x10000) {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
  } else if (code >= 0x800) {
    put(0xE0 | code >> 12);
  }
  put(code < 0x800 ? 0xC0 | code >> 6 : 0x80 | (code >> 6 & 0x3F));
  put(0x80 | (code & 0x3F));
}

size_t find_invalid_utf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    uint64_t word;
    while (at + sizeof word <= text.size()) {  // eight ASCII bytes at a time
      std::memcpy(&word, text.data() + at, sizeof word);
      if ((word & 0x8080808080808080ull) != 0) break;
      at += sizeof word;
    }
    if (at == text.size()) break;
    const Utf8Char next = decode_utf8(text, at);
    if (!next.valid) return at;
    at += next.length;
  }
  return kNoFault;
}

void require_utf8(std::string_view text, const std::string& where, int64_t base, InvalidUtf8 invalid) {
  const size_t at = find_invalid_utf8(text);
  if (at == kNoFault) return;
  throw Error(
      ErrorCode::invalid,
      fmt::format("text is not UTF-8: {}: byte {}: expected a character, got 0x{:02x}", where,
                  base + static_cast<int64_t>(at), byte_at(text, at)),
      invalid == InvalidUtf8::refuse_with_hint ? "--invalid-utf8 replace puts U+FFFD in its place and counts" : "");
}

std::string replace_invalid_utf8(std::string_view text, int64_t& count) {
  std::string out;
  while (!text.empty()) {
    const size_t sound = std::min(find_invalid_utf8(text), text.size());
    out += text.substr(0, sound);
    text.remove_prefix(sound);
    if (text.empty()) break;
    out += "\xEF\xBF\xBD";
    ++count;
    text.remove_prefix(decode_utf8(text, 0).length);
  }
  return out;
}

}  // namespace lamina

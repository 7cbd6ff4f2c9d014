#include "io/byte_letters.h"

#include "io/utf8.h"

namespace lamina {
namespace {

constexpr bool prints(unsigned byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
}

struct Tables {
  std::array<uint8_t, 256> order{};
  std::array<uint16_t, 256> letter_of{};  // byte -> code point
  std::array<int16_t, 512> byte_of{};     // code point -> byte, -1 for none
};

constexpr Tables make_tables() {
  Tables tables;
  tables.byte_of.fill(-1);
  size_t at = 0;
  uint16_t next = 256;
  for (const bool printing : {true, false})
    for (unsigned byte = 0; byte < 256; ++byte) {
      if (prints(byte) != printing) continue;
      const uint16_t letter = printing ? static_cast<uint16_t>(byte) : next++;
      tables.order[at++] = static_cast<uint8_t>(byte);
      tables.letter_of[byte] = letter;
      tables.byte_of[letter] = static_cast<int16_t>(byte);
    }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

const std::array<uint8_t, 256>& bytes_in_letter_order() { return kTables.order; }

std::string letters_of_bytes(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) {
    const uint16_t letter = kTables.letter_of[static_cast<unsigned char>(byte)];
    if (letter >= 0x80) {
      out += static_cast<char>(0xC0 | letter >> 6);
      out += static_cast<char>(0x80 | (letter & 63));
    } else {
      out += static_cast<char>(letter);
    }
  }
  return out;
}

std::optional<std::string> bytes_of_letters(std::string_view letters) {
  std::string out;
  for (size_t at = 0; at < letters.size();) {
    const Utf8Char next = decode_utf8(letters, at);
    if (!next.valid || next.code >= kTables.byte_of.size() || kTables.byte_of[next.code] < 0) return std::nullopt;
    out += static_cast<char>(kTables.byte_of[next.code]);
    at += next.length;
  }
  return out;
}

}  // namespace lamina

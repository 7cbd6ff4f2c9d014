// GPT-2's printable stand-in for each byte, in which vocabularies and merges are written in files: "Ġ" is the space.
// Bytes that print (33–126, 161–172, 174–255) stand for themselves as code points; the others, in rising order, for
// U+0100 and on. In that order they have the ids 0 … 255 of GPT-2's own vocabulary.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lamina {

// The bytes in the order of their letters.
const std::array<uint8_t, 256>& bytes_in_letter_order();

std::string letters_of_bytes(std::string_view bytes);                   // UTF-8
std::optional<std::string> bytes_of_letters(std::string_view letters);  // nothing where a character is no such letter

}  // namespace lamina

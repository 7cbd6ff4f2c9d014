// GPT-2's split of text into pieces, before any merge. No two pieces share a token. By hand what its regular expression
// says:
//
//   's|'t|'re|'ve|'m|'ll|'d | ?\p{L}+ | ?\p{N}+ | ?[^\s\p{L}\p{N}]+ | \s+(?!\S) | \s+
//
// White space is Unicode's White_Space; letters and numbers are those of the Unicode version below.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lamina {

// End of the piece that begins at `at` (< text.size()). `text` is UTF-8. Time is linear in the piece, stack constant.
size_t piece_end(std::string_view text, size_t at);

// Of the tables of letters and numbers: "15.0.0".
std::string unicode_version();

}  // namespace lamina

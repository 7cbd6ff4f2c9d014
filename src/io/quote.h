// Text from a file, made fit for a one-line message. It does not translate and does not judge.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lamina {

// The text in double quotes; control characters, quotes and bytes that are not UTF-8 as \xNN, cut after `limit` bytes.
std::string quote_text(std::string_view text, size_t limit = 120);

// The text as it is, or quoted whole where a terminal would not show it so.
std::string plain_or_quoted(const std::string& text);

// "[2, 3]"; "[]" for a scalar.
std::string shape_text(const std::vector<int64_t>& shape);

}  // namespace lamina

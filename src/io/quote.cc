#include "io/quote.h"

#include <fmt/format.h>

#include "io/utf8.h"

namespace lamina {

std::string quote_text(std::string_view text, size_t limit) {
  std::string out = "\"";
  size_t at = 0;
  while (at < text.size() && at < limit) {
    const Utf8Char next = decode_utf8(text, at);
    const auto byte = static_cast<unsigned char>(text[at]);
    const bool line_break = next.code == 0x85 || next.code == 0x2028 || next.code == 0x2029;
    if (!next.valid || byte < 0x20 || byte == 0x7F || byte == '"' || byte == '\\' || line_break)
      for (size_t i = 0; i < next.length; ++i)
        out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[at + i]));
    else
      out += text.substr(at, next.length);
    at += next.length;
  }
  return out + (at < text.size() ? "…\"" : "\"");
}

std::string plain_or_quoted(const std::string& text) {
  const std::string quoted = quote_text(text, text.size());
  return quoted.size() == text.size() + 2 ? text : quoted;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i == 8 && shape.size() > 9) {
      out += fmt::format(", … {} in all", shape.size());
      break;
    }
    out += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  }
  return out + "]";
}

}  // namespace lamina

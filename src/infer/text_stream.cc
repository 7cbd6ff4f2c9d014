#include "infer/text_stream.h"

#include <algorithm>

#include "base/error.h"
#include "io/utf8.h"

namespace lamina {

TextStream::TextStream(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) {
    if (stop.empty()) throw_error(ErrorCode::usage, "bad option: stop, expected a text, got an empty one");
    if (find_invalid_utf8(stop) != kNoFault)
      throw_error(ErrorCode::usage, "bad option: stop, expected UTF-8, got other bytes");
  }
}

std::string TextStream::push(std::string_view bytes) {
  if (stopped_) return {};
  bytes_ += bytes;
  take_characters(false);
  return release(false);
}

std::string TextStream::finish() {
  if (stopped_) return {};
  take_characters(true);
  return release(true);
}

void TextStream::take_characters(bool at_end) {
  size_t at = 0;
  while (at < bytes_.size()) {
    const Utf8Char c = decode_utf8(bytes_, at);
    const auto lead = static_cast<unsigned char>(bytes_[at]);
    const bool may_go_on = !c.valid && at + c.length == bytes_.size() && lead >= 0xC2 && lead <= 0xF4;
    if (may_go_on && !at_end) break;
    text_ += c.valid ? std::string_view(bytes_).substr(at, c.length) : std::string_view("\xEF\xBF\xBD");
    at += c.length;
  }
  bytes_.erase(0, at);
}

// Where the stop text begins that is complete first (the longest of those that end together), whatever the pieces in
// which the text came.
std::optional<size_t> TextStream::find_stop() const {
  std::optional<size_t> begin;
  size_t first_end = text_.size() + 1;
  for (const std::string& stop : stops_) {
    const size_t at = text_.find(stop);
    if (at == std::string::npos || at + stop.size() > first_end) continue;
    begin = at + stop.size() < first_end ? at : std::min(*begin, at);
    first_end = at + stop.size();
  }
  return begin;
}

std::string TextStream::release(bool at_end) {
  const std::optional<size_t> stop_begin = find_stop();
  stopped_ = stop_begin.has_value();
  size_t end = stop_begin.value_or(text_.size());
  if (!stopped_) {
    // The longest end of the text that a stop text begins with stays here.
    for (const std::string& stop : stops_)
      for (size_t n = std::min(stop.size() - 1, text_.size()); !at_end && n > 0; --n)
        if (text_.ends_with(std::string_view(stop).substr(0, n))) end = std::min(end, text_.size() - n);
  }
  std::string out = text_.substr(0, end);
  text_.erase(0, stopped_ ? std::string::npos : end);
  return out;
}

}  // namespace lamina

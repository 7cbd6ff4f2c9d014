// Bytes of tokens, as they come, into text that can be shown at once: no piece ends inside a character, and nothing of
// a stop text comes out. Bytes that can never become a character come out as U+FFFD.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lamina {

class TextStream {
 public:
  // Throws Error(usage) for an empty stop text, which would stop everything, and for one that is not UTF-8.
  explicit TextStream(std::vector<std::string> stops = {});

  // The text that is certain now. Nothing once a stop text was met.
  std::string push(std::string_view bytes);
  // What was held back. A character that was cut off comes out as one U+FFFD.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  void take_characters(bool at_end);
  std::optional<size_t> find_stop() const;
  std::string release(bool at_end);

  std::vector<std::string> stops_;
  std::string bytes_;  // the beginning of a character
  std::string text_;   // whole characters that may begin a stop text
  bool stopped_ = false;
};

}  // namespace lamina

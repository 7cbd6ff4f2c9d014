// The new text of each row of a batch, out of its ids as they come. A special token ends or marks something; it is no
// part of the text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "infer/text_stream.h"
#include "io/tokenizer.h"

namespace lamina {

class RowTexts {
 public:
  // The tokenizer outlives this. Throws Error(usage) for an empty stop text.
  RowTexts(const Tokenizer& tokenizer, size_t rows, const std::vector<std::string>& stops);

  // The piece of text that is certain with this id: maybe nothing. Throws Error(invalid) for an id that the tokenizer
  // does not have.
  std::string push(size_t row, int32_t id);
  std::string finish(size_t row);                                     // what was held back
  bool stopped(size_t row) const { return streams_[row].stopped(); }  // a stop text was met
  const std::string& text(size_t row) const { return texts_[row]; }   // all pieces so far

 private:
  const Tokenizer& tokenizer_;
  std::vector<TextStream> streams_;
  std::vector<std::string> texts_;
};

}  // namespace lamina

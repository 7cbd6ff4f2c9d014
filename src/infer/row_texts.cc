#include "infer/row_texts.h"

namespace lamina {

RowTexts::RowTexts(const Tokenizer& tokenizer, size_t rows, const std::vector<std::string>& stops)
    : tokenizer_(tokenizer), streams_(rows, TextStream(stops)), texts_(rows) {}

std::string RowTexts::push(size_t row, int32_t id) {
  std::string piece;
  if (!tokenizer_.is_special(id)) piece = streams_[row].push(tokenizer_.token(id));
  texts_[row] += piece;
  return piece;
}

std::string RowTexts::finish(size_t row) {
  std::string piece = streams_[row].finish();
  texts_[row] += piece;
  return piece;
}

}  // namespace lamina

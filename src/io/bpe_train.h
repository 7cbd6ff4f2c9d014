// Learns a byte-level BPE: the pair of neighbours that occurs most often becomes a token, until the vocabulary is full.
// Of pairs as frequent the one with the lower ids (left first) is taken, so that the result depends on the text alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/tokenizer.h"

namespace lamina {

class BpeTrainer {
 public:
  // Counts the pieces of one document; `text` is UTF-8. A piece longer than 4,096 bytes is counted in cuts of that
  // length.
  void add(std::string_view text);

  // ids 0 … 255 are the bytes in GPT-2's order, then the merges, then <|endoftext|>: `vocab_size` ids in all, or fewer
  // where no pair occurs `min_count` times any more. Throws Error(usage) below 257.
  Tokenizer train(int64_t vocab_size, int64_t min_count = 2) const;

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const;
  };
  std::unordered_map<std::string, int64_t, Hash, std::equal_to<>> counts_;
};

}  // namespace lamina

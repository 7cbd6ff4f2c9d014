// Byte-level BPE as GPT-2 uses it: text -> ids and back, byte for byte. A plain immutable value; an Encoder beside it
// holds the working memory of one thread. Reads and writes no files (tokenizer_files.h), learns nothing (bpe_train.h).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/bpe.h"
#include "io/utf8.h"

namespace lamina {

inline constexpr std::string_view kEndOfText = "<|endoftext|>";

struct TokenizerParts {
  std::vector<std::string> tokens;                  // bytes of each id; of a special token its text
  std::vector<int32_t> specials;                    // ids that ordinary text never becomes
  std::vector<std::pair<int32_t, int32_t>> merges;  // by rank
};

class Tokenizer {
 public:
  // Checks the parts: 256 single bytes, merges that stay in the vocabulary, no token that nothing makes. `where` is the
  // file that an error names (for a merge by its number from 0).
  Tokenizer(TokenizerParts parts, const std::string& where);

  int64_t vocab_size() const { return static_cast<int64_t>(parts_.tokens.size()); }  // all ids, special ones included
  const TokenizerParts& parts() const { return parts_; }
  std::optional<int32_t> end_of_text() const;  // id of <|endoftext|>
  bool is_special(int32_t id) const;

  // Exact bytes. Throws Error(invalid) that names an id outside the vocabulary and its size.
  std::string decode(std::span<const int32_t> ids) const;
  std::string_view token(int32_t id) const;

 private:
  friend class Encoder;
  void check_bytes(const std::string& where);
  void check_merges(const std::string& where);

  TokenizerParts parts_;
  MergeTable merges_;
  std::array<int32_t, 256> byte_ids_{};
};

// Throws Error(invalid) where the tokenizer has ids that a model of this vocabulary lacks; the names are for the
// message.
void check_fit(const Tokenizer& tokenizer, const std::string& name, int64_t vocab_size, const std::string& model);

// What becomes of a special token's text inside a document.
enum class SpecialMode {
  text,   // ordinary text, counted
  allow,  // the special token
  error   // an error that names it and its place
};

struct EncodeOptions {
  SpecialMode special = SpecialMode::text;
  InvalidUtf8 invalid = InvalidUtf8::refuse;
  std::string where = "text";       // for messages: the file
  int64_t base = 0;                 // for messages: bytes of the file before the text
  std::function<void()> poll = {};  // now and then in a long text; may throw
};

struct EncodeCounts {
  int64_t special = 0;   // special-token texts met
  int64_t replaced = 0;  // ill-formed parts that became U+FFFD
};

// Encodes one text after the other and remembers pieces it has met. One per thread; the tokenizer must outlive it.
class Encoder {
 public:
  explicit Encoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Appends the ids to `out`. Near-linear time and constant stack in the length of any piece.
  EncodeCounts encode(std::string_view text, std::vector<int32_t>& out, const EncodeOptions& options = {});

 private:
  struct Slot {
    uint64_t hash = 0;
    uint32_t key = 0, ids = 0;  // places in keys_ and ids_
    uint32_t length = 0, count = 0;
  };

  void encode_plain(std::string_view text, std::vector<int32_t>& out, const std::function<void()>& poll);
  void encode_piece(std::string_view piece, std::vector<int32_t>& out);
  void merge_piece(std::string_view piece);
  Slot& slot_of(std::string_view piece, uint64_t hash);
  void grow();

  const Tokenizer& tokenizer_;
  std::vector<Slot> slots_;
  size_t filled_ = 0;
  std::string keys_;
  std::vector<int32_t> ids_;
  std::vector<int32_t> symbols_;
  MergeScratch scratch_;
};

std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options = {});

}  // namespace lamina

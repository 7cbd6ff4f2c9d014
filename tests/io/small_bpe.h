// The small byte-level BPE of the tokenizer cases: 256 bytes, six merges, <|endoftext|> = 262, in every file form.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "io/byte_letters.h"
#include "io/tokenizer.h"

namespace lamina::test {

using Merges = std::vector<std::pair<std::string, std::string>>;

// In the files' letters: Ġ is the space.
inline Merges small_merges() { return {{"#", "#"}, {"a", "b"}, {"ab", "c"}, {"Ġ", "ab"}, {"##", "##"}, {"Ġ", "Ġ"}}; }

inline const std::string kSmallText = "abc ab ##a  abab#####\n#";
inline const std::vector<int32_t> kSmallIds = {258, 259, 220, 256, 64, 220, 259, 257, 260, 2, 198, 2};

inline int32_t byte_id(char byte) {
  const auto& order = bytes_in_letter_order();
  return static_cast<int32_t>(std::find(order.begin(), order.end(), static_cast<uint8_t>(byte)) - order.begin());
}

inline std::vector<std::string> small_letters() {
  std::vector<std::string> out;
  for (const uint8_t byte : bytes_in_letter_order())
    out.push_back(letters_of_bytes(std::string(1, static_cast<char>(byte))));
  for (const auto& [left, right] : small_merges()) out.push_back(left + right);
  out.push_back("<|endoftext|>");
  return out;
}

inline TokenizerParts small_parts() {
  TokenizerParts parts;
  const std::vector<std::string> letters = small_letters();
  const auto id_of = [&](const std::string& token) {
    return static_cast<int32_t>(std::find(letters.begin(), letters.end(), token) - letters.begin());
  };
  for (const std::string& token : letters)
    parts.tokens.push_back(token == "<|endoftext|>" ? token : *bytes_of_letters(token));
  for (const auto& [left, right] : small_merges()) parts.merges.emplace_back(id_of(left), id_of(right));
  parts.specials = {262};
  return parts;
}

inline Tokenizer small_tokenizer() { return Tokenizer(small_parts(), "test"); }

inline nlohmann::json small_vocab() {
  nlohmann::json vocab;
  const std::vector<std::string> letters = small_letters();
  for (size_t id = 0; id < letters.size(); ++id) vocab[letters[id]] = id;
  return vocab;
}

// A tokenizer.json as HuggingFace writes it. merges: a list of texts or of pairs.
inline nlohmann::json small_json(const nlohmann::json& merges) {
  const nlohmann::json level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens",
           {{{"id", 262},
             {"content", "<|endoftext|>"},
             {"single_word", false},
             {"lstrip", false},
             {"rstrip", false},
             {"normalized", false},
             {"special", true}}}},
          {"normalizer", nullptr},
          {"pre_tokenizer", level},
          {"post_processor", nullptr},
          {"decoder", level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", small_vocab()},
            {"merges", merges}}}};
}

inline nlohmann::json merges_as_texts() {
  nlohmann::json out = nlohmann::json::array();
  for (const auto& [left, right] : small_merges()) out.push_back(left + " " + right);
  return out;
}

inline nlohmann::json merges_as_pairs() {
  nlohmann::json out = nlohmann::json::array();
  for (const auto& [left, right] : small_merges()) out.push_back({left, right});
  return out;
}

}  // namespace lamina::test

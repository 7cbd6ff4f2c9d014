#include "io/bpe_train.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/rng.h"
#include "io/byte_letters.h"
#include "io/files.h"
#include "io/small_bpe.h"
#include "io/split.h"
#include "io/tokenizer_files.h"

namespace lamina {
namespace {

using test::expect_error;

Tokenizer train(const std::string& text, int64_t vocab_size, int64_t min_count = 2) {
  BpeTrainer trainer;
  trainer.add(text);
  return trainer.train(vocab_size, min_count);
}

// Counts all pairs anew for each merge. Of equals the pair with the lower ids wins. (Exact where no token has two
// makings.)
std::vector<std::string> merges_by_definition(const std::string& text, size_t count) {
  std::map<std::string, int32_t> id_of;
  for (size_t i = 0; i < 256; ++i)
    id_of[std::string(1, static_cast<char>(bytes_in_letter_order()[i]))] = static_cast<int32_t>(i);
  std::vector<std::vector<std::string>> words;
  for (size_t at = 0; at < text.size();) {
    const size_t end = piece_end(text, at);
    words.emplace_back();
    for (; at < end; ++at) words.back().push_back(text.substr(at, 1));
  }
  std::vector<std::string> out;
  while (out.size() < count) {
    std::map<std::pair<int32_t, int32_t>, std::pair<int64_t, std::pair<std::string, std::string>>> pairs;
    for (const auto& word : words)
      for (size_t i = 0; i + 1 < word.size(); ++i) {
        auto& entry = pairs[{id_of[word[i]], id_of[word[i + 1]]}];
        ++entry.first;
        entry.second = {word[i], word[i + 1]};
      }
    const std::pair<std::string, std::string>* best = nullptr;
    int64_t most = 1;
    for (const auto& [ids, entry] : pairs)
      if (entry.first > most) most = entry.first, best = &entry.second;
    if (best == nullptr) break;
    const auto [left, right] = *best;
    out.push_back(left + "|" + right);
    id_of.emplace(left + right, static_cast<int32_t>(id_of.size()));
    for (auto& word : words)
      for (size_t i = 0; i + 1 < word.size(); ++i)
        if (word[i] == left && word[i + 1] == right) {
          word[i] += right;
          word.erase(word.begin() + static_cast<ptrdiff_t>(i) + 1);
        }
  }
  return out;
}

std::vector<std::string> merges_of(const Tokenizer& tokenizer) {
  std::vector<std::string> out;
  for (const auto& [left, right] : tokenizer.parts().merges)
    out.push_back(std::string(tokenizer.token(left)) + "|" + std::string(tokenizer.token(right)));
  return out;
}

TEST(BpeTrain, FollowsTheDefinition) {
  Rng rng(11);
  for (int trial = 0; trial < 30; ++trial) {
    std::string text;
    for (int word = 0; word < 60; ++word) {
      text += word > 0 ? " " : "";
      for (uint64_t n = 1 + rng.below(5); n > 0; --n) text += static_cast<char>('a' + rng.below(6));
    }
    const std::vector<std::string> expected = merges_by_definition(text, 12);
    EXPECT_EQ(merges_of(train(text, 257 + static_cast<int64_t>(expected.size()))), expected) << text;
  }
}

TEST(BpeTrain, IdsAreBytesMergesEndOfText) {
  const Tokenizer tokenizer = train("low low lower lowest", 260);
  EXPECT_EQ(tokenizer.vocab_size(), 260);
  EXPECT_EQ(tokenizer.end_of_text(), 259);
  EXPECT_EQ(tokenizer.token(0), "!");
  EXPECT_EQ(tokenizer.token(220), " ");
  EXPECT_EQ(merges_of(tokenizer), (std::vector<std::string>{"l|o", "lo|w", " |low"}));
  EXPECT_EQ(train("", 257).vocab_size(), 257);
}

TEST(BpeTrain, StopsWherePairsAreRare) {
  EXPECT_EQ(train("abc abd", 1000).vocab_size(), 258);     // only (a, b) occurs twice
  EXPECT_EQ(train("abc abd", 1000, 1).vocab_size(), 261);  // ab, " ab", "abc", " abd"
  EXPECT_EQ(train("abc", 1000).vocab_size(), 257);
  for (const int64_t size : {256, 0, -1})
    expect_error([&] { (void)train("abc", size); }, ErrorCode::usage, {"257", std::to_string(size)});
}

TEST(BpeTrain, RunsOfOneLetter) {
  const Tokenizer tokenizer = train(std::string(64, 'a') + " " + std::string(63, 'a'), 300);
  const std::vector<std::string> merges = merges_of(tokenizer);
  ASSERT_GE(merges.size(), 3u);
  EXPECT_EQ(merges[0], "a|a");
  EXPECT_EQ(merges[1], "aa|aa");
  const std::string text = std::string(127, 'a');
  EXPECT_EQ(tokenizer.decode(encode(tokenizer, text)), text);
}

TEST(BpeTrain, DependsOnTheTextAlone) {
  Rng rng(5);
  std::string text;
  for (int i = 0; i < 20000; ++i) text += static_cast<char>(rng.below(8) == 0 ? ' ' : 'a' + rng.below(5));
  const std::string whole = tokenizer_json_text(train(text, 600));
  BpeTrainer parts;
  const size_t cut = text.find(' ', 10000);
  parts.add(std::string_view(text).substr(cut));
  parts.add(std::string_view(text).substr(0, cut));
  EXPECT_EQ(tokenizer_json_text(parts.train(600)), whole);
}

// Tokens that arise from different parts ("ab"+"c", "a"+"bc") stay one entry, and the loader takes what is learned.
TEST(BpeTrain, WhatIsLearnedLoads) {
  Rng rng(9);
  for (int trial = 0; trial < 10; ++trial) {
    std::string text;
    for (int i = 0; i < 6000; ++i)
      text += rng.below(6) == 0 ? ' ' : rng.below(40) == 0 ? '\n' : static_cast<char>('a' + rng.below(2));
    text += "é日🙂 日🙂é " + std::string(9000, 'b');  // longer than the longest piece counted whole
    const Tokenizer tokenizer = train(text, 900);
    const Tokenizer again = parse_tokenizer_json(tokenizer_json_text(tokenizer), "t").tokenizer;
    const std::vector<int32_t> ids = encode(again, text);
    EXPECT_EQ(ids, encode(tokenizer, text));
    EXPECT_EQ(again.decode(ids), text);
    EXPECT_LT(ids.size(), text.size() / 2);
    std::set<std::string> distinct(tokenizer.parts().tokens.begin(), tokenizer.parts().tokens.end());
    EXPECT_EQ(static_cast<int64_t>(distinct.size()), tokenizer.vocab_size());
  }
}

}  // namespace
}  // namespace lamina

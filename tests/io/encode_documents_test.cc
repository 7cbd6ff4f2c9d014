#include "io/encode_documents.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "io/files.h"
#include "io/small_bpe.h"

namespace lamina {
namespace {

// Lines, runs of line ends and white space before and behind them: every place where a cut could change a piece.
std::string lines(uint64_t seed, size_t size) {
  static const char* const kParts[] = {"abc",  "ab ##",    "\n",  "\n\n", " \n", "\n ",
                                       "\t\n", "\u3000\n", "é\n", "'s",   "  ",  "日本"};
  Rng rng(seed);
  std::string out;
  while (out.size() < size) out += kParts[rng.below(std::size(kParts))];
  return out;
}

TEST(EncodeDocuments, SameIdsForAnyNumberOfThreads) {
  const Tokenizer tokenizer = test::small_tokenizer();
  const std::string large = lines(1, 5 << 19), one_line(3 << 19, '!');
  const std::vector<Document> documents = {
      {"abc", "a", 0}, {large, "b", 0}, {"", "c", 0}, {one_line, "d", 0}, {" abc", "e", 0}};
  for (const int threads : {1, 2, 3}) {
    ThreadTeam team(threads);
    EncodeCounts counts;
    const auto ids = encode_documents(tokenizer, documents, team, {}, counts);
    ASSERT_EQ(ids.size(), documents.size());
    for (size_t i = 0; i < documents.size(); ++i) EXPECT_EQ(ids[i], encode(tokenizer, documents[i].text)) << i;
  }
  ThreadTeam team(2);
  EncodeCounts counts;
  EXPECT_TRUE(encode_documents(tokenizer, {}, team, {}, counts).empty());
}

// A text that is all one line is cut at spaces; special tokens that hold one are never cut.
TEST(EncodeDocuments, OneLine) {
  std::string line;
  for (Rng rng(4); line.size() < size_t{5} << 19;) {
    static const char* const kParts[] = {"abc",    " ab", "  ", "#",       "ab##",
                                         "\u3000", " 's", "é ", "<|a b|>", "<|endoftext|>"};
    line += kParts[rng.below(std::size(kParts))];
  }
  TokenizerParts parts = test::small_parts();
  parts.specials.push_back(static_cast<int32_t>(parts.tokens.size()));
  parts.tokens.push_back("<|a b|>");
  for (const Tokenizer& tokenizer : {test::small_tokenizer(), Tokenizer(std::move(parts), "test")}) {
    ThreadTeam team(2);
    for (const SpecialMode mode : {SpecialMode::text, SpecialMode::allow}) {
      EncodeCounts counts;
      const auto ids = encode_documents(tokenizer, std::vector<Document>{{line}}, team, {.special = mode}, counts);
      EXPECT_EQ(ids[0], encode(tokenizer, line, {.special = mode}));
      EXPECT_GT(counts.special, 1000);
    }
  }
}

TEST(EncodeDocuments, CountsAndFirstFault) {
  const Tokenizer tokenizer = test::small_tokenizer();
  ThreadTeam team(2);
  const std::string filler = lines(2, 3 << 19);
  const std::string specials = "<|endoftext|>" + filler + "x<|endoftext|>";
  EncodeCounts counts;
  encode_documents(tokenizer, std::vector<Document>{{specials}, {"<|endoftext|>"}}, team, {}, counts);
  EXPECT_EQ(counts.special, 3);

  const std::string bad = filler + "\xFF" + filler + "\xFE";
  const std::vector<Document> documents = {{"fine"}, {bad, "bad.txt", 3}, {"\xC3", "late.txt"}};
  test::expect_error([&] { encode_documents(tokenizer, documents, team, {}, counts); }, ErrorCode::invalid,
                     {"bad.txt", "byte " + std::to_string(filler.size() + 3), "ff"});
  counts = {};
  const auto ids = encode_documents(tokenizer, documents, team, {.invalid = InvalidUtf8::replace}, counts);
  EXPECT_EQ(counts.replaced, 3);
  EXPECT_EQ(tokenizer.decode(ids[2]), "\xEF\xBF\xBD");
}

}  // namespace
}  // namespace lamina

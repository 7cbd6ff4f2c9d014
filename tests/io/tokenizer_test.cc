#include "io/tokenizer.h"

#include <gtest/gtest.h>

#include <ctime>
#include <numeric>

#include "base/rng.h"
#include "io/byte_letters.h"
#include "io/files.h"
#include "io/small_bpe.h"
#include "io/split.h"
#include "io/tiny.h"

namespace lamina {
namespace {

using test::expect_error;
using test::small_tokenizer;

std::vector<size_t> pieces(std::string_view text) {
  std::vector<size_t> out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = piece_end(text, at);
    out.push_back(end - at);
    at = end;
  }
  return out;
}

const nlohmann::json& golden() {
  static const nlohmann::json root =
      nlohmann::json::parse(test::read_bytes((test::cases_folder() / "tokenizer_golden.json").string()));
  return root;
}

TEST(Split, GivesTheGoldenPieces) {
  int64_t compared = 0;
  for (const auto& entry : golden()["cases"]) {
    if (!entry.contains("pieces")) continue;
    EXPECT_EQ(pieces(entry["text"].get<std::string>()), entry["pieces"].get<std::vector<size_t>>()) << entry["id"];
    ++compared;
  }
  EXPECT_GT(compared, 100);
}

TEST(Split, CornersOfTheExpression) {
  const std::pair<const char*, std::vector<size_t>> cases[] = {
      {"it's", {2, 2}},       {"it'S", {2, 1, 1}},     {"'", {1}},           {"''s", {2, 1}},
      {" 's", {2, 1}},        {"we'll've", {2, 3, 3}}, {"a'", {1, 1}},       {"a'r", {1, 1, 1}},
      {"don’t", {3, 3, 1}},   {"  '", {1, 2}},         {"\n\na", {1, 1, 1}}, {"\u3000\u3000a", {3, 3, 1}},
      {" \u3000", {4}},       {"a1 2b", {1, 1, 2, 1}}, {"½Ⅷ²", {7}},         {"\u00a0a", {2, 1}},
      {"\u200b\u200b.", {7}},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(pieces(text), expected) << text;
  EXPECT_EQ(pieces(std::string_view("\0\0a", 3)), (std::vector<size_t>{2, 1}));
  EXPECT_FALSE(unicode_version().empty());
}

TEST(ByteLetters, AreABijection) {
  std::string all(256, '\0');
  for (size_t i = 0; i < 256; ++i) all[i] = static_cast<char>(i);
  const std::string letters = letters_of_bytes(all);
  EXPECT_EQ(bytes_of_letters(letters), all);
  EXPECT_EQ(letters_of_bytes(" \n"), "ĠĊ");
  EXPECT_EQ(bytes_in_letter_order()[0], 33);
  EXPECT_EQ(bytes_in_letter_order()[188], 0);
  EXPECT_FALSE(bytes_of_letters(" ").has_value());
  EXPECT_FALSE(bytes_of_letters("日").has_value());
  EXPECT_FALSE(bytes_of_letters("\xFF").has_value());
}

// The definition, as slowly as it reads.
std::vector<int32_t> merge_naively(const MergeTable& table, std::vector<int32_t> symbols) {
  while (true) {
    size_t best = 0;
    MergeTable::Merge merge;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const MergeTable::Merge found = table.find(symbols[i], symbols[i + 1]);
      if (found.rank < merge.rank) merge = found, best = i;
    }
    if (merge.rank == MergeTable::kNone) return symbols;
    symbols[best] = merge.result;
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

TEST(Bpe, ShortAndLongAgreeWithTheDefinition) {
  Rng rng(7);
  for (int trial = 0; trial < 300; ++trial) {
    // Merges in any order of rank, later ones made from earlier results and the other way round.
    const auto alphabet = static_cast<int32_t>(1 + rng.below(4));
    MergeTable table(40);
    for (uint32_t rank = 0; rank < 40; ++rank)
      table.add(static_cast<int32_t>(rng.below(static_cast<uint64_t>(alphabet) + 20)),
                static_cast<int32_t>(rng.below(static_cast<uint64_t>(alphabet) + 20)),
                {rank, static_cast<int32_t>(rng.below(static_cast<uint64_t>(alphabet) + 20))});
    MergeScratch scratch;
    for (const size_t n : {0, 1, 2, 3, 20, 47, 48, 49, 50, 200}) {
      std::vector<int32_t> symbols(n);
      for (int32_t& s : symbols) s = static_cast<int32_t>(rng.below(static_cast<uint64_t>(alphabet)));
      const std::vector<int32_t> expected = merge_naively(table, symbols);
      bpe_merge(table, symbols, scratch);
      ASSERT_EQ(symbols, expected) << trial << " " << n;
    }
  }
}

TEST(Bpe, TableHoldsEachPairOnce) {
  MergeTable table(2);
  EXPECT_TRUE(table.add(1, 2, {0, 3}));
  EXPECT_FALSE(table.add(1, 2, {1, 4}));
  EXPECT_TRUE(table.add(2, 1, {1, 4}));
  EXPECT_EQ(table.find(1, 2).result, 3);
  EXPECT_EQ(table.find(3, 3).rank, MergeTable::kNone);
  EXPECT_EQ(MergeTable().find(0, 0).rank, MergeTable::kNone);
}

TEST(Tokenizer, EncodesWithTheSmallVocabulary) {
  const Tokenizer tokenizer = small_tokenizer();
  EXPECT_EQ(tokenizer.vocab_size(), 263);
  EXPECT_EQ(tokenizer.end_of_text(), 262);
  EXPECT_EQ(encode(tokenizer, test::kSmallText), test::kSmallIds);
  EXPECT_EQ(tokenizer.decode(test::kSmallIds), test::kSmallText);
  EXPECT_TRUE(encode(tokenizer, "").empty());
}

TEST(Tokenizer, T3IllFormedBytes) {
  const Tokenizer tokenizer = small_tokenizer();
  const std::pair<std::string, int64_t> cases[] = {{"ab\xED\xA0\x80"
                                                    "cd\n",
                                                    3},
                                                   {"ab\xFF"
                                                    "cd\n",
                                                    1},
                                                   {"ab\xC0\xAF"
                                                    "cd\n",
                                                    2},
                                                   {"ab\xF4\x90\x80\x80"
                                                    "cd\n",
                                                    4},
                                                   {"ab\xC3", 1}};
  const char* values[] = {"ed", "ff", "c0", "f4", "c3"};
  for (size_t i = 0; i < 5; ++i) {
    const auto& [text, parts] = cases[i];
    expect_error([&] { (void)encode(tokenizer, text, {.where = "bad.txt"}); }, ErrorCode::invalid,
                 {"bad.txt", "byte 2", values[i]});
    expect_error([&] { (void)encode(tokenizer, text, {.where = "bad.txt", .base = 3}); }, ErrorCode::invalid,
                 {"byte 5"});
    std::vector<int32_t> ids;
    const EncodeCounts counts = Encoder(tokenizer).encode(text, ids, {.invalid = InvalidUtf8::replace});
    EXPECT_EQ(counts.replaced, parts);
    std::string expected = "ab";
    for (int64_t part = 0; part < parts; ++part) expected += "\xEF\xBF\xBD";
    EXPECT_EQ(tokenizer.decode(ids), expected + (i == 4 ? "" : "cd\n"));
  }
}

TEST(Tokenizer, T4SpecialTokenText) {
  const Tokenizer tokenizer = small_tokenizer();
  const std::string text = "x<|endoftext|>y<|endoftext|>";
  std::vector<int32_t> ids;
  EXPECT_EQ(Encoder(tokenizer).encode(text, ids).special, 2);
  EXPECT_EQ(tokenizer.decode(ids), text);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 262), 0);
  EXPECT_EQ(ids.size(), text.size());

  ids.clear();
  EXPECT_EQ(Encoder(tokenizer).encode(text, ids, {.special = SpecialMode::allow}).special, 2);
  EXPECT_EQ(ids, (std::vector<int32_t>{87, 262, 88, 262}));
  EXPECT_EQ(tokenizer.decode(ids), text);

  expect_error([&] { (void)encode(tokenizer, text, {.special = SpecialMode::error, .where = "t.txt"}); },
               ErrorCode::invalid, {"t.txt", "<|endoftext|>", "byte 1"});
  EXPECT_EQ(encode(tokenizer, "<|endoftext|", {.special = SpecialMode::error}).size(), 12u);
}

TEST(Tokenizer, LongestOfSeveralSpecialTokens) {
  TokenizerParts parts = test::small_parts();
  for (const char* token : {"<|a|>", "<|a|><|b|>"}) {
    parts.specials.push_back(static_cast<int32_t>(parts.tokens.size()));
    parts.tokens.push_back(token);
  }
  const Tokenizer tokenizer(std::move(parts), "test");
  EXPECT_EQ(encode(tokenizer, "<|a|><|a|><|b|>!", {.special = SpecialMode::allow}),
            (std::vector<int32_t>{263, 264, 0}));
}

std::string random_text(Rng& rng, int64_t length) {
  std::string out;
  for (int64_t i = 0; i < length; ++i) {
    const uint64_t kind = rng.below(4);
    uint64_t code = kind == 0   ? rng.below(0x80)
                    : kind == 1 ? rng.below(0x800)
                    : kind == 2 ? rng.below(0x10000)
                                : rng.below(0x110000);
    if (code >= 0xD800 && code < 0xE000) code = 0x3000;
    const auto byte = [&](uint64_t value) { out += static_cast<char>(value); };
    if (code < 0x80) {
      byte(code);
    } else if (code < 0x800) {
      byte(0xC0 | code >> 6), byte(0x80 | (code & 63));
    } else if (code < 0x10000) {
      byte(0xE0 | code >> 12), byte(0x80 | (code >> 6 & 63)), byte(0x80 | (code & 63));
    } else {
      byte(0xF0 | code >> 18), byte(0x80 | (code >> 12 & 63)), byte(0x80 | (code >> 6 & 63)), byte(0x80 | (code & 63));
    }
  }
  return out;
}

TEST(Tokenizer, T6RandomTextComesBack) {
  const Tokenizer tokenizer = small_tokenizer();
  Encoder encoder(tokenizer);  // one memory of pieces for all
  Rng rng(1);
  for (int i = 0; i < 10000; ++i) {
    const std::string text = random_text(rng, static_cast<int64_t>(rng.below(41)));
    std::vector<int32_t> ids;
    encoder.encode(text, ids);
    ASSERT_EQ(tokenizer.decode(ids), text);
    ASSERT_EQ(ids, encode(tokenizer, text));
  }
  expect_error([&] { (void)tokenizer.decode(std::vector<int32_t>{1, 263}); }, ErrorCode::invalid, {"263"});
  expect_error([&] { (void)tokenizer.decode(std::vector<int32_t>{-1}); }, ErrorCode::invalid, {"-1", "263"});
  for (const std::string text : {" ?", "y is ?", "a ,b .c n't"})
    EXPECT_EQ(tokenizer.decode(encode(tokenizer, text)), text);
}

TEST(Tokenizer, MemoryOfPiecesNeverChangesIds) {
  const Tokenizer tokenizer = small_tokenizer();
  Encoder encoder(tokenizer);
  Rng rng(3);
  std::string text;
  for (int i = 0; i < 400000; ++i) {  // more distinct pieces than are remembered
    text += ' ';
    for (uint64_t n = 2 + rng.below(6); n > 0; --n) text += static_cast<char>('a' + rng.below(26));
  }
  std::vector<int32_t> first, second;
  encoder.encode(text, first);
  encoder.encode(text, second);
  EXPECT_EQ(first, second);
  EXPECT_EQ(tokenizer.decode(first), text);
}

// Of this thread, so that a busy machine does not count.
double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double seconds_to_encode(const Tokenizer& tokenizer, const std::string& text) {
  double best = 1e9;
  for (int i = 0; i < 3; ++i) {
    const double begin = cpu_seconds();
    (void)encode(tokenizer, text);
    best = std::min(best, cpu_seconds() - begin);
  }
  return best;
}

// A bound against quadratic time and deep recursion, generous on purpose.
TEST(Tokenizer, P4CanBeInterruptedInALongText) {
  const Tokenizer tokenizer = small_tokenizer();
  std::string text;
  while (text.size() < (size_t{5} << 20)) text += "abc ab ## a";
  int polls = 0;
  EncodeOptions options;
  options.poll = [&] { ++polls; };
  EXPECT_EQ(encode(tokenizer, text, options), encode(tokenizer, text));
  EXPECT_EQ(polls, 4);  // each MiB but the last
  options.poll = [] { throw std::runtime_error("interrupted"); };
  EXPECT_THROW(encode(tokenizer, text, options), std::runtime_error);
}

TEST(Tokenizer, T1OneVeryLongWord) {
  TokenizerParts parts = test::small_parts();
  const auto add = [&](int32_t left, int32_t right) {
    parts.tokens.insert(parts.tokens.end() - 1,
                        parts.tokens[static_cast<size_t>(left)] + parts.tokens[static_cast<size_t>(right)]);
    parts.merges.emplace_back(left, right);
    ++parts.specials[0];
    return static_cast<int32_t>(parts.tokens.size()) - 2;
  };
  int32_t as = add(64, 64);
  for (int i = 0; i < 3; ++i) as = add(as, as);  // 16 × a
  const Tokenizer tokenizer(std::move(parts), "test");
  EXPECT_EQ(encode(tokenizer, std::string(200000, 'a')), std::vector<int32_t>(12500, as));
  for (const std::string& text : {std::string(200000, 'a'), std::string(200000, ' '), std::string(200000, '#')}) {
    const double half = seconds_to_encode(tokenizer, text.substr(0, 100000)),
                 whole = seconds_to_encode(tokenizer, text);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    constexpr double kSlower = 20.0;  // what a sanitizer may cost; the bound is there for hangs
#else
    constexpr double kSlower = 1.0;
#endif
    EXPECT_LT(whole, 2.0 * kSlower);
    EXPECT_LT(whole, 3.0 * half + 0.05 * kSlower);
  }
}

TEST(Tokenizer, RefusesPartsThatDoNotFit) {
  const auto refuse = [](const std::function<void(TokenizerParts&)>& edit, const std::vector<std::string>& words) {
    TokenizerParts parts = test::small_parts();
    edit(parts);
    expect_error([&] { Tokenizer(std::move(parts), "f.json"); }, ErrorCode::invalid, words);
  };
  refuse([](TokenizerParts& p) { p.tokens[10] = "zz"; }, {"f.json", "0x2b"});
  refuse([](TokenizerParts& p) { p.tokens[257] = "zz"; }, {"f.json", "merge 1"});
  refuse([](TokenizerParts& p) { p.merges.pop_back(); }, {"f.json", "5 merges", "263", "261"});
  refuse([](TokenizerParts& p) { p.merges.clear(); }, {"f.json", "0 merges"});
  refuse([](TokenizerParts& p) { p.merges.push_back(p.merges[2]); }, {"f.json", "merge 6", "second time"});
  refuse([](TokenizerParts& p) { p.merges[0] = {262, 1}; }, {"f.json", "merge 0"});
  refuse([](TokenizerParts& p) { p.tokens[261] = p.tokens[260]; }, {"f.json", "twice"});
  refuse([](TokenizerParts& p) { p.tokens[261].clear(); }, {"f.json"});
}

}  // namespace
}  // namespace lamina

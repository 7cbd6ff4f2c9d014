#include "infer/row_texts.h"

#include <gtest/gtest.h>

#include <random>

#include "io/files.h"
#include "io/small_bpe.h"

namespace lamina {
namespace {

struct Shown {
  std::string text;
  bool stopped = false;
};

// All pieces of one row, checked: no piece ends inside a character, and nothing comes after a stop.
Shown show(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, const std::vector<std::string>& stops) {
  RowTexts texts(tokenizer, 1, stops);
  Shown out;
  const auto take = [&](const std::string& piece) {
    EXPECT_EQ(find_invalid_utf8(piece), kNoFault) << piece;
    out.text += piece;
  };
  for (const int32_t id : ids) {
    if (texts.stopped(0)) break;
    take(texts.push(0, id));
  }
  take(texts.finish(0));
  EXPECT_EQ(texts.text(0), out.text);
  out.stopped = texts.stopped(0);
  return out;
}

// What must come out of the whole text: all before the stop text that is complete first.
Shown before_stop(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end)
    for (size_t begin = 0; begin < end; ++begin)
      for (const std::string& stop : stops)
        if (text.compare(begin, end - begin, stop) == 0) return {text.substr(0, begin), true};
  return {text, false};
}

TEST(RowTexts, StopTextsEndTheTextWhateverTheTokens) {
  const Tokenizer tokenizer = test::small_tokenizer();
  const std::vector<std::string> parts{"a", "b", "c", "#", " ", "abc", "##", "é", "日", "🙂", "\n"};
  std::mt19937 random(1);
  const auto text = [&](size_t least, size_t most) {
    std::string out;
    for (size_t n = least + random() % (most - least + 1); n > 0; --n) out += parts[random() % parts.size()];
    return out;
  };
  int stopped = 0;
  for (int i = 0; i < 3000; ++i) {
    const std::string whole = text(0, 12);
    std::vector<std::string> stops;
    for (size_t n = random() % 4; n > 0; --n) stops.push_back(text(1, 3));
    const Shown wanted = before_stop(whole, stops);
    std::vector<int32_t> bytes;  // a token for each byte, and the tokenizer's own
    for (const char byte : whole) bytes.push_back(test::byte_id(byte));
    for (const std::vector<int32_t>& ids : {bytes, encode(tokenizer, whole)}) {
      const Shown got = show(tokenizer, ids, stops);
      EXPECT_EQ(got.text, wanted.text) << whole;
      EXPECT_EQ(got.stopped, wanted.stopped) << whole;
    }
    stopped += wanted.stopped ? 1 : 0;
  }
  EXPECT_GT(stopped, 500);
}

TEST(RowTexts, RowsAreApartAndSpecialTokensAreNoText) {
  const Tokenizer tokenizer = test::small_tokenizer();
  RowTexts texts(tokenizer, 2, {"b"});
  EXPECT_EQ(texts.push(0, test::byte_id('a')), "a");
  EXPECT_EQ(texts.push(1, test::byte_id('\xF0')), "");
  EXPECT_EQ(texts.push(0, 262), "");
  EXPECT_EQ(texts.push(0, test::byte_id('b')), "");
  EXPECT_TRUE(texts.stopped(0));
  EXPECT_FALSE(texts.stopped(1));
  EXPECT_EQ(texts.finish(0), "");
  EXPECT_EQ(texts.finish(1), "\uFFFD");
  EXPECT_EQ(texts.text(0), "a");
}

TEST(RowTexts, RefusesAnIdThatTheTokenizerLacks) {
  const Tokenizer tokenizer = test::small_tokenizer();
  RowTexts texts(tokenizer, 1, {});
  test::expect_error([&] { texts.push(0, 263); }, ErrorCode::invalid, {"263"});
}

}  // namespace
}  // namespace lamina

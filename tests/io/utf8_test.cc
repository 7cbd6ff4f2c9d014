#include "io/utf8.h"

#include <gtest/gtest.h>

#include "io/files.h"
#include "io/quote.h"

namespace lamina {
namespace {

using test::expect_error;

struct Sample {
  std::string text;
  size_t fault;
  int64_t parts;  // ill-formed parts
};

// The inputs of case T3 and the borders of each row of Unicode's table 3-7.
const Sample kSamples[] = {
    {"", kNoFault, 0},
    {"plain ascii, longer than one machine word", kNoFault, 0},
    {"ab\xED\xA0\x80"
     "cd\n",
     2, 3},
    {"ab\xFF"
     "cd\n",
     2, 1},
    {"ab\xC0\xAF"
     "cd\n",
     2, 2},
    {"ab\xF4\x90\x80\x80"
     "cd\n",
     2, 4},
    {"ab\xC3", 2, 1},
    {"\xE2\x82", 0, 1},
    {"\xE2\x82\xF0\x9F\x98", 0, 2},
    {"\xE0\x9F\x80", 0, 3},
    {"\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xEF\xBF\xBF", kNoFault, 0},
    {"\xF0\x8F\xBF\xBF", 0, 4},
    {"\xF0\x90\x80\x80\xF4\x8F\xBF\xBF", kNoFault, 0},
    {"\xC1\xBF\xC2\x80", 0, 2},
    {"\x80", 0, 1},
    {"12345678\xF5zz", 8, 1},
};

TEST(Utf8, FindsTheFirstIllFormedByte) {
  for (const Sample& sample : kSamples) EXPECT_EQ(find_invalid_utf8(sample.text), sample.fault) << sample.text;
}

TEST(Utf8, ReplacesEachMaximalPart) {
  for (const Sample& sample : kSamples) {
    int64_t count = 0;
    const std::string fixed = replace_invalid_utf8(sample.text, count);
    EXPECT_EQ(count, sample.parts) << sample.text;
    EXPECT_EQ(find_invalid_utf8(fixed), kNoFault);
    EXPECT_EQ(fixed == sample.text, sample.parts == 0);
  }
  int64_t count = 0;
  EXPECT_EQ(replace_invalid_utf8("a\xE2\x82z", count), "a\xEF\xBF\xBDz");
}

TEST(Utf8, DecodesEveryCodePoint) {
  for (uint32_t code = 0; code <= 0x10FFFF; ++code) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    std::string text;
    if (code < 0x80) {
      text = {static_cast<char>(code)};
    } else if (code < 0x800) {
      text = {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
    } else if (code < 0x10000) {
      text = {static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 63)),
              static_cast<char>(0x80 | (code & 63))};
    } else {
      text = {static_cast<char>(0xF0 | code >> 18), static_cast<char>(0x80 | (code >> 12 & 63)),
              static_cast<char>(0x80 | (code >> 6 & 63)), static_cast<char>(0x80 | (code & 63))};
    }
    const Utf8Char got = decode_utf8(text, 0);
    ASSERT_TRUE(got.valid) << code;
    ASSERT_EQ(got.code, code);
    ASSERT_EQ(got.length, text.size());
  }
}

TEST(Utf8, ErrorNamesPlaceOffsetAndValue) {
  expect_error([] { require_utf8("ab\xED\xA0\x80", "some.txt"); }, ErrorCode::invalid, {"some.txt", "byte 2", "ed"});
  expect_error([] { require_utf8("ab\xC3", "some.txt", 3); }, ErrorCode::invalid, {"some.txt", "byte 5", "c3"});
  const auto hint_of = [](InvalidUtf8 invalid) {
    try {
      require_utf8("\xFF", "some.txt", 0, invalid);
    } catch (const Error& error) {
      return error.hint();
    }
    return std::string("no error");
  };
  EXPECT_EQ(hint_of(InvalidUtf8::refuse), "");
  EXPECT_TRUE(hint_of(InvalidUtf8::refuse_with_hint).starts_with("--invalid-utf8 replace"));
}

TEST(Quote, MakesAnythingOneLine) {
  EXPECT_EQ(quote_text("a\nb\"\xFF\x7F"), "\"a\\x0ab\\x22\\xff\\x7f\"");
  EXPECT_EQ(quote_text("abcdef", 3), "\"abc…\"");
  EXPECT_EQ(quote_text("日本", 3), "\"日…\"");
  EXPECT_EQ(quote_text("\xE2\x80\xA8"), "\"\\xe2\\x80\\xa8\"");
  EXPECT_EQ(shape_text({}), "[]");
  EXPECT_EQ(shape_text({1, 16}), "[1, 16]");
}

}  // namespace
}  // namespace lamina

#include "infer/text_stream.h"

#include <gtest/gtest.h>

#include "io/files.h"

namespace lamina {
namespace {

using Pieces = std::vector<std::string>;

Pieces stream(TextStream& stream, const Pieces& pieces) {
  Pieces out;
  for (const std::string& piece : pieces) out.push_back(stream.push(piece));
  out.push_back(stream.finish());
  return out;
}

Pieces stream(const Pieces& pieces, Pieces stops = {}) {
  TextStream text(std::move(stops));
  return stream(text, pieces);
}

// The bytes of GPT-2's tokens 8582 25081 10545 245 98 17312 105.
const Pieces kTokens{"\xF0\x9F", "\x99\x82", " \xE6", "\x97", "\xA5", "\xE6\x9C", "\xAC"};

TEST(TextStream, HoldsBackTheBeginningOfACharacter) {
  EXPECT_EQ(stream(kTokens), (Pieces{"", "🙂", " ", "", "日", "", "本", ""}));
}

TEST(TextStream, GivesOneReplacementForACharacterThatWasCutOff) {
  const Pieces ends[] = {{"\xF0\x9F"}, {" \xE6"}, {"\xE6", "\x97"}, {"\xE6\x9C"}};
  for (const Pieces& pieces : ends) EXPECT_EQ(stream(pieces).back(), "\uFFFD");
  EXPECT_EQ(stream({"ab"}).back(), "");
}

TEST(TextStream, ReplacesWhatCannotBecomeACharacterAtOnce) {
  EXPECT_EQ(stream({"a\xFF", "b"}), (Pieces{"a\uFFFD", "b", ""}));
  EXPECT_EQ(stream({"\xE6", "z"}), (Pieces{"", "\uFFFDz", ""}));
  EXPECT_EQ(stream({"\x80"}), (Pieces{"\uFFFD", ""}));
  EXPECT_EQ(stream({std::string("\0", 1)}), (Pieces{std::string("\0", 1), ""}));
}

TEST(TextStream, EndsBeforeAStopText) {
  TextStream text({"\n\n", "END"});
  EXPECT_EQ(stream(text, {"one\n", "two EN", "D three"}), (Pieces{"one", "\ntwo ", "", ""}));
  EXPECT_TRUE(text.stopped());
}

TEST(TextStream, GivesBackWhatOnlyLookedLikeAStopText) {
  TextStream text({"abab"});
  EXPECT_EQ(stream(text, {"xaba", "aba", "c"}), (Pieces{"x", "aba", "abac", ""}));
  EXPECT_FALSE(text.stopped());
  EXPECT_EQ(stream({"xab"}, {"abc"}), (Pieces{"x", "ab"}));
}

TEST(TextStream, TakesTheFirstOfSeveralStopTexts) {
  EXPECT_EQ(stream({"one two three"}, {"three", "two"}), (Pieces{"one ", ""}));
  EXPECT_EQ(stream({"日", "本語"}, {"本"}), (Pieces{"日", "", ""}));
}

TEST(TextStream, RefusesAnEmptyStopText) {
  test::expect_error([] { TextStream text({""}); }, ErrorCode::usage, {"stop"});
  test::expect_error([] { TextStream text({"a", "\xFF"}); }, ErrorCode::usage, {"stop", "UTF-8"});
}

}  // namespace
}  // namespace lamina

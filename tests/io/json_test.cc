#include "io/json.h"

#include <gtest/gtest.h>

#include "io/files.h"
#include "io/sniff.h"

namespace lamina {
namespace {

using test::expect_error;
using test::TempDir;

TEST(Json, BuildsTheSameValueAsThePlainParser) {
  const std::string text = R"({"a":[1,-2,2.5,"x",null,true,[],{}],"b":{"c":{"d":[[1],[2]]}},"":"é"})";
  EXPECT_EQ(parse_json(text, "f"), nlohmann::json::parse(text));
  EXPECT_EQ(parse_json("[]", "f"), nlohmann::json::array());
  EXPECT_EQ(parse_json(" 7 ", "f"), nlohmann::json(7));
}

TEST(Json, RefusesDuplicateKeysByPath) {
  expect_error([] { (void)parse_json(R"({"a":1,"a":1})", "f.json"); }, ErrorCode::invalid,
               {"f.json", "duplicate", "\"a\""});
  expect_error([] { (void)parse_json(R"({"x":[{"y":{"k":1,"k":2}}]})", "f.json"); }, ErrorCode::invalid,
               {"duplicate", "\"x\".\"y\".\"k\""});
  EXPECT_EQ(parse_json(R"([{"k":1},{"k":2}])", "f").size(), 2u);
}

TEST(Json, ErrorsNameFileAndByte) {
  for (const char* text : {"{", "", "{\"a\":}", "{\"a\":1}x", "[1,]", "{\"a\":NaN}", "\"\xFF\"", "{\"a\":\"\n\"}"})
    expect_error([&] { (void)parse_json(text, "f.json"); }, ErrorCode::invalid, {"f.json", "byte"});
  expect_error([] { (void)parse_json(R"({"a": 1e999})", "f.json"); }, ErrorCode::invalid, {"byte 11", "overflow"});
  expect_error([] { (void)parse_json("\"\\ud800\"", "f.json"); }, ErrorCode::invalid, {"f.json", "surrogate"});
}

TEST(Json, BoundsDepthAndSize) {
  EXPECT_NO_THROW((void)parse_json(std::string(32, '[') + std::string(32, ']'), "f"));
  expect_error([] { (void)parse_json(std::string(33, '['), "f"); }, ErrorCode::invalid, {"deeper", "32"});
  expect_error([] { (void)parse_json(std::string(1000000, '['), "f"); }, ErrorCode::invalid, {"deeper"});
  expect_error([] { (void)parse_json("[1,2,3]", "f", {.bytes = 6}); }, ErrorCode::invalid, {"6", "7"});
}

TEST(Json, FilesThatAreSomethingElse) {
  const TempDir dir;
  const std::string pointer =
      dir.write("a.json", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 548105171\n");
  expect_error([&] { (void)read_json(pointer); }, ErrorCode::invalid, {"a.json", "Git LFS pointer", "548105171"});
  expect_error([&] { (void)read_json(dir.write("b.json", " \n<!doctype HTML>")); }, ErrorCode::invalid,
               {"b.json", "html"});
  expect_error([&] { (void)read_json(dir.file("none.json")); }, ErrorCode::io, {"none.json"});
  EXPECT_EQ(read_json(dir.write("c.json", "{\"a\": 1}\n"))["a"], 1);
}

TEST(Sniff, KnowsCommonFormats) {
  const auto known = [](std::string_view text) { return known_format(std::as_bytes(std::span(text))); };
  EXPECT_TRUE(test::names(known("PK\x03\x04..."), "zip"));
  EXPECT_TRUE(test::names(known("\x80\x02}q"), "pickle"));
  EXPECT_EQ(known("abcdefgh"), "");
  EXPECT_EQ(known(""), "");
}

}  // namespace
}  // namespace lamina

#include "io/json.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

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

TEST(JsonReader, TakesWhatIsOfTheTypeAndNamesTheRest) {
  const nlohmann::json root = parse_json(
      R"({"n": -3, "big": 18446744073709551615, "x": 2.5, "t": "a", "b": true, "z": null, "l": [7], "o": {"a b": 1}})",
      "f");
  const JsonReader read(root, "bad file: f.json");
  EXPECT_EQ(read["n"].as<int64_t>(), -3);
  EXPECT_EQ(read["x"].number(), 2.5);
  EXPECT_EQ(read["z"].number(), std::nullopt);
  EXPECT_EQ(read["t"].as<std::string>(), "a");
  EXPECT_EQ(read["none"].as_or(int64_t{5}), 5);
  EXPECT_EQ(read["l"].entry(0).count(), 7);
  EXPECT_EQ(read["o"]["a b"].as<double>(), 1.0);
  const auto refused = [&](const std::function<void()>& call, const char* text) {
    expect_error(call, ErrorCode::invalid, {std::string("bad file: f.json: ") + text});
  };
  refused([&] { (void)read["n"].count(); }, "n, expected a whole number from 0 on, got -3");
  refused([&] { (void)read["big"].as<int64_t>(); },
          "big, expected a whole number below 2^63, got 18446744073709551615");
  refused([&] { (void)read["x"].as<int64_t>(); }, "x, expected a whole number, got 2.5");
  refused([&] { (void)read["t"].as<double>(); }, "t, expected a number, got \"a\"");
  refused([&] { (void)read["n"].as<std::string>(); }, "n, expected a text, got -3");
  refused([&] { (void)read["t"].as_or(false); }, "t, expected true or false, got \"a\"");
  refused([&] { (void)read["b"].number(); }, "b, expected a number or null, got true");
  refused([&] { (void)read["none"].as<std::string>(); }, "none, expected a text, got nothing");
  refused([&] { (void)read["l"]["a"]; }, "l, expected an object, got a list of 1 entries");
  refused([&] { (void)read["l"].entry(1).count(); }, "l[1], expected a whole number, got nothing");
  refused([&] { (void)read["o"].entry(0); }, "o, expected a list, got an object of 1 entries");
  refused([&] { (void)read["o"]["c\nd"].count(); }, "o.\"c\\x0ad\", expected a whole number, got nothing");
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

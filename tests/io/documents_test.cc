#include "io/documents.h"

#include <gtest/gtest.h>

#include "io/files.h"

namespace lamina {
namespace {

using test::expect_error;
using test::TempDir;

std::vector<std::string> texts(DocumentReader reader) {
  std::vector<std::string> out;
  for (auto documents = reader.next(); !documents.empty(); documents = reader.next())
    for (const Document& document : documents) out.emplace_back(document.text);
  return out;
}

TEST(Documents, FilesAndLines) {
  const TempDir dir;
  const std::string plain = dir.write("a.txt", "\xEF\xBB\xBFone\r\n\r\ntwo");
  const std::string lines = dir.write("b.jsonl",
                                      "\xEF\xBB\xBF{\"text\": \"é\\n\\u00e9\\ud83d\\ude42\", \"id\": 1}\r\n"
                                      "\n  \r\n"
                                      "{\"id\": {\"text\": \"inner\"}, \"text\": \"\"}\n"
                                      "{\"text\": \"last\\u0000\"}");
  std::vector<std::string> said;
  const auto say = [&](const std::string& line) { said.push_back(line); };
  EXPECT_EQ(texts(DocumentReader({plain, lines, plain}, {}, say)),
            (std::vector<std::string>{"one\r\n\r\ntwo", "é\né🙂", "", std::string("last\0", 5), "one\r\n\r\ntwo"}));
  EXPECT_EQ(said.size(), 3u);
  EXPECT_TRUE(test::names(said[1], "b.jsonl: byte-order mark"));
  EXPECT_TRUE(texts(DocumentReader({dir.write("empty.jsonl", "")}, {})).empty());
  EXPECT_EQ(texts(DocumentReader({dir.write("empty.txt", "")}, {})), std::vector<std::string>{""});
  EXPECT_TRUE(texts(DocumentReader({}, {})).empty());
  const std::string other = dir.write("c.jsonl", R"({"body": "x", "text": 1})");
  EXPECT_EQ(texts(DocumentReader({other}, {.text_field = "body"})), std::vector<std::string>{"x"});
}

TEST(Documents, BadLinesNameFileAndLine) {
  const TempDir dir;
  const auto refuse = [&](const std::string& line, std::vector<std::string> words) {
    const std::string path = dir.write("bad.jsonl", "{\"text\": \"a\"}\n\n" + line + "\n");
    words.push_back("bad.jsonl: line 3");
    expect_error([&] { (void)texts(DocumentReader({path}, {})); }, ErrorCode::invalid, words);
  };
  refuse("[1, 2]", {"object", "list"});
  refuse("\"text\"", {"object", "text"});
  refuse("null", {"object", "null"});
  refuse("{}", {"text", "none"});
  refuse(R"({"content": "x", "id": 3})", {"\"text\"", "\"content\"", "\"id\""});
  refuse(R"({"text": 7})", {"\"text\"", "7"});
  refuse(R"({"text": null})", {"\"text\"", "null"});
  refuse(R"({"text": ["x"]})", {"\"text\"", "list"});
  refuse(R"({"text": "x")", {"byte"});
  refuse(R"({"text": "x"} {})", {"byte"});
  refuse(R"({"text": "x", "text": "y"})", {"duplicate", "text"});
  refuse(R"({"text": "\ud800"})", {"surrogate"});
  refuse("{\"text\": \"a\tb\"}", {"byte"});
  refuse(std::string(100, '['), {"nested"});
  std::string many = "{";
  for (int i = 0; i < 1000; ++i) many += (i == 0 ? "\"k" : ", \"k") + std::to_string(i) + "\": 0";
  refuse(many + "}", {"\"text\"", "\"k0\""});
}

TEST(Documents, IllFormedBytesOfLines) {
  const TempDir dir;
  const std::string path = dir.write("bad.jsonl", "{\"text\": \"a\xFF\"}\n");
  expect_error([&] { (void)texts(DocumentReader({path}, {})); }, ErrorCode::invalid, {"bad.jsonl", "byte 11", "ff"});
  EXPECT_EQ(texts(DocumentReader({path}, {.invalid = InvalidUtf8::replace})),
            std::vector<std::string>{"a\xEF\xBF\xBD"});
}

// What is open at a time does not grow with the corpus; nothing is lost between two parts of it.
TEST(Documents, ManyAndLarge) {
  const TempDir dir;
  std::string lines;
  for (int i = 0; i < 50; ++i)
    lines += "{\"text\": \"" + std::string(1 << 20, static_cast<char>('a' + i % 26)) + "\"}\n";
  const std::string large = dir.write("large.jsonl", lines);
  std::vector<std::string> files{large};
  for (int i = 0; i < 1500; ++i) files.push_back(dir.write(std::to_string(i) + ".txt", std::to_string(i)));
  DocumentReader reader(files, {});
  std::vector<size_t> parts;
  size_t count = 0;
  for (auto documents = reader.next(); !documents.empty(); documents = reader.next()) {
    parts.push_back(documents.size());
    for (const Document& document : documents) {
      if (count < 50)
        ASSERT_EQ(document.text, std::string(1 << 20, static_cast<char>('a' + count % 26)));
      else
        ASSERT_EQ(document.text, std::to_string(count - 50));
      ++count;
    }
  }
  EXPECT_EQ(count, 1550u);
  EXPECT_GE(parts.size(), 5u);
  EXPECT_LE(*std::max_element(parts.begin(), parts.end()), 1100u);
}

}  // namespace
}  // namespace lamina

#include "io/text_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "io/files.h"

namespace lamina {
namespace {

using test::expect_error;
using test::TempDir;

TEST(DataPaths, FilesFoldersAndPatterns) {
  const TempDir dir;
  for (const char* name :
       {"b.txt", "a.txt", "c.md", ".hidden.txt", "sub/d.txt", "sub/deep/e.txt", ".git/f.txt", "x[1].txt"})
    dir.write(name, "x");
  const auto expect = [&](const std::vector<std::string>& paths, const std::vector<std::string>& names) {
    std::vector<std::string> full, got = expand_data_paths(paths);
    for (const std::string& name : names) full.push_back(dir.file(name));
    EXPECT_EQ(got, full);
  };
  expect({dir.path()}, {"a.txt", "b.txt", "sub/d.txt", "sub/deep/e.txt", "x[1].txt"});
  expect({dir.file("c.md"), dir.file("a.txt")}, {"a.txt", "c.md"});
  expect({dir.file("?.txt")}, {"a.txt", "b.txt"});
  expect({dir.file("*")}, {"a.txt", "b.txt", "c.md", "sub/d.txt", "sub/deep/e.txt", "x[1].txt"});
  expect({dir.file("x[1].txt")}, {"x[1].txt"});  // a file of that name goes before the pattern
  expect({dir.file("a.txt"), dir.file("a.txt"), dir.file("*.txt")}, {"a.txt", "b.txt", "x[1].txt"});
  std::filesystem::create_symlink(dir.file("a.txt"), dir.file("z.txt"));
  std::filesystem::create_directory_symlink(dir.path(), dir.file("sub/circle"));
  EXPECT_EQ(expand_data_paths({dir.path()}).size(), 5u);
  EXPECT_EQ(expand_data_paths({dir.path()}, {".txt", ".md"}).size(), 6u);
}

TEST(DataPaths, NothingThere) {
  const TempDir dir;
  dir.write("sub/a.bin", "x");
  expect_error([&] { (void)expand_data_paths({dir.file("none.txt")}); }, ErrorCode::io, {dir.file("none.txt")});
  expect_error([&] { (void)expand_data_paths({dir.file("*.txt")}); }, ErrorCode::io, {dir.file("*.txt")});
  expect_error([&] { (void)expand_data_paths({dir.path()}); }, ErrorCode::io, {dir.path(), "*.txt"});
  ASSERT_EQ(::mkfifo(dir.file("pipe").c_str(), 0600), 0);
  expect_error([&] { (void)expand_data_paths({dir.file("pipe")}); }, ErrorCode::io, {dir.file("pipe"), "pipe"});
}

TEST(DataPaths, Weights) {
  const TempDir dir;
  for (const char* name : {"a.txt", "b=2", "c=x.txt", "d/e.txt"}) dir.write(name, "x");
  const auto expect = [&](const std::string& argument, const std::string& path, std::optional<double> weight) {
    const WeightedPath got = split_weight(argument);
    EXPECT_EQ(got.path, path);
    EXPECT_EQ(got.weight, weight) << argument;
  };
  expect(dir.file("a.txt"), dir.file("a.txt"), std::nullopt);
  expect(dir.file("a.txt=2"), dir.file("a.txt"), 2.0);
  expect(dir.file("a.txt=0.25"), dir.file("a.txt"), 0.25);
  expect(dir.file("a.txt=1e-3"), dir.file("a.txt"), 1e-3);
  expect(dir.file("d=3"), dir.file("d"), 3.0);
  expect(dir.file("*.txt=3"), dir.file("*.txt"), 3.0);
  expect(dir.file("none=3"), dir.file("none"), 3.0);  // whose absence is found later
  // What is there under the whole name is a path.
  expect(dir.file("b=2"), dir.file("b=2"), std::nullopt);
  expect(dir.file("b=2=5"), dir.file("b=2"), 5.0);
  expect(dir.file("?=2"), dir.file("?=2"), std::nullopt);
  // And what does not end with a number.
  for (const char* name : {"c=x.txt", "a.txt=", "a.txt=two", "a.txt=2x", "a.txt= 2", "=2"}) {
    const std::string path = name[0] == '=' ? name : dir.file(name);
    expect(path, path, std::nullopt);
  }
  for (const char* bad : {"0", "-1", "inf", "nan", "1e999", "-0"})
    expect_error([&] { (void)split_weight(dir.file("a.txt=") + bad); }, ErrorCode::usage, {"--data", "a.txt", bad});
}

TEST(TextFile, Utf8AndByteOrderMark) {
  const TempDir dir;
  const TextFile plain(dir.write("a.txt", "é\r\n\xEF\xBB\xBF"));
  EXPECT_EQ(plain.text(), "é\r\n\xEF\xBB\xBF");
  EXPECT_FALSE(plain.had_bom());
  const TextFile marked(dir.write("b.txt", "\xEF\xBB\xBFtext"));
  EXPECT_EQ(marked.text(), "text");
  EXPECT_TRUE(marked.had_bom());
  EXPECT_EQ(TextFile(dir.write("c.txt", "")).text(), "");
  EXPECT_EQ(TextFile(dir.write("d.txt", "\xEF\xBB\xBF")).text(), "");
}

TEST(TextFile, T3IllFormedBytes) {
  const TempDir dir;
  const std::string path = dir.write("bad.txt",
                                     "ab\xC0\xAF"
                                     "cd\n");
  expect_error([&] { TextFile file(path); }, ErrorCode::invalid, {"bad.txt", "byte 2", "c0"});
  const TextFile repaired(path, InvalidUtf8::replace);
  EXPECT_EQ(repaired.text(),
            "ab\xEF\xBF\xBD\xEF\xBF\xBD"
            "cd\n");
  EXPECT_EQ(repaired.replaced(), 2);
  expect_error(
      [&] {
        TextFile file(dir.write("bom.txt",
                                "\xEF\xBB\xBF"
                                "ab\xFF"));
      },
      ErrorCode::invalid, {"byte 5", "ff"});
  expect_error([&] { TextFile file(dir.file("none.txt")); }, ErrorCode::io, {"none.txt"});
}

}  // namespace
}  // namespace lamina

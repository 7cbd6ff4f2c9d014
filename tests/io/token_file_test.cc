#include "io/token_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <deque>
#include <numeric>

#include "io/tiny.h"

namespace lamina {
namespace {

using test::expect_error;
using test::TempDir;

// ids of the Tiny stream, as a file of this type; ids at the given places replaced.
template <typename T>
std::string stream(size_t count, const std::vector<std::pair<size_t, T>>& wrong = {}) {
  std::vector<T> ids;
  for (size_t i = 0; i < count; ++i) ids.push_back(static_cast<T>(test::tiny_word(2000, i) % 97));
  for (const auto& [at, id] : wrong) ids[at] = id;
  return {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(T)};
}

std::string header(int32_t magic, int32_t version, int32_t count) {
  std::string out(1024, '\0');
  const int32_t words[] = {magic, version, count};
  std::memcpy(out.data(), words, sizeof words);
  return out;
}

TEST(TokenFile, ReadsEveryForm) {
  const TempDir dir;
  const std::vector<int32_t> first = {14, 84, 58, 50, 18, 27, 92, 35};
  const auto check = [&](const std::string& path, std::optional<TokenType> type, TokenType expected) {
    const TokenFile file(path, type);
    EXPECT_EQ(file.size(), 100);
    EXPECT_EQ(file.type(), expected);
    std::vector<int32_t> ids(8);
    file.read(0, ids);
    EXPECT_EQ(ids, first);
    std::vector<int32_t> tail(3);
    file.read(5, tail);
    EXPECT_EQ(tail, (std::vector<int32_t>{27, 92, 35}));
    file.read(100, {});
    file.check_ids(97);
    expect_error([&] { file.check_ids(92); }, ErrorCode::invalid, {path, "position 6", "92"});
  };
  check(dir.write("raw16", stream<uint16_t>(100)), std::nullopt, TokenType::u16);
  check(dir.write("raw32", stream<uint32_t>(100)), TokenType::u32, TokenType::u32);
  check(dir.write("rawi32", stream<int32_t>(100)), TokenType::i32, TokenType::i32);
  check(dir.write("llmc", header(20240520, 1, 100) + stream<uint16_t>(100)), std::nullopt, TokenType::u16);
  check(dir.write("llmc_said", header(20240520, 1, 100) + stream<uint16_t>(100)), TokenType::u16, TokenType::u16);
  check(dir.write("llama", header(20240801, 7, 100) + stream<uint32_t>(100)), std::nullopt, TokenType::u32);
}

TEST(TokenFile, T14IdsOutsideTheVocabulary) {
  const TempDir dir;
  const auto refuse = [&](const std::string& name, const std::string& bytes, TokenType type,
                          const std::vector<std::string>& words) {
    const TokenFile file(dir.write(name, bytes), type);
    expect_error([&] { file.check_ids(97); }, ErrorCode::invalid, words);
  };
  TokenFile(dir.write("sound", stream<uint16_t>(20000))).check_ids(97);
  refuse("a.bin", stream<uint16_t>(20000, {{12345, 97}}), TokenType::u16, {"a.bin", "12345", "97", "24690"});
  refuse("b.bin", stream<uint16_t>(20000, {{19999, 65535}}), TokenType::u16, {"b.bin", "19999", "65535", "97"});
  refuse("c.bin", stream<int32_t>(20000, {{7, -1}}), TokenType::i32, {"c.bin", "7", "-1", "97", "28"});
  refuse("d.bin", stream<uint32_t>(20000, {{7, 4294967295u}}), TokenType::u32, {"d.bin", "7", "4294967295", "97"});
  refuse("e.bin", stream<uint16_t>(20000, {{5, 97}, {4, 98}}), TokenType::u16, {"position 4", "98"});
  const TokenFile file(dir.write("f.bin", header(20240520, 1, 10) + stream<uint16_t>(10, {{9, 97}})));
  expect_error([&] { file.check_ids(97); }, ErrorCode::invalid, {"f.bin", "position 9", "byte 1042"});
}

TEST(TokenFile, T16TooLittle) {
  const TempDir dir;
  for (const size_t count : {0, 1, 16}) TokenFile(dir.write("t.bin", stream<uint16_t>(count))).check_ids(97);
  expect_error([&] { TokenFile(dir.write("odd.bin", stream<uint16_t>(41).substr(1))); }, ErrorCode::invalid,
               {"odd.bin", "81", "2"});
  expect_error([&] { TokenFile(dir.write("odd.bin", stream<uint32_t>(41).substr(2)), TokenType::u32); },
               ErrorCode::invalid, {"odd.bin", "162", "4"});
}

TEST(TokenFile, HeadersThatClaimTooMuch) {
  const TempDir dir;
  const auto refuse = [&](const std::string& bytes, std::vector<std::string> words,
                          std::optional<TokenType> type = std::nullopt, ErrorCode code = ErrorCode::invalid) {
    words.push_back("h.bin");
    expect_error([&] { TokenFile(dir.write("h.bin", bytes), type); }, code, words);
  };
  refuse(header(20240520, 1, 100).substr(0, 500), {"1024", "500"});
  refuse(header(20240520, 1, 100) + stream<uint16_t>(99), {"100", "200", "198"});
  refuse(header(20240520, 1, 100) + stream<uint16_t>(101), {"100", "200", "202"});
  refuse(header(20240520, 1, 100) + stream<uint32_t>(100), {"100", "200", "400"});
  refuse(header(20240520, 1, 2147483647), {"2147483647", "4294967294", "0"});
  refuse(header(20240520, 1, -1), {"-1"});
  const auto other_version = [&](int32_t magic, int32_t version, const std::string& ids) {
    refuse(header(magic, version, 100) + ids,
           {std::to_string(magic), "expected version", fmt::format("got {}", version)}, std::nullopt,
           ErrorCode::unsupported);
  };
  other_version(20240520, 0, stream<uint16_t>(100));
  other_version(20240520, 2, stream<uint16_t>(100));
  other_version(20240520, 7, stream<uint32_t>(100));
  other_version(20240801, 1, stream<uint16_t>(100));
  refuse(header(20240520, 1, 100) + stream<uint16_t>(100), {"u16", "u32"}, TokenType::u32);
  refuse(header(static_cast<int32_t>(__builtin_bswap32(20240520)), 1, 100), {"big-endian"}, std::nullopt,
         ErrorCode::unsupported);
  refuse("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n", {"Git LFS pointer", "12345"});
  expect_error([&] { TokenFile(dir.file("none.bin")); }, ErrorCode::io, {"none.bin"});
  expect_error([&] { TokenFile(dir.path()); }, ErrorCode::io, {dir.path()});
}

TEST(TokenFile, LargerThanMemoryGrowsNothing) {
  const TempDir dir;
  const std::string path = dir.write("sparse.bin", "");
  std::filesystem::resize_file(path, (uintmax_t{5} << 30) + 2);  // beyond 4 GiB, and sparse
  const TokenFile file(path);
  EXPECT_EQ(file.size(), (int64_t{5} << 29) + 1);
  std::vector<int32_t> ids(4, -1);
  file.read(file.size() - 4, ids);
  EXPECT_EQ(ids, std::vector<int32_t>(4, 0));
}

// Memory grows with the window, not with the file: neither checking nor reading leaves anything behind.
TEST(TokenFile, MemoryOfCheckingAndReadingIsBounded) {
  const TempDir dir;
  const TokenFile file(dir.write("big.bin", std::string(64 << 20, '\0')));
  const auto resident = [] {
    std::ifstream status("/proc/self/statm");
    int64_t total = 0, pages = 0;
    status >> total >> pages;
    return pages * 4096;
  };
  const int64_t before = resident();
  file.check_ids(97);
  std::vector<int32_t> ids(1024);
  for (int64_t at = 0; at + 1024 <= file.size(); at += 1024) file.read(at, ids);
  EXPECT_LT(resident() - before, 8 << 20);
}

// Never a signal: the file that a run reads may be cut or replaced under it.
TEST(TokenFile, CutShortWhileInUse) {
  const TempDir dir;
  const TokenFile file(dir.write("cut.bin", stream<uint16_t>(100000)));
  std::filesystem::resize_file(dir.file("cut.bin"), 20000);
  std::vector<int32_t> ids(8);
  file.read(9000, ids);
  expect_error([&] { file.read(9995, ids); }, ErrorCode::io, {"cut.bin", "cut short", "200000", "20000"});
  expect_error([&] { file.check_ids(97); }, ErrorCode::io, {"cut.bin", "cut short"});
  std::filesystem::remove(dir.file("cut.bin"));
  file.read(0, ids);
}

TEST(TokenFile, MoreFilesThanMayBeOpenAtFirst) {
  const TempDir dir;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  if (before.rlim_max < 200) GTEST_SKIP() << "this process may open " << before.rlim_max << " files";
  const rlimit few{100, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const std::string path = dir.write("a.bin", stream<uint16_t>(10));
  std::deque<TokenFile> files;
  for (int i = 0; i < 150; ++i) files.emplace_back(path);
  EXPECT_EQ(files.back().size(), 10);
  files.clear();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(TokenFile, Types) {
  EXPECT_EQ(parse_token_type("u16"), TokenType::u16);
  EXPECT_EQ(parse_token_type("i32"), TokenType::i32);
  EXPECT_FALSE(parse_token_type("u8").has_value());
}

TEST(TokenFile, WriterAndReader) {
  const TempDir dir;
  std::vector<int32_t> ids(70000);
  std::iota(ids.begin(), ids.end(), 0);
  for (int32_t& id : ids) id %= 65536;
  write_token_file(dir.file("w.bin"), ids);
  const TokenFile file(dir.file("w.bin"));
  std::vector<int32_t> back(ids.size());
  file.read(0, back);
  EXPECT_EQ(back, ids);
  expect_error([&] { write_token_file(dir.file("x.bin"), std::vector<int32_t>{65536}); }, ErrorCode::invalid,
               {"x.bin", "65536", "65535"});
  EXPECT_EQ(dir.list(), std::vector<std::string>{"w.bin"});
  {
    TokenFileWriter writer(dir.file("parts.bin"));
    for (size_t at = 0; at < ids.size(); at += 30000)
      writer.add(std::span(ids).subspan(at, std::min<size_t>(30000, ids.size() - at)));
    EXPECT_EQ(writer.size(), 70000);
    TokenFileWriter given_up(dir.file("none.bin"));
    given_up.add(ids);
    writer.commit();
  }
  EXPECT_EQ(test::read_bytes(dir.file("parts.bin")), test::read_bytes(dir.file("w.bin")));
  EXPECT_EQ(dir.list(), (std::vector<std::string>{"parts.bin", "w.bin"}));
}

}  // namespace
}  // namespace lamina

#include "train/data.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "io/files.h"
#include "io/small_bpe.h"
#include "io/tokenizer_files.h"

namespace lamina {
namespace {

using test::expect_error;
using test::TempDir;

const Say kSilent = [](const std::string&) {};

std::vector<int32_t> ids_of(const TokenStream& stream) {
  std::vector<int32_t> out(static_cast<size_t>(stream.size()));
  stream.read(0, out);
  return out;
}

// A folder with the small tokenizer (bytes, 6 merges, <|endoftext|> = 262).
std::string tokenizer_in(const TempDir& dir) {
  save_tokenizer(dir.file("tok"), test::small_tokenizer(), 16);
  return dir.file("tok");
}

std::string text_of(const TokenStream& stream) { return test::small_tokenizer().decode(ids_of(stream)); }

TEST(Data, DocumentsOfFilesAndLinesEndWithEndOfText) {
  const TempDir dir;
  dir.write("d/a.txt", "one\r\n");
  dir.write("d/b.jsonl", "{\"text\": \"two\"}\n{\"text\": \"\"}\n{\"text\": \"<|endoftext|>\"}\n");
  dir.write("d/c.txt", "");
  dir.write("d/e.txt", "\xEF\xBB\xBF");
  std::vector<std::string> said;
  const Data data = open_data({.paths = {dir.file("d")}, .valid_fraction = 0.0, .tokenizers = {tokenizer_in(dir)}},
                              [&](const std::string& line) { said.push_back(line); });
  EXPECT_TRUE(data.is_text);
  EXPECT_EQ(text_of(data.train), "one\r\n<|endoftext|>two<|endoftext|><|endoftext|><|endoftext|>");
  const std::vector<int32_t> ids = ids_of(data.train);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 262), 3);  // the text of one is text
  EXPECT_EQ(data.text_bytes, 5 + 3 + 13);
  EXPECT_EQ(data.sources.size(), 1u);
  EXPECT_EQ(document_end(data, {}), 262);
  EXPECT_TRUE(std::any_of(said.begin(), said.end(),
                          [](const std::string& line) { return test::names(line, "1 special-token text in"); }));
  EXPECT_TRUE(std::any_of(said.begin(), said.end(),
                          [](const std::string& line) { return test::names(line, "e.txt: byte-order mark"); }));
}

TEST(Data, WeightsMakeSources) {
  const TempDir dir;
  const std::string a = dir.write("a=1.txt", std::string(400, 'x')), b = dir.write("b.txt", std::string(200, 'y'));
  DataOptions options{.paths = {b, a}, .tokenizers = {tokenizer_in(dir)}, .seq = 8};
  const Data plain = open_data(options, kSilent);
  ASSERT_EQ(plain.sources.size(), 1u);  // files of one corpus, in the order of their names
  EXPECT_EQ(plain.train.size() + plain.valid.size(), 602);
  EXPECT_EQ(plain.valid.size(), 30);
  EXPECT_EQ(ids_of(plain.train)[0], 87);

  options.paths = {b + "=3", a};
  const Data mixed = open_data(options, kSilent);
  ASSERT_EQ(mixed.sources.size(), 2u);
  EXPECT_EQ(mixed.sources[0].weight, 3.0);
  EXPECT_EQ(mixed.sources[1].weight, 1.0);
  EXPECT_TRUE(test::names(mixed.sources[0].name, "b.txt"));
  EXPECT_EQ(ids_of(mixed.sources[0].ids), std::vector<int32_t>(191, 88));
  EXPECT_EQ(ids_of(mixed.sources[1].ids), std::vector<int32_t>(381, 87));
  // The validation data is the end of each, the whole is what is trained on.
  EXPECT_EQ(text_of(mixed.valid), std::string(9, 'y') + "<|endoftext|>" + std::string(19, 'x') + "<|endoftext|>");
  EXPECT_EQ(mixed.train.size(), 191 + 381);
  EXPECT_EQ(ids_of(mixed.train)[0], 88);

  options.valid = dir.write("v.txt", "zz");
  const Data given = open_data(options, kSilent);
  EXPECT_EQ(text_of(given.valid), "zz<|endoftext|>");
  EXPECT_EQ(given.train.size(), 602);
}

TEST(Data, TokenFilesWithWeights) {
  const TempDir dir;
  write_token_file(dir.file("a.bin"), std::vector<int32_t>{1, 2, 3, 50256, 4});
  write_token_file(dir.file("b.bin"), std::vector<int32_t>{7, 8});
  const Data data = open_data({.paths = {dir.file("a.bin=0.5"), dir.file("b.bin=0.5")}}, kSilent);
  ASSERT_EQ(data.sources.size(), 2u);
  EXPECT_EQ(ids_of(data.train), (std::vector<int32_t>{1, 2, 3, 50256, 4, 7, 8}));
  check_token_files(data, 50257);
  expect_error([&] { check_token_files(data, 50256); }, ErrorCode::invalid, {"a.bin", "position 3", "1030", "50256"});
  // llm.c's convention, from the config where no tokenizer is there.
  EXPECT_EQ(document_end(data, ModelConfig()), 50256);
  ModelConfig without;
  without.eos_token_id.reset();
  expect_error([&] { (void)document_end(data, without); }, ErrorCode::invalid, {"--isolate-documents", "eos_token_id"});
}

TEST(Data, BadPaths) {
  const TempDir dir;
  dir.write("a.txt", "abc");
  write_token_file(dir.file("b.bin"), std::vector<int32_t>{7, 8});
  const std::string tokenizer = tokenizer_in(dir);
  const auto refuse = [&](const std::vector<std::string>& paths, ErrorCode code,
                          const std::vector<std::string>& words) {
    expect_error([&] { (void)open_data({.paths = paths, .tokenizers = {tokenizer}}, kSilent); }, code, words);
  };
  refuse({dir.file("a.txt"), dir.file("b.bin")}, ErrorCode::invalid, {"text", "token"});
  refuse({dir.file("none.txt=2")}, ErrorCode::io, {"none.txt"});
  refuse({dir.file("a.txt=0")}, ErrorCode::usage, {"a.txt", "0"});
  dir.write("c.jsonl", "{\"text\": \"x\"}\n{\"content\": \"x\"}\n");
  refuse({dir.file("c.jsonl")}, ErrorCode::invalid, {"c.jsonl: line 2", "\"content\""});
}

TEST(Data, TokenizerIsTrainedOnAllDocuments) {
  const TempDir dir;
  dir.write("a.txt", "abab abab");
  dir.write("b.jsonl", "{\"text\": \"abab abab\"}\n");
  const Data data = open_data({.paths = {dir.file("a.txt=1"), dir.file("b.jsonl=2")}, .trained_vocab = 259}, kSilent);
  EXPECT_EQ(data.tokenizer_source, "trained");
  EXPECT_EQ(data.tokenizer->vocab_size(), 259);
  EXPECT_EQ(data.tokenizer->token(256), "ab");
  EXPECT_EQ(ids_of(data.sources[0].ids), ids_of(data.sources[1].ids));
}

}  // namespace
}  // namespace lamina

#include "io/formats.h"

#include <gtest/gtest.h>

#include "io/files.h"
#include "io/foreign.h"
#include "io/tiny.h"

namespace lamina {
namespace {

using test::expect_error;
using test::f32;
using test::llmc_bytes;
using test::read_bytes;
using test::TempDir;
using test::tiny_safetensors;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

void refuse(const std::string& file, std::vector<std::string> words) {
  words.push_back("the file");
  expect_error([&] { parse_tensors(bytes_of(file), "the file"); }, ErrorCode::invalid, words);
}

// One tensor "w" in each format.
std::string written(WeightFormat format) {
  const TempDir dir;
  AtomicFile file(dir.file("w"));
  TensorWriter writer(format, file, {{"w", "F32", {1}}});
  writer.write(bytes_of("abcd").first(4));
  writer.finish();
  file.commit();
  return read_bytes(dir.file("w"));
}

TEST(Formats, ContentDecidesNeverTheName) {
  const std::vector<std::pair<std::string, std::string>> files{
      {written(WeightFormat::safetensors), "safetensors"},
      {written(WeightFormat::mindspore_safetensors), "safetensors"},
      {written(WeightFormat::torch), "torch-zip"},
      {written(WeightFormat::mindspore_ckpt), "mindspore-ckpt"},
      {test::torch_legacy(test::pickle(test::pickled_dict(
                              {{"w", test::pickled_tensor({.count = 1, .shape = {1}, .strides = {1}}, true)}})),
                          {{"0", 1, "abcd"}}),
       "torch-legacy"},
      {llmc_bytes(3, 4, 5, 1, 1, 2, 6), "llm.c"}};
  for (const auto& [file, format] : files) {
    const TensorContent content = parse_tensors(bytes_of(file), "model.wrong_ending");
    EXPECT_EQ(content.format, format);
    EXPECT_EQ(content.tensors.at(0).name, format == "llm.c" ? "transformer.wte.weight" : "w");
  }
}

// Lengths of headers that begin like a pickle, a record of MindSpore and llm.c's magic.
TEST(Formats, HeadersOfAnyLength) {
  for (const size_t length : {size_t{0x280}, size_t{0x0A0A}, size_t{0x120A}, size_t{20240326}}) {
    std::string header = R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
    header.resize(length, ' ');
    const std::string file = test::safetensors_bytes_of(header, "abcd");
    EXPECT_EQ(parse_tensors(bytes_of(file), "f").format, "safetensors") << length;
  }
}

TEST(Formats, NoModelFileAtAll) {
  refuse("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 548105171\n",
         {"Git LFS pointer", "548105171"});
  refuse("\n<!DOCTYPE html>\n<html></html>\n", {"not a model file", "html"});
  refuse("\x1f\x8b" + std::string(20, 'x'), {"gzip"});
  refuse("{\"weight_map\": {}}", {"JSON"});
  refuse("PK\x03\x04" + std::string(30, 'x'), {"zip", "truncated"});
  refuse(test::zip_bytes({{"word/document.xml", "<x/>"}}), {"data.pkl"});
  refuse("", {"8", "0"});
  refuse("\x02" + std::string(6, '\0'), {"8", "7"});
  std::string tar(512, '\0');
  tar.replace(0, 7, "storage");
  tar.replace(257, 5, "ustar");
  refuse(tar, {"tar archive", "torch"});
  refuse(std::string(64, 'x'), {"not a model file", "another format"});
}

TEST(Formats, LlmcCheckpoints) {
  for (const int version : {3, 5}) {
    const std::string file = llmc_bytes(version, 4, 5, 2, 1, 2, 6);
    const TensorContent content = parse_tensors(bytes_of(file), "f");
    ASSERT_EQ(content.tensors.size(), 28u);
    EXPECT_EQ(content.tensors[0].name, "transformer.wte.weight");
    EXPECT_EQ(content.tensors[0].shape, (std::vector<int64_t>{6, 2}));
    EXPECT_EQ(content.tensors[0].dtype, version == 3 ? "F32" : "BF16");
    EXPECT_EQ(content.tensors[7].name, "transformer.h.1.attn.c_attn.weight");
    EXPECT_EQ(content.tensors[7].shape, (std::vector<int64_t>{6, 2}));
    EXPECT_EQ(content.metadata.at("vocab_size"), "5");
    refuse(file + "x", {"llm.c"});
    refuse(file.substr(0, file.size() - 1), {"llm.c", std::to_string(file.size() - 1025)});
    refuse(file.substr(0, 100), {"1024", "100"});
  }
  refuse(llmc_bytes(1, 4, 5, 2, 1, 2, 6), {"version", "3 or 5", "1"});
  refuse(llmc_bytes(3, 4, 7, 2, 1, 2, 6), {"padded", "7", "6"});
  refuse(llmc_bytes(3, 4, 5, 0, 1, 2, 6), {"header", "0"});
  std::string huge = llmc_bytes(3, 4, 5, 2, 1, 2, 6);
  huge.replace(4 * 6, 4, test::le32(1 << 24));
  huge.replace(4 * 4, 4, test::le32(1 << 14));
  refuse(huge, {"16384 layers"});
}

TEST(Formats, FoldersAndShards) {
  const TempDir dir;
  const auto index = [&](const std::string& map) {
    dir.write("pytorch_model.bin.index.json", R"({"weight_map":)" + map + "}");
  };
  expect_error([&] { open_weights(dir.path()); }, ErrorCode::io, {"no weights", "pytorch_model.bin", "model.ckpt"});
  dir.write("a.bin", tiny_safetensors({f32("x", {1}, {1})}));
  dir.write("b.bin", written(WeightFormat::torch));
  index(R"({"x":"a.bin","w":"b.bin"})");
  const WeightFiles both = open_weights(dir.path());
  ASSERT_EQ(both.files.size(), 2u);
  EXPECT_EQ(both.files[1].content().format, "torch-zip");
  EXPECT_TRUE(both.warnings.empty());
  index(R"({"x":"a.bin","w":"c.bin"})");
  expect_error([&] { open_weights(dir.path()); }, ErrorCode::invalid, {"shard missing", "c.bin"});
  index(R"({"x":"b.bin","w":"b.bin"})");
  expect_error([&] { open_weights(dir.path()); }, ErrorCode::invalid, {"missing", "x"});
  index(R"({"x":"a.bin"})");
  EXPECT_EQ(open_weights(dir.path()).warnings.size(), 1u);  // b.bin
  dir.write("model.ckpt", written(WeightFormat::mindspore_ckpt));
  dir.write("pytorch_model.bin", written(WeightFormat::torch));
  const WeightFiles one = open_weights(dir.path());
  ASSERT_EQ(one.files.size(), 1u);
  EXPECT_EQ(one.files[0].content().format, "torch-zip");
  EXPECT_EQ(one.warnings.size(), 3u);  // a.bin holds no archive: it could be anything
}

TEST(Formats, WhatMindsporesOwnReaderWouldRefuseIsNotWritten) {
  const TempDir dir;
  AtomicFile file(dir.file("m"));
  const auto refused = [&](const std::vector<TensorEntry>& entries, const std::vector<std::string>& words) {
    expect_error([&] { TensorWriter(WeightFormat::mindspore_safetensors, file, entries); }, ErrorCode::unsupported,
                 words);
  };
  refused({}, {"one tensor"});
  refused({{"w", "F8_E4M3", {1}}}, {"w", "F8_E4M3"});
  refused({{"format", "F32", {1}}}, {"format", "metadata"});
  refused({{"__metadata__", "F32", {1}}}, {"__metadata__"});
  EXPECT_EQ(file.size(), 0);
  const std::string bytes = written(WeightFormat::mindspore_safetensors);
  EXPECT_EQ(parse_tensors(bytes_of(bytes), "m").metadata.at("format"), "ms");
}

TEST(Formats, MindsporesSumOfASafetensorsFile) {
  const std::string sum = std::to_string(crc32(bytes_of("abcd"), crc32(bytes_of("w"))));
  const auto file = [](const std::string& stated) {
    return test::safetensors_bytes_of(R"({"__metadata__":{"format":"ms","crc_num":")" + stated +
                                          R"("},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                                      "abcd");
  };
  const std::string sound = file(sum), damaged = file("12");
  check_sums(parse_tensors(bytes_of(sound), "f"), "f");
  expect_error([&] { check_sums(parse_tensors(bytes_of(damaged), "f"), "f"); }, ErrorCode::invalid,
               {"crc_num", "12", sum});
}

}  // namespace
}  // namespace lamina

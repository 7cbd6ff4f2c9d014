#include "io/mindspore_ckpt.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "io/files.h"
#include "io/foreign.h"
#include "io/formats.h"

namespace lamina {
namespace {

using test::ckpt_record;
using test::ckpt_trailer;
using test::expect_error;
using test::proto;
using test::TempDir;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

TensorContent parse(const std::string& file) {
  TensorContent content = parse_tensors(bytes_of(file), "f.ckpt");
  check_sums(content, "f.ckpt");
  return content;
}

void refuse(const std::string& file, std::vector<std::string> words, ErrorCode code = ErrorCode::invalid) {
  words.push_back("f.ckpt");
  expect_error([&] { parse(file); }, code, words);
}

std::string packed(const StoredTensor& tensor) {
  std::string out;
  for_each_part(tensor, [&](std::span<const std::byte> part) {
    out.append(reinterpret_cast<const char*>(part.data()), part.size());
  });
  return out;
}

TEST(MindsporeCkpt, RecordsOfEveryKind) {
  const std::string utf32("h\0\0\0\xE9\0\0\0\x42\xF6\x01\0", 12);
  const std::string body = ckpt_record("w", "Float32", {1, 2}, "abcdefgh") +
                           ckpt_record("scalar", "BFloat16", {}, "xy") +
                           ckpt_record("old_scalar", "Int64", {0}, "12345678") +
                           ckpt_record("none", "Float16", {0, 3}, "") + ckpt_record("nothing", "Bool", {0}, "") +
                           ckpt_record("note", "str", {0}, utf32) + ckpt_record("parts", "UInt8", {5}, "ab") +
                           ckpt_record("parts", "UInt8", {5}, "c") + ckpt_record("parts", "UInt8", {5}, "de");
  for (const std::string& file : {body, body + ckpt_trailer(body)}) {
    const TensorContent content = parse(file);
    EXPECT_EQ(content.format, "mindspore-ckpt");
    ASSERT_EQ(content.tensors.size(), 6u);
    EXPECT_EQ(content.tensors[0].shape, (std::vector<int64_t>{1, 2}));
    EXPECT_EQ(packed(content.tensors[0]), "abcdefgh");
    EXPECT_EQ(content.tensors[1].dtype, "BF16");
    EXPECT_TRUE(content.tensors[1].shape.empty());
    EXPECT_TRUE(content.tensors[2].shape.empty());
    EXPECT_EQ(packed(content.tensors[2]), "12345678");
    EXPECT_EQ(content.tensors[3].shape, (std::vector<int64_t>{0, 3}));
    EXPECT_EQ(content.tensors[4].bytes, 0);
    EXPECT_EQ(content.tensors[5].pieces.size(), 3u);
    EXPECT_EQ(packed(content.tensors[5]), "abcde");
    ASSERT_EQ(content.values.size(), 1u);
    EXPECT_EQ(std::get<std::string>(content.values[0].value), "hé🙂");
  }
}

TEST(MindsporeCkpt, C18SpellingsOfTypes) {
  for (const char* type : {"Float16", "mindspore.float16", "mindspore.Float16", "float16"})
    EXPECT_EQ(parse(ckpt_record("w", type, {1}, "ab")).tensors.at(0).dtype, "F16");
  for (const char* type : {"Float8", "Int4", "mindspore.", "torch.float16", ""})
    refuse(ckpt_record("probe.weight", type, {1}, "a"), {"probe.weight", type[0] == '\0' ? "tensor_type" : type});
}

TEST(MindsporeCkpt, AnyOrderPackedDimsAndUnknownFields) {
  const std::string tensor = proto(0x1A, "abcdefgh") + proto(0x12, "Float32") + proto(0x0A, "\x01\x02") +
                             proto(0x7A, "?") +
                             std::string(
                                 "\x41"
                                 "01234567"
                                 "\x3D"
                                 "0123"
                                 "\x28\x07",
                                 16);
  const TensorContent content = parse(proto(0x0A, proto(0x12, tensor) + proto(0x0A, "w")));
  EXPECT_EQ(content.tensors.at(0).shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(content.tensors.at(0).name, "w");
}

TEST(MindsporeCkpt, WhatMindsporeWouldReadWrong) {
  refuse(ckpt_record("probe.weight", "Float32", {2, 3}, std::string(20, '\0')), {"probe.weight", "24", "20"});
  refuse(ckpt_record("probe.weight", "Float32", {1}, std::string(8, '\0')), {"probe.weight", "4", "8"});
  refuse(ckpt_record("probe.weight", "Float32", {}, ""), {"probe.weight", "4", "0"});
  refuse(
      ckpt_record("w", "UInt8", {1}, "a") + ckpt_record("v", "UInt8", {1}, "a") + ckpt_record("w", "UInt8", {1}, "a"),
      {"duplicate", "w"});
  refuse(ckpt_record("w", "UInt8", {1}, "a") + ckpt_record("w", "UInt8", {1}, "a"), {"w", "1", "2"});
  refuse(ckpt_record("w", "UInt8", {2}, "a") + ckpt_record("w", "UInt8", {3}, "a"), {"parts", "[2]", "[3]"});
  refuse(proto(0x0A, proto(0x12, proto(0x12, "UInt8"))), {"name"});
  refuse(proto(0x0A, proto(0x0A, "w")), {"w", "tensor"});
  refuse(proto(0x0A, proto(0x0A, "w") + proto(0x12, proto(0x1A, "a"))), {"w", "type"});
  refuse(proto(0x0A, proto(0x0A, "w") + proto(0x1A, "a")), {"w", "hash table"}, ErrorCode::unsupported);
  refuse(ckpt_record("\xFF", "UInt8", {1}, "a"), {"UTF-8"});
  std::string dims;
  for (int i = 0; i < 3; ++i) dims += "\x08" + std::string(4, '\xFF') + "\x7F";
  refuse(proto(0x0A, proto(0x0A, "w") + proto(0x12, dims + proto(0x12, "Float32"))), {"w", "possible"});
  refuse(proto(0x0A, proto(0x0A, "w") + proto(0x12, "\x08" + std::string(9, '\xFF') + "\x01" + proto(0x12, "Float32"))),
         {"w", "possible shape"});
  refuse(ckpt_record("s", "str", {0}, "abc"), {"s", "UTF-32"});
}

TEST(MindsporeCkpt, DamagedAndEncryptedFiles) {
  const std::string body = ckpt_record("a", "UInt8", {1}, "a") + ckpt_record("w", "Float32", {2}, "abcdefgh");
  for (size_t size = 5; size < body.size(); ++size)
    if (size != ckpt_record("a", "UInt8", {1}, "a").size()) refuse(body.substr(0, size), {"truncated"});
  std::string flipped = body + ckpt_trailer(body);
  flipped[body.size() - 1] ^= 1;
  refuse(flipped, {"damaged", "CRC-32"});
  std::string long_sum = body + ckpt_trailer(body);
  long_sum[body.size() + 8] = 1;
  refuse(long_sum, {"crc_num"});
  refuse(body + "x", {"record", "0x78"});
  for (const char mode : {'\xD8', '\xD9', '\xDA'})
    refuse(std::string(1, mode) + "\x5E\x3A\x7F" + std::string(40, 'x'), {"encrypted"}, ErrorCode::unsupported);
}

TEST(MindsporeCkpt, WriterInChunks) {
  const TempDir dir;
  const std::vector<TensorEntry> entries{
      {"w", "F32", {2, 3}}, {"none", "F16", {0}}, {"s", "BF16", {}}, {"last", "U8", {300}}};
  const std::string data = "abcdefghijklmnopqrstuvwx" + std::string("yz") + std::string(300, 'u');
  dir.write("m.ckpt", "old");
  ASSERT_EQ(::chmod(dir.file("m.ckpt").c_str(), 0400), 0);  // as MindSpore leaves its files
  AtomicFile file(dir.file("m.ckpt"));
  CkptWriter writer(file, entries, {.chunk = 10});
  writer.write(bytes_of(data).first(13));
  writer.write(bytes_of(data).subspan(13));
  writer.finish();
  file.commit();
  const TensorFile read(dir.file("m.ckpt"));
  check_sums(read.content(), "m.ckpt");
  ASSERT_EQ(read.content().tensors.size(), 4u);
  EXPECT_EQ(read.content().tensors[0].pieces.size(), 3u);
  EXPECT_EQ(packed(read.content().tensors[0]), data.substr(0, 24));
  EXPECT_EQ(packed(read.content().tensors[2]), "yz");
  EXPECT_EQ(packed(read.content().tensors[3]), std::string(300, 'u'));
  AtomicFile refused(dir.file("r"));
  expect_error([&] { CkptWriter(refused, {{"c", "C64", {}}}); }, ErrorCode::unsupported, {"c", "C64"});
  expect_error([&] { CkptWriter(refused, {{"c", "F32", {}}, {"c", "F32", {}}}); }, ErrorCode::invalid, {"duplicate"});
}

}  // namespace
}  // namespace lamina

#include "io/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "io/files.h"

namespace lamina {
namespace {

using test::expect_error;
using test::read_bytes;
using test::safetensors_bytes_of;
using test::TempDir;

std::string entry(const std::string& shape, const std::string& offsets, const std::string& dtype = "F32") {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

std::string one(const std::string& shape, const std::string& offsets, const std::string& dtype = "F32") {
  return R"({"probe.weight":)" + entry(shape, offsets, dtype) + "}";
}

Safetensors parse(const std::string& file, const SafetensorsLimits& limits = {}) {
  return parse_safetensors(std::as_bytes(std::span(file)), "f.safetensors", limits);
}

// The header is refused, by a message that names the file and the words.
void expect_refused(const std::string& header, size_t data, std::vector<std::string> words) {
  words.push_back("f.safetensors");
  const std::string file = safetensors_bytes_of(header, std::string(data, '\0'));
  expect_error([&] { (void)parse(file); }, ErrorCode::invalid, words);
}

int64_t resident_bytes() {
  std::ifstream status("/proc/self/statm");
  int64_t total = 0, resident = 0;
  status >> total >> resident;
  return resident * 4096;
}

TEST(Safetensors, RoundTrip) {
  const TempDir dir;
  std::vector<float> a(6);
  std::iota(a.begin(), a.end(), 1.0f);
  const uint32_t nan_with_payload = 0x7FC12345;
  std::memcpy(&a[5], &nan_with_payload, 4);
  AtomicFile out(dir.file("m.safetensors"));
  SafetensorsWriter writer(out,
                           {{"a", "F32", {2, 3}}, {"scalar", "F16", {}}, {"none", "I64", {4, 0}}, {"é\"", "U8", {3}}});
  writer.write(std::as_bytes(std::span(a)).first(10));
  writer.write(std::as_bytes(std::span(a)).subspan(10));
  writer.write(std::as_bytes(std::span("ABCDE", 5)));
  writer.finish();
  out.commit();

  const std::string bytes = read_bytes(dir.file("m.safetensors"));
  EXPECT_EQ((bytes[0] + bytes[1] * 256) % 8, 0);
  const SafetensorsFile file(dir.file("m.safetensors"));
  ASSERT_EQ(file.tensors().size(), 4u);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  const SafetensorsTensor* found = file.find("a");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(std::memcmp(found->bytes.data(), a.data(), 24), 0);
  EXPECT_EQ(file.find("scalar")->bytes.size(), 2u);
  EXPECT_EQ(file.find("none")->bytes.size(), 0u);
  EXPECT_EQ(file.find("é\"")->bytes.size(), 3u);
  EXPECT_EQ(file.find("b"), nullptr);
}

TEST(Safetensors, EqualContentGivesEqualBytes) {
  const TempDir dir;
  for (const char* name : {"1", "2"}) {
    AtomicFile out(dir.file(name));
    SafetensorsWriter writer(out, {{"w", "F32", {1}}}, {{"z", "1"}, {"a", "2"}, {"format", "ms"}});
    writer.write(std::as_bytes(std::span("abcd", 4)));
    writer.finish();
    out.commit();
  }
  EXPECT_EQ(read_bytes(dir.file("1")), read_bytes(dir.file("2")));
  EXPECT_EQ(SafetensorsFile(dir.file("1")).metadata().at("format"), "ms");
}

TEST(Safetensors, ReadsWhatTheFormatAllows) {
  EXPECT_TRUE(parse(safetensors_bytes_of("{}", "")).tensors.empty());
  EXPECT_TRUE(parse(safetensors_bytes_of("{}      ", "")).tensors.empty());
  for (const char* metadata :
       {"", R"("__metadata__":{},)", R"("__metadata__":null,)", R"("__metadata__":{"step":"7"},)"}) {
    const std::string header = "{" + std::string(metadata) + R"("probe.weight":)" + entry("[2]", "[0,8]") + "}";
    // The tensors are views: the bytes must outlive them.
    const std::string bytes = safetensors_bytes_of(header, std::string("\0\0\x80\x3f\0\0\0\x40", 8));
    const Safetensors content = parse(bytes);
    ASSERT_EQ(content.tensors.size(), 1u);
    float values[2];
    std::memcpy(values, content.tensors[0].bytes.data(), 8);
    EXPECT_EQ(values[0], 1.0f);
    EXPECT_EQ(values[1], 2.0f);
    EXPECT_EQ(content.metadata.size(), std::string(metadata).find("step") != std::string::npos ? 1u : 0u);
  }
  // Ranges in any order, empty tensors between them, keys in any order, a number of types.
  const std::string file = safetensors_bytes_of(
      R"({"b":{"data_offsets":[4,8],"shape":[],"dtype":"I32"},"e":)" + entry("[0,9223372036854775807,3]", "[4,4]") +
          R"(,"a":)" + entry("[2]", "[0,4]", "BF16") + R"(,"q":)" + entry("[4]", "[8,10]", "F4") + "}",
      std::string(10, '\0'));
  const Safetensors content = parse(file);
  ASSERT_EQ(content.tensors.size(), 4u);
  EXPECT_EQ(content.tensors[0].name, "a");
  EXPECT_EQ(content.tensors[1].name, "e");
  EXPECT_EQ(content.tensors[2].name, "b");
  EXPECT_EQ(content.tensors[3].name, "q");
}

TEST(Safetensors, C3DuplicateNames) {
  const std::string first = entry("[1]", "[0,4]"), second = entry("[1]", "[4,8]");
  expect_refused(R"({"probe.weight":)" + first + R"(,"probe.weight":)" + first + "}", 4, {"duplicate", "probe.weight"});
  expect_refused(R"({"probe.weight":)" + first + R"(,"probe.weight":)" + second + "}", 8,
                 {"duplicate", "probe.weight"});
  expect_refused(R"({"probe.weight":{"dtype":"F32","shape":[1],"shape":[2],"data_offsets":[0,8]}})", 8,
                 {"duplicate", "probe.weight", "shape"});
  expect_refused(R"({"__metadata__":{},"__metadata__":{}})", 0, {"duplicate", "__metadata__"});
  expect_refused(R"({"__metadata__":{"a":"1","a":"1"}})", 0, {"duplicate", "\"a\""});
  // The same name in another spelling of JSON.
  expect_refused(R"({"probe.weight":)" + first + R"(,"probe\u002eweight":)" + second + "}", 8,
                 {"duplicate", "probe.weight"});
}

TEST(Safetensors, C4HeaderLength) {
  const TempDir dir;
  const auto refuse = [&](const std::string& path, const std::vector<std::string>& words) {
    expect_error([&] { SafetensorsFile file(path); }, ErrorCode::invalid, words);
  };
  const int64_t before = resident_bytes();
  const int64_t big = 101 << 20;
  const std::string path = dir.write("big.safetensors", std::string("\0\0\x50\x06\0\0\0\0{", 9));
  std::filesystem::resize_file(path, static_cast<uintmax_t>(8 + big));
  refuse(path, {"105906176", "100000000", "big.safetensors"});
  refuse(dir.write("a", std::string("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF{}", 10)), {"18446744073709551615", "10"});
  refuse(dir.write("b", std::string("\0\0\0\0\0\0\0\x80{}", 10)), {"9223372036854775808", "10"});
  refuse(dir.write("c", std::string("\0\0\0\0\0\0\0\x10{}", 10)), {"1152921504606846976", "10"});
  refuse(dir.write("d", std::string("\3\0\0\0\0\0\0\0{}", 10)), {"3", "10"});
  refuse(dir.write("e", ""), {"0", "8"});
  refuse(dir.write("f", std::string("\2\0\0\0\0\0\0", 7)), {"7", "8"});
  EXPECT_LT(resident_bytes() - before, 16 << 20);
  EXPECT_NO_THROW((void)parse(safetensors_bytes_of("{}  ", ""), {.header_bytes = 4}));
  expect_error([] { (void)parse(safetensors_bytes_of("{}  ", ""), {.header_bytes = 3}); }, ErrorCode::invalid,
               {"3", "4"});
}

TEST(Safetensors, C5NotAModelAtAll) {
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:0123456789abcdef\nsize 548105171\n";
  expect_error([&] { (void)parse(pointer); }, ErrorCode::invalid, {"f.safetensors", "Git LFS pointer", "548105171"});
  expect_error([] { (void)parse("<!DOCTYPE html>\n<html><head></head></html>\n"); }, ErrorCode::invalid,
               {"f.safetensors", "not a model file", "html"});
  try {
    (void)parse(std::string("PK\x03\x04") + std::string(100, 'x'));
    FAIL();
  } catch (const Error& error) {
    EXPECT_TRUE(test::names(error.hint(), "zip"));
  }
}

TEST(Safetensors, C8ShapeAndRangeDisagree) {
  expect_refused(one("[1000,1000]", "[0,4]"), 4, {"probe.weight", "4000000", "4"});
  expect_refused(one("[1]", "[0,8]"), 8, {"probe.weight", "4", "8"});
  expect_refused(one("[1]", "[0,4]"), 3, {"probe.weight", "4", "3"});
  expect_refused(one("[1]", "[4,0]"), 4, {"probe.weight"});
  expect_refused(one("[4294967296,4294967296]", "[0,0]"), 0, {"probe.weight", "4294967296"});
  expect_refused(one("[4611686018427387904,4]", "[0,0]"), 0, {"probe.weight"});
  expect_refused(one("[3]", "[0,1]", "F4"), 1, {"probe.weight", "F4"});
  expect_refused(one("[]", "[0,0]"), 0, {"probe.weight", "4", "0"});
}

TEST(Safetensors, RangesTileTheData) {
  const auto two = [](const char* a, const char* b) {
    return R"({"a":)" + entry("[1]", a) + R"(,"b":)" + entry("[1]", b) + "}";
  };
  EXPECT_EQ(parse(safetensors_bytes_of(two("[4,8]", "[0,4]"), std::string(8, '\0'))).tensors[0].name, "b");
  expect_refused(two("[0,4]", "[0,4]"), 4, {"\"b\"", "overlaps"});
  expect_refused(two("[0,4]", "[2,6]"), 6, {"\"b\"", "overlaps", "4"});
  expect_refused(two("[0,4]", "[5,9]"), 9, {"\"b\"", "gap", "4"});
  expect_refused(two("[1,5]", "[5,9]"), 9, {"\"a\"", "gap", "0"});
  expect_refused(two("[0,4]", "[4,8]"), 9, {"8", "9"});
  expect_refused("{}", 1, {"0", "1"});
}

TEST(Safetensors, RefusesTheRestByName) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {one("[-1]", "[0,4]"), {"probe.weight", "-1"}},
      {one("[1.0]", "[0,4]"), {"probe.weight", "1.0"}},
      {one("[18446744073709551615]", "[0,4]"), {"probe.weight", "18446744073709551615"}},
      {one("[\"1\"]", "[0,4]"), {"probe.weight", "shape"}},
      {one("[[1]]", "[0,4]"), {"probe.weight", "a list"}},
      {one("1", "[0,4]"), {"probe.weight", "shape"}},
      {one("[1]", "[0]"), {"probe.weight", "data_offsets", "2", "1"}},
      {one("[1]", "[0,4,8]"), {"probe.weight", "data_offsets", "2", "3"}},
      {one("[1]", "[0,null]"), {"probe.weight", "null"}},
      {one("[1]", "[0,4]", "F33"), {"probe.weight", "F33"}},
      {R"({"probe.weight":{"dtype":4,"shape":[1],"data_offsets":[0,4]}})", {"probe.weight", "dtype"}},
      {R"({"probe.weight":{"shape":[1],"data_offsets":[0,4]}})", {"probe.weight", "dtype", "missing"}},
      {R"({"probe.weight":{"dtype":"F32","data_offsets":[0,4]}})", {"probe.weight", "shape", "missing"}},
      {R"({"probe.weight":{"dtype":"F32","shape":[1]}})", {"probe.weight", "data_offsets", "missing"}},
      {R"({"probe.weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", {"probe.weight", "\"x\""}},
      {R"({"probe.weight":null})", {"probe.weight", "null"}},
      {R"({"probe.weight":[]})", {"probe.weight", "a list"}},
      {R"({"__metadata__":{"a":1}})", {"metadata", "\"a\"", "1"}},
      {R"({"__metadata__":{"a":{}}})", {"metadata", "\"a\""}},
      {R"({"__metadata__":"x"})", {"__metadata__"}},
      {R"({"a\u0000b":)" + entry("[1]", "[0,4]") + "}", {"zero byte"}},
      {"[]", {"byte 8"}},
      {" {}", {"byte 8"}},
      {"", {"byte 8"}},
      {"{", {"byte"}},
      {"{}x", {"byte"}},
      {"{}" + std::string(1, '\0'), {"byte"}},
      {"{\"\xFF\":1}", {"byte"}},
      {R"({"a":)" + std::string(100000, '['), {"\"a\""}},
      {R"({"a":{"dtype":{"a":{"a":1}}}})", {"\"a\"", "dtype"}},
  };
  for (const auto& [header, words] : cases) expect_refused(header, 4, words);
}

TEST(Safetensors, NoReadOutsideATruncatedFile) {
  const std::string whole = safetensors_bytes_of(one("[2,2]", "[0,16]"), std::string(16, 'x'));
  EXPECT_EQ(parse(whole).tensors.size(), 1u);
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::vector<std::byte> cut(std::as_bytes(std::span(whole)).begin(),
                                     std::as_bytes(std::span(whole)).begin() + static_cast<ptrdiff_t>(size));
    EXPECT_THROW((void)parse_safetensors(cut, "f"), Error) << size;
  }
}

TEST(SafetensorsDeathTest, WriterHoldsTheCallerToItsWord) {
  const TempDir dir;
  AtomicFile out(dir.file("f"));
  EXPECT_DEATH(
      {
        SafetensorsWriter writer(out, {{"a", "U8", {2}}});
        writer.write(std::as_bytes(std::span("abc", 3)));
      },
      "more than announced");
  EXPECT_DEATH(SafetensorsWriter(out, {{"a", "U8", {2}}}).finish(), "missing");
  EXPECT_DEATH(SafetensorsWriter(out, {{"a", "U8", {2}}, {"a", "U8", {2}}}), "twice");
}

}  // namespace
}  // namespace lamina

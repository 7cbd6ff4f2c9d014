#include "io/torch_file.h"

#include <gtest/gtest.h>

#include "io/files.h"
#include "io/foreign.h"
#include "io/formats.h"
#include "io/pickle.h"

namespace lamina {
namespace {

using test::expect_error;
using test::pickle;
using test::pickled_dict;
using test::pickled_number;
using test::pickled_tensor;
using test::pickled_text;
using test::read_bytes;
using test::TempDir;
using test::torch_legacy;
using test::torch_zip;
using test::Window;

const std::string kFour("\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0", 16);

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string packed(const StoredTensor& tensor) {
  std::string out;
  for_each_part(tensor, [&](std::span<const std::byte> part) {
    out.append(reinterpret_cast<const char*>(part.data()), part.size());
  });
  return out;
}

// The first byte of each element of four bytes.
std::vector<int> elements(const StoredTensor& tensor) {
  const std::string bytes = packed(tensor);
  std::vector<int> out;
  for (size_t i = 0; i < bytes.size(); i += 4) out.push_back(bytes[i]);
  return out;
}

void refuse(const std::string& file, std::vector<std::string> words) {
  words.push_back("f.pt");
  expect_error([&] { check_sums(parse_tensors(bytes_of(file), "f.pt"), "f.pt"); }, ErrorCode::invalid, words);
}

void refuse_pickle(const std::string& value, const std::vector<std::string>& words) {
  refuse(torch_zip(pickle(value), {kFour}), words);
}

TEST(TorchFile, WindowsOnStorages) {
  const std::string file =
      torch_zip(pickle(pickled_dict({{"w", pickled_tensor({})},
                                     {"t", pickled_tensor({.strides = {1, 2}})},
                                     {"tied", pickled_tensor({})},
                                     {"last", pickled_tensor({.offset = 3, .shape = {}, .strides = {}})},
                                     {"every_second", pickled_tensor({.shape = {2}, .strides = {2}})},
                                     {"repeated", pickled_tensor({.shape = {2, 3}, .strides = {0, 1}})},
                                     {"none", pickled_tensor({.shape = {0, 5}, .strides = {5, 1}})}})),
                {kFour});
  const TensorContent content = parse_tensors(bytes_of(file), "f.pt");
  check_sums(content, "f.pt");
  EXPECT_EQ(content.format, "torch-zip");
  ASSERT_EQ(content.tensors.size(), 7u);
  const auto& t = content.tensors;
  EXPECT_EQ(elements(t[0]), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_TRUE(t[0].strides.empty());
  EXPECT_EQ(elements(t[1]), (std::vector<int>{0, 2, 1, 3}));
  EXPECT_EQ(t[2].pieces[0].data(), t[0].pieces[0].data());
  EXPECT_EQ(elements(t[3]), (std::vector<int>{3}));
  EXPECT_EQ(elements(t[4]), (std::vector<int>{0, 2}));
  EXPECT_EQ(elements(t[5]), (std::vector<int>{0, 1, 2, 0, 1, 2}));
  EXPECT_TRUE(packed(t[6]).empty());
}

TEST(TorchFile, StridedTensorsLargerThanAPart) {
  constexpr int64_t kRows = 3000, kColumns = 700;  // 8.4 MB: three parts
  std::string storage(kRows * kColumns * 4, '\0');
  for (size_t i = 0; i < storage.size(); i += 4) storage[i] = static_cast<char>(i / 4 % 251);
  const Window w{.count = kRows * kColumns, .shape = {kColumns, kRows}, .strides = {1, kColumns}};
  const std::string file = torch_zip(pickle(pickled_dict({{"t", pickled_tensor(w)}})), {storage});
  const TensorContent content = parse_tensors(bytes_of(file), "f.pt");
  const std::string got = packed(content.tensors[0]);
  ASSERT_EQ(got.size(), storage.size());
  bool equal = true;
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t c = 0; c < kColumns; ++c)
      equal &= got[static_cast<size_t>(c * kRows + r) * 4] == storage[static_cast<size_t>(r * kColumns + c) * 4];
  EXPECT_TRUE(equal);
}

TEST(TorchFile, NestedNamesAndValues) {
  const std::string group =
      "](" + pickled_dict({{"lr", "G\x3f\xe0" + std::string(6, '\0')}, {"amsgrad", "\x89"}, {"foreach", "N"}}) + "e";
  const std::string state = "}(" + pickled_number(3) + pickled_dict({{"exp_avg", pickled_tensor({})}}) + "u";
  const std::string file =
      torch_zip(pickle(pickled_dict({{"model", "ccollections\nOrderedDict\n)R(" + pickled_text("w") +
                                                   pickled_tensor({}) + "u}" + pickled_text("_metadata") + "}sb"},
                                     {"optimizer", pickled_dict({{"state", state}, {"param_groups", group}})},
                                     {"iter_num", pickled_number(7)},
                                     {"name", pickled_text("x")}})),
                {kFour});
  const TensorContent content = parse_tensors(bytes_of(file), "f.pt");
  ASSERT_EQ(content.tensors.size(), 2u);
  EXPECT_EQ(content.tensors[0].name, "model.w");
  EXPECT_EQ(content.tensors[1].name, "optimizer.state.3.exp_avg");
  ASSERT_EQ(content.values.size(), 5u);
  EXPECT_EQ(content.values[0].name, "optimizer.param_groups.0.lr");
  EXPECT_EQ(std::get<double>(content.values[0].value), 0.5);
  EXPECT_EQ(std::get<bool>(content.values[1].value), false);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(content.values[2].value));
  EXPECT_EQ(std::get<int64_t>(content.values[3].value), 7);
  EXPECT_EQ(std::get<std::string>(content.values[4].value), "x");
}

TEST(TorchFile, NothingIsEverExecuted) {
  refuse_pickle("cposix\nmkdir\n" + pickled_text("d") + "\x85R", {"GLOBAL", "posix.mkdir", "byte 2"});
  refuse_pickle(
      "\x8C\x08"
      "builtins\x8C\x04"
      "eval\x93" +
          pickled_text("1") + "\x85R",
      {"STACK_GLOBAL", "builtins.eval"});
  refuse_pickle("c__builtin__\ngetattr\nctorch\nsave\n" + pickled_text("__name__") + "\x86R", {"getattr"});
  refuse_pickle("ctorch\nload\n" + pickled_text("x") + "\x85R", {"torch.load"});
  refuse_pickle("ctorch.storage\n_load_from_bytes\n)R", {"_load_from_bytes"});
  refuse_pickle("(cos\nsystem\n" + pickled_text("ls") + "o", {"os.system"});
  refuse_pickle("(" + pickled_text("ls") + "ios\nsystem\n", {"INST"});
  refuse_pickle("Pid\n", {"PERSID"});
  refuse_pickle("\x82\x01", {"EXT1"});
  refuse_pickle("ccollections\nOrderedDict\n)\x81", {"NEWOBJ"});
  refuse_pickle("ctorch\nFloatStorage\n)R", {"FloatStorage"});  // on the list, and yet it is not called
  refuse_pickle("ctorch\ndevice\n" + pickled_text("cpu") + "\x85R}b", {"torch.device", "state"});
  refuse_pickle("N}b", {"BUILD"});
}

TEST(TorchFile, BadPickles) {
  refuse_pickle("}(", {"value"});
  refuse_pickle("NN", {"STOP", "1"});
  refuse_pickle("h\x05", {"memo", "5"});
  refuse_pickle("Nr\xFF\xFF\xFF\xFF", {"memo", "4294967295"});
  refuse_pickle("X\xFF\xFF\xFF\x7F", {"truncated", "2147483647"});
  refuse_pickle("\x8D" + std::string(8, '\xFF'), {"truncated", "18446744073709551615"});
  refuse_pickle("e", {"mark"});
  refuse_pickle("}Na", {"list"});
  refuse_pickle("}(Nu", {"key"});
  refuse_pickle("}NNs", {"key"});
  refuse_pickle("\x8A\x09" + std::string(9, '\x7F'), {"64 bits"});
  refuse_pickle("X\x01" + std::string("\0\0\0", 3) + "\xFF", {"UTF-8"});
  refuse_pickle("I1\n", {"INT"});
  refuse(torch_zip("\x80\x06N.", {}), {"PROTO", "6"});
  refuse(torch_zip(pickle("N") + "N", {}), {"data.pkl"});
  // A list that holds itself, and one that doubles at every level.
  refuse_pickle(
      "]"
      "\x94"
      "h" +
          std::string(1, '\0') + "a",
      {"64 levels"});
  std::string doubling = "]";
  for (int i = 0; i < 60; ++i)
    doubling +=
        "2"
        "\x86";
  refuse_pickle(doubling, {"more"});
  refuse_pickle("}(" + pickled_text("a.b") + "N" + pickled_text("a") + pickled_dict({{"b", "N"}}) + "u",
                {"duplicate", "a.b"});
}

TEST(TorchFile, BadWindows) {
  const auto bad = [](const Window& w, const std::vector<std::string>& words) {
    refuse_pickle(pickled_dict({{"w", pickled_tensor(w)}}), words);
  };
  bad({.offset = 1}, {"w", "4", "F32 [2, 2]"});
  bad({.strides = {4, 1}}, {"w", "5"});
  bad({.strides = {-1, 1}}, {"stride"});
  bad({.offset = -1}, {"storage_offset"});
  bad({.shape = {-2, 2}}, {"size"});
  bad({.strides = {1}}, {"2 strides", "1"});
  bad({.key = "9"}, {"storage", "9", "none"});
  bad({.count = 5}, {"20 bytes", "16"});
  bad({.storage = "FancyStorage"}, {"FancyStorage"});
  const std::vector<int64_t> huge(5, 2147483647);
  bad({.shape = huge, .strides = std::vector<int64_t>(5, 0)}, {"2^63"});
  bad({.shape = {2147483647}, .strides = {0}}, {"storage"});  // 8 GiB out of 16 bytes
  bad({.shape = {3, 2147483647, 2147483647}, .strides = {2147483647, 2147483647, 2147483647}}, {"w"});
  bad({.shape = std::vector<int64_t>(40, 1), .strides = std::vector<int64_t>(40, 1)}, {"32", "40"});
}

TEST(TorchFile, BadArchives) {
  const std::string data = pickle(pickled_dict({{"w", pickled_tensor({})}}));
  const std::string sound = torch_zip(data, {kFour});
  for (const size_t size : {sound.size() - 1, sound.size() / 2, size_t{10}})
    refuse(sound.substr(0, size), {"truncated"});
  refuse(test::zip_bytes({{"x.npy", "1"}}), {"data.pkl"});
  refuse(test::zip_bytes({{"a/data.pkl", data}, {"b/data.pkl", data}}), {"two"});
  refuse(test::zip_bytes({{"a/data.pkl", data}, {"a/data/0", kFour}, {"../x", ""}}), {"../x"});
  refuse(test::zip_bytes({{"a/data.pkl", data}, {"a/data/0", kFour}, {"a/data/0", kFour}}), {"duplicate", "a/data/0"});
  refuse(test::zip_bytes({{"a/data.pkl", data}, {"a/data/0", kFour}, {"a/byteorder", "big"}}), {"byteorder", "big"});
  refuse(test::zip_bytes({{"a/data.pkl", data}, {"a/code/x.py", ""}}), {"TorchScript"});
  refuse(test::zip_bytes({{"a/data.pkl", data}, {"a/data/0", kFour.substr(4)}}), {"16 bytes", "12"});
  const auto changed = [&](size_t at, char value) {
    std::string out = sound;
    out[at] = value;
    return out;
  };
  refuse(changed(8, 8), {"own header"});
  const size_t central = sound.find("PK\x01\x02");
  refuse(changed(central + 10, 8), {"compressed", "a/data.pkl"});
  refuse(changed(central + 8, 1), {"encrypted"});
  refuse(changed(central + 42, 1), {"header at 1"});
  refuse(changed(sound.size() - 12, 1), {"directory"});
  refuse(changed(sound.find(kFour), 9), {"damaged", "a/data/0", "CRC-32"});
}

TEST(TorchFile, Legacy) {
  const std::string data = pickle(pickled_dict(
      {{"w", pickled_tensor({.key = "8"}, true)}, {"t", pickled_tensor({.key = "8", .strides = {1, 2}}, true)}}));
  const std::string sound = torch_legacy(data, {{"8", 4, kFour}});
  const TensorContent content = parse_tensors(bytes_of(sound), "f.pt");
  EXPECT_EQ(content.format, "torch-legacy");
  EXPECT_EQ(elements(content.tensors.at(0)), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(elements(content.tensors.at(1)), (std::vector<int>{0, 2, 1, 3}));
  refuse(sound.substr(0, sound.size() - 1), {"truncated", "16", "15"});
  refuse(sound.substr(0, sound.size() - 20), {"truncated", "8"});
  refuse(sound + "x", {"behind", "1"});
  refuse(torch_legacy(data, {{"8", 5, kFour}}), {"4 elements", "5"});
  refuse(torch_legacy(data, {{"9", 4, kFour}}), {"9"});
  refuse(torch_legacy(data, {}), {"8", "none"});
  refuse(torch_legacy(data, {{"8", 4, kFour}, {"8", 4, kFour}}), {"duplicate"});
  refuse(pickle("N"), {"magic"});
  refuse(pickle("cposix\nmkdir\n)R"), {"posix.mkdir"});
}

TEST(TorchWriter, WritesWhatIsReadAndTheSameEachTime) {
  const TempDir dir;
  const std::vector<TensorEntry> entries{
      {"a", "F32", {2, 2}}, {"é", "BF16", {}}, {"none", "I64", {0, 3}}, {"u", "U16", {2}}, {"b", "BOOL", {3}}};
  for (const char* name : {"1", "2"}) {
    AtomicFile file(dir.file(name));
    TensorWriter writer(WeightFormat::torch, file, entries);
    const std::string all = kFour + "xy" + "abcd" + std::string("\1\0\1", 3);
    writer.write(bytes_of(all).first(5));
    writer.write(bytes_of(all).subspan(5));
    writer.finish();
    file.commit();
  }
  EXPECT_EQ(read_bytes(dir.file("1")), read_bytes(dir.file("2")));
  const TensorFile file(dir.file("1"));
  check_sums(file.content(), "1");
  ASSERT_EQ(file.content().tensors.size(), entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    const StoredTensor& tensor = file.content().tensors[i];
    EXPECT_EQ(tensor.name, entries[i].name);
    EXPECT_EQ(tensor.dtype, entries[i].dtype);
    EXPECT_EQ(tensor.shape, entries[i].shape);
    if (tensor.bytes == 0) continue;
    EXPECT_EQ((tensor.pieces[0].data() - file.content().tensors[0].pieces[0].data()) % 64, 0);
  }
  EXPECT_EQ(packed(file.content().tensors[0]), kFour);
  EXPECT_EQ(packed(file.content().tensors[3]), "abcd");
  AtomicFile refused(dir.file("3"));
  expect_error(
      [&] {
        TensorWriter(WeightFormat::torch, refused, {{"q", "F4", {2}}});
      },
      ErrorCode::unsupported, {"q", "F4"});
  expect_error(
      [&] {
        TensorWriter(WeightFormat::torch, refused, {{"q", "F32", {}}, {"q", "F32", {}}});
      },
      ErrorCode::invalid, {"duplicate", "q"});
}

// What a file above 4 GiB needs, with the border at 10 bytes.
TEST(TorchWriter, Zip64) {
  const TempDir dir;
  AtomicFile out(dir.file("wide"));
  TorchWriter writer(out, {{"w", "F32", {2, 2}}, {"v", "U8", {2}}}, {.wide = 10});
  writer.write(bytes_of(kFour));
  writer.write(bytes_of("xy").first(2));
  writer.finish();
  out.commit();
  const TensorFile file(dir.file("wide"));
  check_sums(file.content(), "wide");
  EXPECT_EQ(packed(file.content().tensors.at(0)), kFour);
  EXPECT_EQ(packed(file.content().tensors.at(1)), "xy");
}

TEST(TorchFile, Zip64) {
  const TempDir dir;
  std::string path = dir.write("big.pt", torch_zip(pickle(pickled_dict({{"w", pickled_tensor({})}})), {kFour}));
  std::string bytes = read_bytes(path);
  const size_t begin = bytes.find("PK\x01\x02"), size = bytes.size() - 22 - begin;
  std::string end64 = "PK\x06\x06" + test::le32(44) + std::string(4 + 4 + 8, '\0');
  append_le<uint64_t>(end64, 4);
  append_le<uint64_t>(end64, 4);
  append_le<uint64_t>(end64, size);
  append_le<uint64_t>(end64, begin);
  std::string locator = "PK\x06\x07" + test::le32(0);
  append_le<uint64_t>(locator, begin + size);
  locator += test::le32(1);
  std::string end = "PK\x05\x06" + test::le32(0) + std::string(12, '\xFF') + std::string(2, '\0');
  const std::string wide = bytes.substr(0, begin + size) + end64 + locator + end;
  EXPECT_EQ(elements(parse_tensors(bytes_of(wide), "f.pt").tensors.at(0)), (std::vector<int>{0, 1, 2, 3}));
  std::string wrong = wide;
  wrong[begin + size + 48] = '\x7F';
  refuse(wrong, {"directory"});
}

}  // namespace
}  // namespace lamina

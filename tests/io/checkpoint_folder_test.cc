#include "io/checkpoint_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>

#include "io/append_file.h"
#include "io/atomic_file.h"
#include "io/files.h"
#include "io/folder_lock.h"
#include "io/tiny.h"

namespace lamina {
namespace {

using Json = nlohmann::json;
using test::expect_error;
using test::FileSizeLimit;
using test::read_bytes;
using test::TempDir;

const Json kState = {{"a", 1}, {"loss", 4.0999999999999996}, {"none", nullptr}};

void write_checkpoint(const TempDir& dir, int64_t step, const std::string& run_id = "run", const Json& state = kState) {
  CheckpointWriter writer(dir.path(), step);
  write_file(writer.path() + "/config.json", "{}");
  write_file(writer.path() + "/x.safetensors",
             test::tiny_safetensors({test::f32("first", {2}, {1, 2}), test::f32("second", {1}, {3})}));
  writer.commit(run_id, state);
}

TEST(CheckpointFolder, AppearsWholeAtCommit) {
  const TempDir dir;
  {
    CheckpointWriter writer(dir.path(), 7);
    write_file(writer.path() + "/f", "content");
    EXPECT_TRUE(list_checkpoints(dir.path()).empty());
    writer.commit("run", kState);
  }
  ASSERT_EQ(dir.list(), std::vector<std::string>{"step-7"});
  const Manifest manifest = read_manifest(dir.file("step-7"));
  check_files(dir.file("step-7"), manifest);
  EXPECT_EQ(manifest.step, 7);
  EXPECT_EQ(manifest.run_id, "run");
  EXPECT_EQ(manifest.state, kState);
  ASSERT_EQ(manifest.files.size(), 1u);
  EXPECT_EQ(manifest.files.at("f").bytes, 7);
}

TEST(CheckpointFolder, CarriesTextThatIsNotUtf8) {
  const TempDir dir;
  write_checkpoint(dir, 3, "run", {{"tokenizer", "caf\xE9"}});
  EXPECT_EQ(read_manifest(dir.file("step-3")).state["tokenizer"], "caf\xEF\xBF\xBD");
}

TEST(CheckpointFolder, LeavesNothingWithoutCommit) {
  const TempDir dir;
  { write_file(CheckpointWriter(dir.path(), 7).path() + "/f", "half"); }
  EXPECT_TRUE(dir.list().empty());
}

std::string flipped(std::string content, size_t bit) {
  content[bit / 8] = static_cast<char>(content[bit / 8] ^ (1 << bit % 8));
  return content;
}

TEST(CheckpointFolder, EveryFlippedBitOfAManifestIsFound) {
  const TempDir dir;
  write_checkpoint(dir, 3);
  const std::string text = read_bytes(dir.file("step-3/manifest.json"));
  const Manifest sound = parse_manifest(text, "m");
  int64_t found = 0;
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
    try {
      EXPECT_EQ(parse_manifest(flipped(text, bit), "m"), sound) << "bit " << bit;  // 1e-5 and 1E-5 are one number
    } catch (const Error& error) {
      EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(ErrorCode::invalid)) << error.what();
      ++found;
    }
  }
  EXPECT_GT(found, std::ssize(text) * 8 - 10);
}

TEST(CheckpointFolder, FlippedBitsOfFilesAreFound) {
  const TempDir dir;
  write_checkpoint(dir, 3);
  const Manifest manifest = read_manifest(dir.file("step-3"));
  for (const auto& [name, sum] : manifest.files) {
    const std::string path = "step-3/" + name, content = read_bytes(dir.file(path));
    for (size_t bit = 0; bit < 8 * content.size(); bit += 13) {
      dir.write(path, flipped(content, bit));
      expect_error([&] { check_files(dir.file("step-3"), manifest); }, ErrorCode::invalid, {name, "hash"});
    }
    dir.write(path, content);
  }
}

TEST(CheckpointFolder, DamageIsNamed) {
  const TempDir dir;
  write_checkpoint(dir, 3);
  const Manifest manifest = read_manifest(dir.file("step-3"));
  const auto spoil = [&](const std::string& name, const std::string& content, const std::vector<std::string>& words) {
    const std::string path = "step-3/" + name, sound = read_bytes(dir.file(path));
    dir.write(path, content);
    expect_error([&] { check_files(dir.file("step-3"), manifest); }, ErrorCode::invalid, words);
    dir.write(path, sound);
  };
  std::string tensors = read_bytes(dir.file("step-3/x.safetensors"));
  const size_t size = tensors.size();
  tensors.back() = '\x7f';
  spoil("x.safetensors", tensors, {"x.safetensors", "\"second\"", "hash"});
  spoil("x.safetensors", tensors.substr(0, size - 1),
        {"x.safetensors", std::to_string(size), std::to_string(size - 1)});
  spoil("config.json", "{ ", {"config.json", "hash"});
  std::filesystem::remove(dir.file("step-3/config.json"));
  expect_error([&] { check_files(dir.file("step-3"), manifest); }, ErrorCode::invalid, {"config.json", "missing"});
}

// A manifest with another value, and its own hash made right again.
std::string patched(const Manifest& manifest, const std::function<void(Json&)>& change) {
  Json content = Json::parse(manifest_text(manifest));
  change(content);
  content["xxh3_128"] = manifest_hash(content);
  return content.dump();
}

TEST(CheckpointFolder, RefusesByName) {
  const TempDir dir;
  write_checkpoint(dir, 3);
  const Manifest manifest = read_manifest(dir.file("step-3"));
  const auto refuse = [&](const std::function<void(Json&)>& change, ErrorCode code,
                          const std::vector<std::string>& words) {
    expect_error([&] { parse_manifest(patched(manifest, change), "m"); }, code, words);
  };
  EXPECT_EQ(parse_manifest(patched(manifest, [](Json&) {}), "m"), manifest);
  refuse([](Json& m) { m["version"] = 2; }, ErrorCode::unsupported, {"newer version", "1", "2"});
  refuse([](Json& m) { m["format"] = "other"; }, ErrorCode::invalid, {"format", "lamina-checkpoint"});
  refuse([](Json& m) { m["step"] = -3; }, ErrorCode::invalid, {"step"});
  refuse([](Json& m) { m["step"] = 1.5; }, ErrorCode::invalid, {"step"});
  refuse([](Json& m) { m["step"] = UINT64_MAX; }, ErrorCode::invalid, {"step"});
  refuse([](Json& m) { m.erase("run_id"); }, ErrorCode::invalid, {"run_id"});
  refuse([](Json& m) { m["state"] = 1; }, ErrorCode::invalid, {"state"});
  refuse([](Json& m) { m["files"] = Json::array(); }, ErrorCode::invalid, {"files"});
  for (const char* name : {"../x", "/x", "a/b", "", ".x", "manifest.json"})
    refuse([&](Json& m) { m["files"][name] = m["files"]["config.json"]; }, ErrorCode::invalid, {"name of a file"});
  refuse([](Json& m) { m["files"]["config.json"]["bytes"] = "2"; }, ErrorCode::invalid, {"bytes"});
  refuse([](Json& m) { m["files"]["config.json"]["xxh3_128"] = "12"; }, ErrorCode::invalid, {"config.json", "32"});
  refuse([](Json& m) { m["files"]["config.json"] = 1; }, ErrorCode::invalid, {"config.json", "an object"});
  expect_error([&] { parse_manifest("[]", "m"); }, ErrorCode::invalid, {"m: expected an object", "a list"});
  expect_error([&] { read_manifest(dir.file("none")); }, ErrorCode::invalid, {"none", "missing"});
}

TEST(CheckpointFolder, TakesThePlaceOfADamagedOneOnly) {
  const TempDir dir;
  write_checkpoint(dir, 3, "run", {{"n", 1}});
  write_checkpoint(dir, 3, "run", {{"n", 2}});
  EXPECT_EQ(read_manifest(dir.file("step-3")).state["n"], 2);
  dir.write("step-3/manifest.json", "{");
  write_checkpoint(dir, 3, "run", {{"n", 3}});
  EXPECT_EQ(read_manifest(dir.file("step-3")).state["n"], 3);
  expect_error(
      [&] {
        write_checkpoint(dir, 3, "other", {{"n", 4}});
      },
      ErrorCode::invalid, {"another run", "step-3", "other", "run"});
  EXPECT_EQ(read_manifest(dir.file("step-3")).state["n"], 3);
  EXPECT_EQ(dir.list(), std::vector<std::string>{"step-3"});
}

// Without the rights of the one who wrote it.
class Stranger {
 public:
  Stranger() { EXPECT_EQ(seteuid(geteuid() == 0 ? 65534 : geteuid()), 0); }
  ~Stranger() { EXPECT_EQ(seteuid(getuid()), 0); }
};

TEST(CheckpointFolder, WhatMayNotBeReadIsNotTakenForMissing) {
  const TempDir dir;
  write_checkpoint(dir, 3, "run", {{"n", 1}});
  const Manifest manifest = read_manifest(dir.file("step-3"));
  std::filesystem::permissions(dir.path(), std::filesystem::perms::none);
  {
    const Stranger stranger;
    expect_error([&] { list_checkpoints(dir.path()); }, ErrorCode::io, {dir.path(), "Permission denied"});
    expect_error([&] { read_manifest(dir.file("step-3")); }, ErrorCode::io, {"step-3", "Permission denied"});
    expect_error([&] { check_files(dir.file("step-3"), manifest); }, ErrorCode::io, {"step-3", "Permission denied"});
    expect_error([&] { require_free_place(dir.file("step-3"), "other"); }, ErrorCode::io,
                 {"step-3", "Permission denied"});
  }
  std::filesystem::permissions(dir.path(), std::filesystem::perms::owner_all);
}

TEST(CheckpointFolder, ListsByNumber) {
  const TempDir dir;
  for (const char* name : {"step-9", "step-10", "step-100", "step-010", "step-", "step-x", "step-5x", "step--5",
                           "step-0", "stepper", ".step-7.1-1.tmp", "step-99999999999999999999"})
    std::filesystem::create_directory(dir.file(name));
  std::vector<int64_t> steps;
  for (const CheckpointPlace& place : list_checkpoints(dir.path())) steps.push_back(place.step);
  EXPECT_EQ(steps, (std::vector<int64_t>{100, 10, 9}));
  EXPECT_TRUE(list_checkpoints(dir.file("none")).empty());
}

TEST(CheckpointFolder, RemovesWhatAKilledProcessLeft) {
  const TempDir dir;
  write_checkpoint(dir, 3);
  for (const char* name :
       {".step-9.12-0.tmp/model", ".config.json.12-3.tmp", ".mine.tmp", ".a.b-1.tmp", ".hidden", "x.1-2.tmp"})
    dir.write(name, "x");
  EXPECT_EQ(remove_temporaries(dir.path()), 2);
  EXPECT_EQ(dir.list(), (std::vector<std::string>{".a.b-1.tmp", ".hidden", ".mine.tmp", "step-3", "x.1-2.tmp"}));
  remove_checkpoint(dir.file("step-3"));
  EXPECT_EQ(dir.list(), (std::vector<std::string>{".a.b-1.tmp", ".hidden", ".mine.tmp", "x.1-2.tmp"}));
  EXPECT_EQ(remove_temporaries(dir.file("none")), 0);
}

TEST(FolderLock, OneAtATime) {
  const TempDir dir;
  {
    const FolderLock lock(dir.path());
    expect_error([&] { FolderLock second(dir.path()); }, ErrorCode::io, {"in use", dir.path()});
  }
  const FolderLock again(dir.path());
  expect_error([&] { FolderLock none(dir.file("none")); }, ErrorCode::io, {"none"});
}

TEST(AppendFile, ReplacesItsEndOrKeepsIt) {
  const TempDir dir;
  AppendFile file(dir.file("log"));
  file.append("one\n");
  file.append("two\n");
  file.replace(4, "second\n");
  EXPECT_EQ(read_bytes(dir.file("log")), "one\nsecond\n");
  file.replace(4, "2\n");
  file.append("three\n");
  EXPECT_EQ(read_bytes(dir.file("log")), "one\n2\nthree\n");
  const FileSizeLimit full(14);
  expect_error([&] { file.replace(6, "the third\n"); }, ErrorCode::io, {"log", "large"});
  EXPECT_EQ(read_bytes(dir.file("log")), "one\n2\nthree\n");
}

TEST(AppendFile, KeepsAndGrows) {
  const TempDir dir;
  dir.write("f", "one\ntwo\nhalf");
  AppendFile file(dir.file("f"), 8);
  file.append("three\n");
  file.sync();
  EXPECT_EQ(read_bytes(dir.file("f")), "one\ntwo\nthree\n");
  expect_error([&] { AppendFile bad(dir.file("none/f")); }, ErrorCode::io, {"none/f", "No such file"});
}

}  // namespace
}  // namespace lamina

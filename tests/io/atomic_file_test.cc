#include "io/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "io/files.h"

namespace lamina {
namespace {

using test::expect_error;
using test::FileSizeLimit;
using test::read_bytes;
using test::TempDir;

TEST(AtomicFile, AppearsWholeAtCommit) {
  const TempDir dir;
  dir.write("f", "old");
  AtomicFile file(dir.file("f"));
  file.write("new ");
  file.write("content");
  EXPECT_EQ(file.size(), 11);
  EXPECT_EQ(read_bytes(dir.file("f")), "old");
  EXPECT_EQ(dir.list().size(), 2u);  // the temporary lies beside it, hidden
  EXPECT_EQ(dir.list().front().front(), '.');
  file.commit();
  EXPECT_EQ(read_bytes(dir.file("f")), "new content");
  EXPECT_EQ(dir.list(), std::vector<std::string>{"f"});
}

TEST(AtomicFile, LeavesNothingWithoutCommit) {
  const TempDir dir;
  dir.write("f", "old");
  { AtomicFile(dir.file("f")).write("half"); }
  EXPECT_EQ(read_bytes(dir.file("f")), "old");
  EXPECT_EQ(dir.list(), std::vector<std::string>{"f"});
}

TEST(AtomicFile, NewFilesHaveOrdinaryPermissions) {
  const TempDir dir;
  const mode_t mask = ::umask(022);
  write_file(dir.file("f"), "x");
  ::umask(mask);
  struct stat info {};
  ASSERT_EQ(::stat(dir.file("f").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0644u);
}

TEST(AtomicFile, FullDiskKeepsTheOldFile) {
  const TempDir dir;
  dir.write("f", "old");
  const std::string big(100000, 'x');
  expect_error(
      [&] {
        const FileSizeLimit limit(50000);
        write_file(dir.file("f"), big);
      },
      ErrorCode::io, {dir.file("f"), "File too large", "50000"});
  EXPECT_EQ(read_bytes(dir.file("f")), "old");
  EXPECT_EQ(dir.list(), std::vector<std::string>{"f"});
}

TEST(AtomicFile, ImpossiblePlaces) {
  const TempDir dir;
  dir.write("f", "old");
  expect_error([&] { write_file(dir.file("none/f"), "x"); }, ErrorCode::io, {dir.file("none/f"), "No such file"});
  expect_error([&] { write_file(dir.file("f/g"), "x"); }, ErrorCode::io, {dir.file("f/g"), "Not a directory"});
  expect_error([&] { write_file(dir.path(), "x"); }, ErrorCode::io, {dir.path(), "Is a directory"});
  expect_error([&] { make_folder(dir.file("f/sub")); }, ErrorCode::io, {dir.file("f/sub")});
  expect_error([&] { make_folder(dir.file("f")); }, ErrorCode::io, {dir.file("f")});
  make_folder(dir.file("a/b/c"));
  write_file(dir.file("a/b/c/f"), "y");
  EXPECT_EQ(read_bytes(dir.file("a/b/c/f")), "y");
}

// A rename would put a file in the place of a device, and of /dev/stdout, which leads to a file where output goes to
// one.
TEST(AtomicFile, OnlyAFileGivesWay) {
  const TempDir dir;
  ASSERT_EQ(::mkfifo(dir.file("pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("/proc/self/exe", dir.file("own"));
  for (const char* name : {"pipe", "own"})
    expect_error([&] { write_file(dir.file(name), "x"); }, ErrorCode::io, {dir.file(name), "regular file"});
  EXPECT_TRUE(std::filesystem::is_fifo(dir.file("pipe")));
  EXPECT_TRUE(std::filesystem::is_symlink(dir.file("own")));
  EXPECT_EQ(dir.list(), (std::vector<std::string>{"own", "pipe"}));
}

TEST(AtomicFile, TwoWritersOfOneFileDoNotMix) {
  const TempDir dir;
  AtomicFile first(dir.file("f")), second(dir.file("f"));
  first.write("first");
  second.write("second");
  first.commit();
  second.commit();
  EXPECT_EQ(read_bytes(dir.file("f")), "second");
}

}  // namespace
}  // namespace lamina

// A file that is there whole or not at all: written under a hidden name in the same folder, flushed to the disk, then
// renamed. What goes wrong before commit() leaves the old file as it was and no temporary behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lamina {

// .NAME.PID-NUMBER.tmp beside the path: different for each file of a process and for each process of a machine.
std::string temporary_name(const std::string& path);
bool is_temporary(std::string name);  // given so, without its folder

class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);  // throws Error(io) naming path and reason, as all below do
  ~AtomicFile();                                 // without commit: removes the temporary
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void rewrite(int64_t offset, std::span<const std::byte> bytes);  // what has been written there before
  void commit();  // flush, rename, flush the folder; nothing may be written after it

  int64_t size() const { return size_; }
  const std::string& path() const { return path_; }

 private:
  [[noreturn]] void fail(const char* what, int reason);
  void discard() noexcept;

  std::string path_;
  std::string folder_;
  std::string temporary_;
  int fd_ = -1;
  int64_t size_ = 0;
};

void write_file(const std::string& path, std::string_view content);

// Makes the folder and those above it where they are missing, and flushes their entries to the disk where it can.
// Throws Error(io).
void make_folder(const std::string& path);

// What is written at the end of long work is tried before it: throw Error(io) where the file, or the folder or one of
// these files in it, could not be made. Nothing is left behind.
void check_output_file(const std::string& path);
void check_output_folder(const std::string& path, const std::vector<std::string>& files);

// Flushes the folder's own entries to the disk. Throws Error(io).
void sync_folder(const std::string& path);

}  // namespace lamina

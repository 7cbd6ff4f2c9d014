// A file read by places. Unlike a map it leaves no pages in the process, so that memory does not grow with what was
// read, and a file that is cut short while it is read is an error and no signal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace lamina {

class FileReader {
 public:
  explicit FileReader(const std::string& path);  // throws Error(io): missing, not a regular file, unreadable
  ~FileReader();
  FileReader(FileReader&& other) noexcept;
  FileReader& operator=(FileReader&&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // when it was opened

  // The bytes from `offset` on, all of them. Throws Error(io). May be called by several threads.
  void read(int64_t offset, std::span<std::byte> out) const;

 private:
  std::string path_;
  int fd_ = -1;
  int64_t size_ = 0;
};

}  // namespace lamina

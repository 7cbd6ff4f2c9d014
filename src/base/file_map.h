// A file mapped read-only. The bytes stay valid as long as the FileMap lives.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace lamina {

class FileMap {
 public:
  explicit FileMap(const std::string& path);  // throws Error(io): missing, a folder, unreadable
  ~FileMap();
  FileMap(FileMap&& other) noexcept;
  FileMap& operator=(FileMap&& other) noexcept;
  FileMap(const FileMap&) = delete;
  FileMap& operator=(const FileMap&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace lamina

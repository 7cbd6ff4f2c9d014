// A file that grows by whole records: one that could not be written in full is cut off again, so that a full disk
// leaves the records before it readable.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lamina {

class AppendFile {
 public:
  // Opens or creates the file and cuts it to its first `keep` bytes. Throws Error(io) naming path and reason, as all
  // do.
  explicit AppendFile(const std::string& path, int64_t keep = 0);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  void append(std::string_view record);
  // Puts the record in the place of all from byte `at` on; room for it is taken first, so that a full disk leaves the
  // file as it was.
  void replace(int64_t at, std::string_view record);
  void sync();  // to the disk

 private:
  void cut(int64_t keep);  // to its first bytes
  [[noreturn]] void fail(const char* what, int reason) const;

  std::string path_;
  int fd_;
  int64_t size_;
};

}  // namespace lamina

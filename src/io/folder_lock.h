// One process at a time in a folder: an advisory lock on the folder itself, gone with the process however it ends.
#pragma once

#include <string>

namespace lamina {

class FolderLock {
 public:
  explicit FolderLock(const std::string& folder);  // throws Error(io) where another process has it
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_;
};

}  // namespace lamina

// A new folder that is there whole or not at all: its files are written under a hidden name beside it, flushed, then
// renamed. What goes wrong before commit() leaves nothing behind.
#pragma once

#include <string>

namespace lamina {

class StagedFolder {
 public:
  // `target` is not there yet or an empty folder; those above it are made. Throws Error(invalid) or Error(io).
  explicit StagedFolder(const std::string& target);
  ~StagedFolder();
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;

  std::string file(const std::string& name) const { return path_ + "/" + name; }  // where one is to be written, flushed
  void commit();

 private:
  std::string target_, path_;
};

}  // namespace lamina

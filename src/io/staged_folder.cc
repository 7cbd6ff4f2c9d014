#include "io/staged_folder.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "io/atomic_file.h"
#include "io/folder.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& path, const std::string& reason) {
  throw_error(ErrorCode::io, "cannot write folder: {}: {}", path, reason);
}

std::string without_last_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

StagedFolder::StagedFolder(const std::string& target) : target_(without_last_slash(target)) {
  std::error_code error;
  if (path_exists(target_)) {
    if (!fs::is_directory(target_, error)) fail(target_, "expected a new or empty folder, got a file");
    const std::vector<std::string> names = list_folder(target_);
    if (!names.empty())
      throw_error(ErrorCode::invalid, "folder is not empty: {}: expected a new or empty folder, got one that holds {}",
                  target_, names.front());
  }
  const std::string above = fs::path(target_).parent_path().string();
  if (!above.empty()) make_folder(above);
  const std::string temporary = temporary_name(target_);
  if (!fs::create_directory(temporary, error) || error)
    fail(temporary, error ? error.message() : "a folder of this name is there");
  path_ = temporary;
}

StagedFolder::~StagedFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

void StagedFolder::commit() {
  sync_folder(path_);
  if (std::rename(path_.c_str(), target_.c_str()) != 0) fail(target_, std::strerror(errno));
  path_.clear();
  const std::string above = fs::path(target_).parent_path().string();
  sync_folder(above.empty() ? "." : above);
}

}  // namespace lamina

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

// The place that a rename can take: without links and dots. The current folder is none, since it would be no longer.
std::string place_of(const std::string& target) {
  std::error_code error;
  if (target.empty()) throw_error(ErrorCode::invalid, "no folder to write: expected a path, got an empty one");
  fs::path path = fs::weakly_canonical(fs::absolute(target), error);
  if (error) fail(target, error.message());
  if (!path.has_filename()) path = path.parent_path();
  if (fs::equivalent(path, fs::current_path(error), error))
    fail(target, "expected a new or empty folder other than the current one, got that");
  if (fs::is_symlink(path, error)) fail(target, "expected a new or empty folder, got a link that leads nowhere");
  return path.string();
}

// A rest of a process that was killed and had the same number does not stand in the way.
std::string make_temporary(const std::string& target) {
  std::error_code error;
  for (int attempt = 0; attempt < 100; ++attempt) {
    std::string path = temporary_name(target);
    if (fs::create_directory(path, error)) return path;
    if (error) fail(path, error.message());
  }
  fail(target, "a hundred temporary folders are beside it");
}

}  // namespace

StagedFolder::StagedFolder(const std::string& target) : target_(place_of(target)) {
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
  path_ = make_temporary(target_);
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

#include "io/folder.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"

namespace lamina {

namespace fs = std::filesystem;

bool path_exists(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::none)
    throw_error(ErrorCode::io, "cannot look at file or folder: {}: {}", path, error.message());
  return fs::exists(status);
}

std::vector<std::string> list_folder(const std::string& path) {
  std::vector<std::string> out;
  if (!path_exists(path)) return out;
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error))
    out.push_back(at->path().filename().string());
  if (error) throw_error(ErrorCode::io, "cannot read folder: {}: {}", path, error.message());
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace lamina

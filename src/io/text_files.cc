#include "io/text_files.h"

#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "io/utf8.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;

bool has_ending(const fs::path& path, const std::vector<std::string>& endings) {
  const std::string name = path.filename().string();
  return std::any_of(endings.begin(), endings.end(), [&](const std::string& ending) { return name.ends_with(ending); });
}

// Folders behind symbolic links are not entered, so that no circle can arise.
void add_folder(const std::string& folder, const std::vector<std::string>& endings, std::set<std::string>& files) {
  std::error_code error;
  const size_t before = files.size();
  auto entry = fs::recursive_directory_iterator(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    const bool hidden = entry->path().filename().string().front() == '.';
    if (hidden) entry.disable_recursion_pending();
    if (!hidden && entry->is_regular_file(error) && has_ending(entry->path(), endings))
      files.insert(entry->path().string());
  }
  if (error) throw_error(ErrorCode::io, "cannot read folder: {}: {}", folder, error.message());
  if (files.size() == before) {
    std::string wanted;
    for (const std::string& ending : endings) wanted += (wanted.empty() ? "*" : ", *") + ending;
    throw_error(ErrorCode::io, "no data: {}: expected files {} in it", folder, wanted);
  }
}

std::vector<std::string> matches_of(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> out;
  const int status = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  if (status == 0) out.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (out.empty())
    throw_error(ErrorCode::io, "no data: {}: expected a file, a folder or a pattern that matches", pattern);
  return out;
}

}  // namespace

std::vector<std::string> expand_data_paths(const std::vector<std::string>& paths,
                                           const std::vector<std::string>& endings) {
  std::set<std::string> files;
  const auto add = [&](const std::string& path) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (fs::is_directory(status))
      add_folder(path, endings, files);
    else if (fs::is_regular_file(status))
      files.insert(path);
    else
      throw_error(ErrorCode::io, "cannot read data: {}: expected a file or a folder, got {}", path,
                  fs::exists(status) ? "a pipe or device" : "nothing there");
  };
  for (const std::string& path : paths) {
    std::error_code error;
    const bool pattern = path.find_first_of("*?[") != std::string::npos && !fs::exists(path, error);
    for (const std::string& match : pattern ? matches_of(path) : std::vector<std::string>{path}) add(match);
  }
  std::vector<std::string> out;
  std::set<fs::path> seen;  // the same file by two names counts once
  for (const std::string& file : files) {
    std::error_code error;
    if (seen.insert(fs::canonical(file, error)).second) out.push_back(file);
  }
  return out;
}

TextFile::TextFile(const std::string& path, InvalidUtf8 invalid) : map_(path) {
  mapped_ = {reinterpret_cast<const char*>(map_.bytes().data()), map_.bytes().size()};
  had_bom_ = mapped_.starts_with("\xEF\xBB\xBF");
  if (had_bom_) mapped_.remove_prefix(3);
  if (find_invalid_utf8(mapped_) == kNoFault) return;
  if (invalid == InvalidUtf8::refuse) require_utf8(mapped_, path, had_bom_ ? 3 : 0);
  repaired_ = replace_invalid_utf8(mapped_, replaced_);
}

}  // namespace lamina

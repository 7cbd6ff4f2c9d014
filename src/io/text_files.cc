#include "io/text_files.h"

#include <glob.h>

#include <algorithm>
#include <charconv>
#include <cmath>
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

// None where it is no pattern, or the name of something that is there.
bool is_pattern(const std::string& path) {
  std::error_code error;
  return path.find_first_of("*?[") != std::string::npos && !fs::exists(path, error);
}

std::vector<std::string> matches_of(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> out;
  const int status = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  if (status == 0) out.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  return out;
}

std::vector<std::string> required_matches_of(const std::string& pattern) {
  std::vector<std::string> out = matches_of(pattern);
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
      throw Error(ErrorCode::io,
                  fmt::format("cannot read data: {}: expected a file or a folder, got {}", path,
                              fs::exists(status) ? "a pipe or device" : "nothing there"),
                  fs::exists(status) ? "data is read more than once: write it to a file first" : "");
  };
  for (const std::string& path : paths) {
    for (const std::string& match : is_pattern(path) ? required_matches_of(path) : std::vector<std::string>{path})
      add(match);
  }
  std::vector<std::string> out;
  std::set<fs::path> seen;  // the same file by two names counts once
  for (const std::string& file : files) {
    std::error_code error;
    if (seen.insert(fs::canonical(file, error)).second) out.push_back(file);
  }
  return out;
}

bool is_data_path(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error) || (is_pattern(path) && !matches_of(path).empty());
}

WeightedPath split_weight(const std::string& argument) {
  const size_t sign = argument.rfind('=');
  if (sign == std::string::npos || sign == 0 || is_data_path(argument)) return {argument};
  const char *begin = argument.data() + sign + 1, *end = argument.data() + argument.size();
  double weight = 0.0;
  const auto [stop, error] = std::from_chars(begin, end, weight);
  if (begin == end || stop != end || error == std::errc::invalid_argument) return {argument};
  if (error != std::errc() || !std::isfinite(weight) || weight <= 0.0)
    throw_error(ErrorCode::usage, "bad weight of --data: {}: expected a number above 0, got {}",
                argument.substr(0, sign), std::string(begin, end));
  return {argument.substr(0, sign), weight};
}

TextFile::TextFile(const std::string& path, InvalidUtf8 invalid) : map_(path) {
  mapped_ = {reinterpret_cast<const char*>(map_.bytes().data()), map_.bytes().size()};
  had_bom_ = mapped_.starts_with("\xEF\xBB\xBF");
  if (had_bom_) mapped_.remove_prefix(3);
  if (find_invalid_utf8(mapped_) == kNoFault) return;
  if (invalid != InvalidUtf8::replace) require_utf8(mapped_, path, had_bom_ ? 3 : 0, invalid);
  repaired_ = replace_invalid_utf8(mapped_, replaced_);
}

}  // namespace lamina

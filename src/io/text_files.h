// Which files `--data` names, and their text: UTF-8 whatever the locale, a byte-order mark dropped and told. Line ends
// stay as they are. Splits nothing into documents.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_map.h"
#include "io/utf8.h"

namespace lamina {

// The files that the paths stand for, sorted, each once. A path is a file (of any name), a folder (its files with one
// of these endings, and those of the folders in it; hidden ones aside) or a pattern with *, ? or [ ]. Throws Error(io)
// that names the path where it stands for nothing.
std::vector<std::string> expand_data_paths(const std::vector<std::string>& paths,
                                           const std::vector<std::string>& endings = {".txt"});

// Whether a path stands for something: it is there, or it is a pattern that matches.
bool is_data_path(const std::string& path);

// PATH or PATH=WEIGHT. What is there under the whole name is a path, so that names may contain "="; nothing else is
// split than a number at the end. Throws Error(usage) for a weight that is not above 0.
struct WeightedPath {
  std::string path;
  std::optional<double> weight = {};
};
WeightedPath split_weight(const std::string& argument);

// A text file in memory: mapped as it is, or repaired. `text` lives as long as this does.
class TextFile {
 public:
  // Throws Error: the file cannot be read, or is not UTF-8 (unless `replace`).
  explicit TextFile(const std::string& path, InvalidUtf8 invalid = InvalidUtf8::refuse);

  std::string_view text() const { return repaired_.empty() ? mapped_ : std::string_view(repaired_); }
  const std::string& path() const { return map_.path(); }
  bool had_bom() const { return had_bom_; }
  int64_t replaced() const { return replaced_; }  // ill-formed parts that are U+FFFD now

 private:
  FileMap map_;
  std::string_view mapped_;
  std::string repaired_;
  bool had_bom_ = false;
  int64_t replaced_ = 0;
};

}  // namespace lamina

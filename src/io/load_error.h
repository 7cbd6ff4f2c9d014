// Weights that do not fit what they should be: one line for the error, and a table with a line for each problem.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "io/model_names.h"

namespace lamina {

class LoadError : public Error {
 public:
  LoadError(ErrorCode code, const std::string& text, std::vector<std::string> table, std::string hint = {})
      : Error(code, text, std::move(hint)), table_(std::move(table)) {}
  const std::vector<std::string>& table() const { return table_; }  // at most some 200 lines

 private:
  std::vector<std::string> table_;
};

// The first few problems of each kind in the one line, most of them in the table.
[[noreturn]] void throw_problems(const std::string& path, const std::vector<NameProblem>& problems);

}  // namespace lamina

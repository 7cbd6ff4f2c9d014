#include "io/load_error.h"

#include <algorithm>
#include <map>

namespace lamina {

void throw_problems(const std::string& path, const std::vector<NameProblem>& problems) {
  constexpr int kShown = 3;
  constexpr size_t kLines = 200;
  std::string text = fmt::format("cannot load weights: {}", path);
  std::vector<std::string> table;
  std::map<ProblemKind, int> counts;
  int64_t hidden = 0;
  for (const NameProblem& problem : problems) {
    if (table.size() < kLines) table.push_back(fmt::format("{:10} {}", problem_name(problem.kind), problem.text));
    if (counts[problem.kind]++ < kShown)
      text += fmt::format("{} {} {}", table.size() == 1 ? ":" : ";", problem_name(problem.kind), problem.text);
    else
      ++hidden;
  }
  if (problems.size() > kLines) table.push_back(fmt::format("… and {} more", problems.size() - kLines));
  if (hidden > 0) text += fmt::format("; and {} more", hidden);
  const bool extra = std::any_of(problems.begin(), problems.end(),
                                 [](const NameProblem& problem) { return problem.kind == ProblemKind::extra; });
  throw LoadError(ErrorCode::invalid, text, std::move(table),
                  extra ? "lamina convert --allow PATTERN leaves tensors behind that are no part of the model" : "");
}

}  // namespace lamina

// The table of lint_rules.def, and its picture.
#include <algorithm>

#include "base/error.h"
#include "migrate/lint.h"

namespace lamina {
namespace {

constexpr LintRule kRules[] = {
#define RULE(id, severity, pytorch, mindspore, consequence, pytorch_setting, mindspore_setting, versions) \
  {id, Severity::severity, pytorch, mindspore, consequence, pytorch_setting, mindspore_setting, versions},
#include "migrate/lint_rules.def"
#undef RULE
};

// As text of a cell: no emphasis, no new cell.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '*' || c == '|' || c == '_' || c == '<') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

std::string_view severity_name(Severity severity) {
  constexpr std::string_view kNames[] = {"note", "warning", "error"};
  return kNames[static_cast<size_t>(severity)];
}

std::span<const LintRule> lint_rules() { return kRules; }

const LintRule& lint_rule(std::string_view id) {
  const auto* found =
      std::find_if(std::begin(kRules), std::end(kRules), [id](const auto& rule) { return rule.id == id; });
  LAMINA_CHECK(found != std::end(kRules), "no rule {}", id);
  return *found;
}

std::string lint_rules_markdown() {
  std::string out =
      "| rule | PyTorch, HuggingFace | MindSpore | what comes of it | PyTorch: write | MindSpore: write | holds for |\n"
      "|---|---|---|---|---|---|---|\n";
  for (const LintRule& rule : kRules)
    out += fmt::format("| `{}` ({}) | {} | {} | {} | {} | {} | {} |\n", rule.id, severity_name(rule.severity),
                       cell(rule.pytorch), cell(rule.mindspore), cell(rule.consequence), cell(rule.pytorch_setting),
                       cell(rule.mindspore_setting), cell(rule.versions));
  return out;
}

}  // namespace lamina

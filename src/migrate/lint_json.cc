// What the linter found, and its table, as JSON.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "migrate/lint.h"
#include "migrate/lint_calls.h"

namespace lamina {
namespace {

using Json = nlohmann::json;

Json rule_json(const LintRule& rule) {
  return {{"rule", rule.id},
          {"severity", severity_name(rule.severity)},
          {"pytorch_does", rule.pytorch},
          {"mindspore_does", rule.mindspore},
          {"consequence", rule.consequence},
          {"pytorch", rule.pytorch_setting},
          {"mindspore", rule.mindspore_setting},
          {"versions", rule.versions}};
}

Json finding_json(const Finding& finding) {
  Json where = {{"file", finding.place.file}};
  if (finding.place.line > 0) where["line"] = finding.place.line;
  if (!finding.place.name.empty()) where[finding.place.kind] = finding.place.name;
  return {{"rule", finding.rule->id},      {"severity", severity_name(finding.severity)}, {"where", where},
          {"what", finding.what},          {"consequence", finding.rule->consequence},    {"pytorch", finding.pytorch},
          {"mindspore", finding.mindspore}};
}

}  // namespace

int64_t LintReport::count(Severity severity) const {
  return std::count_if(findings.begin(), findings.end(),
                       [&](const Finding& finding) { return finding.severity == severity; });
}

Json lint_json(const LintReport& report) {
  Json findings = Json::array();
  for (const Finding& finding : report.findings) findings.push_back(finding_json(finding));
  Json out = {{"counts",
               {{"error", report.count(Severity::error)},
                {"warning", report.count(Severity::warning)},
                {"note", report.count(Severity::note)}}},
              {"files", report.files}};
  out["findings"] = std::move(findings);  // may be many
  return out;
}

Json lint_rules_json() {
  Json rules = Json::array(), calls = Json::array();
  for (const LintRule& rule : lint_rules()) rules.push_back(rule_json(rule));
  for (const CallRule& row : call_rules())
    if (row.position >= 0)
      calls.push_back(
          {{"rule", row.rule}, {"callee", row.callee}, {"argument", row.argument}, {"position", row.position}});
  return {{"rules", rules}, {"calls", calls}};
}

// Names in files need not be UTF-8.
std::string lint_text(const LintReport& report) {
  return lint_json(report).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lamina

// lamina lint-migration: what would go wrong in a move between PyTorch with HuggingFace and MindSpore.
#include "command.h"
#include "io/quote.h"
#include "migrate/lint.h"
#include "migrate/lint_calls.h"

namespace lamina::cli {
namespace {

struct Options {
  std::vector<std::string> paths;
  bool rules = false;
  bool json = false;
};

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

std::string finding_text(const Finding& finding) {
  std::string where = finding.place.file;
  if (finding.place.line > 0) where += fmt::format(":{}", finding.place.line);
  if (!finding.place.name.empty()) where += ": " + plain_or_quoted(finding.place.name);
  return fmt::format("{}: {}: {} [{}]\n    else: {}\n    PyTorch: {}\n    MindSpore: {}\n", where,
                     severity_name(finding.severity), plain_or_quoted(finding.what), finding.rule->id,
                     finding.rule->consequence, plain_or_quoted(finding.pytorch), plain_or_quoted(finding.mindspore));
}

int print_rules(bool json) {
  if (!json) {
    print(lint_rules_markdown());
    return 0;
  }
  Json rules = Json::array(), calls = Json::array();
  for (const LintRule& rule : lint_rules()) rules.push_back(rule_json(rule));
  for (const CallRule& row : call_rules())
    if (row.position >= 0)
      calls.push_back(
          {{"rule", row.rule}, {"callee", row.callee}, {"argument", row.argument}, {"position", row.position}});
  print_json({{"rules", rules}, {"calls", calls}});
  return 0;
}

int run(const Options& options) {
  if (options.rules != options.paths.empty())
    throw_error(ErrorCode::usage, "{}: expected paths or --rules",
                options.rules ? "contradiction" : "nothing to look at");
  if (options.rules) return print_rules(options.json);
  LintReport report;
  for (const std::string& path : options.paths) lint_path(path, report);
  for (const std::string& warning : report.warnings) say("warning: {}", warning);
  std::array<int64_t, 3> counts{};
  Json findings = Json::array();
  std::string text;
  for (const Finding& finding : report.findings) {
    ++counts[static_cast<size_t>(finding.severity)];
    if (options.json)
      findings.push_back(finding_json(finding));
    else
      text += finding_text(finding);
  }
  if (options.json) {
    Json out = {{"counts", {{"error", counts[2]}, {"warning", counts[1]}, {"note", counts[0]}}},
                {"files", report.files}};
    out["findings"] = std::move(findings);  // may be many
    print_json(out);
  } else {
    print(text + fmt::format("errors {}, warnings {}, notes {}, files {}\n", counts[2], counts[1], counts[0],
                             report.files.size()));
  }
  return counts[2] > 0 ? 1 : 0;
}

}  // namespace

void add_lint_migration(const Command& program) {
  const Command command = program.add("lint-migration", "what would go wrong in a move between PyTorch and MindSpore");
  const auto options = std::make_shared<Options>();
  command.positionals("PATH", options->paths,
                      "config.json, a model folder, files of weights, scripts (.py, read and never run)");
  command.option({"rules", "", "print the table of all rules instead"}, options->rules);
  command.run(options, &run);
}

}  // namespace lamina::cli

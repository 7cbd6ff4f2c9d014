// lamina lint-migration: what would go wrong in a move between PyTorch with HuggingFace and MindSpore.
#include "command.h"
#include "io/quote.h"
#include "migrate/lint.h"

namespace lamina::cli {
namespace {

struct Options {
  std::vector<std::string> paths;
  bool rules = false;
  bool json = false;
};

std::string finding_text(const Finding& finding) {
  std::string where = finding.place.file;
  if (finding.place.line > 0) where += fmt::format(":{}", finding.place.line);
  if (!finding.place.name.empty()) where += ": " + plain_or_quoted(finding.place.name);
  return fmt::format("{}: {}: {} [{}]\n    otherwise: {}\n    PyTorch: {}\n    MindSpore: {}\n", where,
                     severity_name(finding.severity), plain_or_quoted(finding.what), finding.rule->id,
                     finding.rule->consequence, plain_or_quoted(finding.pytorch), plain_or_quoted(finding.mindspore));
}

int run(const Options& options) {
  if (options.rules != options.paths.empty())
    throw_error(ErrorCode::usage, "{}: expected paths or --rules",
                options.rules ? "contradiction" : "nothing to look at");
  if (options.rules) {
    options.json ? print_json(lint_rules_json()) : print(lint_rules_markdown());
    return 0;
  }
  LintReport report;
  for (const std::string& path : options.paths) lint_path(path, report);
  for (const std::string& warning : report.warnings) say("warning: {}", warning);
  if (options.json) {
    print_json(lint_json(report));
  } else {
    std::string text;
    for (const Finding& finding : report.findings) text += finding_text(finding);
    print(text + fmt::format("errors {}, warnings {}, notes {}, files {}\n", report.count(Severity::error),
                             report.count(Severity::warning), report.count(Severity::note), report.files.size()));
  }
  return report.count(Severity::error) > 0 ? 1 : 0;
}

}  // namespace

void add_lint_migration(const Command& program) {
  const Command command = program.add("lint-migration", "what would go wrong in a move between PyTorch and MindSpore");
  const auto options = std::make_shared<Options>();
  command.positionals("PATH", options->paths,
                      "config.json, a model folder, files of weights, scripts (.py, .ipynb; read and never run)");
  command.option({"rules", "", "print the table of all rules instead"}, options->rules);
  command.run(options, &run);
}

}  // namespace lamina::cli

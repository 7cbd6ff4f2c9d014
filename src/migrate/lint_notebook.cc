// A Jupyter notebook as the script that its cells of code are when they are run from top to bottom. What IPython alone
// understands (%magic, !command) is no Python and is left out; results and pictures are not looked at.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "io/json.h"
#include "migrate/lint.h"

namespace lamina {
namespace {

constexpr JsonLimits kLimits{.bytes = int64_t{64} << 20, .depth = 64};  // pictures are in it as text

struct Cell {
  size_t number;  // among all cells, from 1
  int64_t line;   // of the script, where it begins
};

// The source of one cell: a text, or a list of lines.
std::string source_of(const JsonReader& cell) {
  const JsonReader source = cell["source"];
  if (!source.present() || !source.json().is_array()) return source.as<std::string>();
  std::string out;
  for (size_t i = 0; i < source.list().size(); ++i) out += source.entry(i).as<std::string>();
  return out;
}

// A cell that begins with %% is in another language.
void add_lines(std::string_view source, std::string& script, int64_t& line) {
  const bool foreign = source.starts_with("%%");
  while (!source.empty()) {
    const size_t end = std::min(source.find('\n'), source.size());
    const std::string_view text = source.substr(0, end);
    const size_t first = text.find_first_not_of(" \t");
    const bool magic = first != std::string_view::npos && (text[first] == '%' || text[first] == '!');
    if (!foreign && !magic) script += text;
    script += '\n';
    ++line;
    source.remove_prefix(std::min(end + 1, source.size()));
  }
}

}  // namespace

std::vector<Finding> lint_notebook(std::string_view text, const std::string& file) {
  const nlohmann::json document = parse_json(text, file, kLimits);
  const JsonReader cells = JsonReader(document, "bad notebook: " + file)["cells"];
  std::string script;
  std::vector<Cell> begins;
  int64_t line = 1;
  for (size_t i = 0; i < cells.list().size(); ++i) {
    const JsonReader cell = cells.entry(i);
    if (cell["cell_type"].as<std::string>() != "code") continue;
    begins.push_back({i + 1, line});
    add_lines(source_of(cell), script, line);
  }
  std::vector<Finding> out = lint_script(script, file);
  for (Finding& finding : out) {
    const auto behind = std::upper_bound(begins.begin(), begins.end(), finding.place.line,
                                         [](int64_t at, const Cell& cell) { return at < cell.line; });
    const Cell& cell = *std::prev(behind);
    finding.place.file = fmt::format("{}: cell {}", file, cell.number);
    finding.place.line -= cell.line - 1;
  }
  return out;
}

}  // namespace lamina

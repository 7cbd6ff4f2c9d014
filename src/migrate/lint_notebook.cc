// A Jupyter notebook as the script that its cells of code are when they are run from top to bottom. Commands of IPython
// and cells in other languages are left out; results and pictures are not looked at.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "io/json.h"
#include "migrate/lint.h"
#include "migrate/lint_python.h"

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

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// What IPython alone understands: %magic, !command, name = !command. A % before anything else is Python's.
bool is_magic(std::string_view line) {
  const size_t first = line.find_first_not_of(" \t");
  if (first == std::string_view::npos) return false;
  line.remove_prefix(first);
  if (line[0] == '!') return !line.starts_with("!=");
  return (line[0] == '%' && line.size() > 1 && is_letter(line[1])) || line.find("= !") != std::string_view::npos;
}

// A cell that begins with %%name is for another program, but for the magics that run Python.
bool is_foreign(std::string_view source) {
  constexpr std::string_view kPython[] = {"time", "timeit", "capture", "prun"};
  if (!source.starts_with("%%")) return false;
  const std::string_view name = source.substr(2, source.find_first_of(" \t\n", 2) - 2);
  return std::find(std::begin(kPython), std::end(kPython), name) == std::end(kPython);
}

// The cell as Python, with a line for each of its lines.
std::string python_of(std::string_view source) {
  const bool foreign = is_foreign(source);
  std::string out;
  bool dropped = source.starts_with("%%");
  while (!source.empty()) {
    const size_t end = std::min(source.find('\n'), source.size());
    const std::string_view line = source.substr(0, end);
    dropped = dropped || foreign || is_magic(line);
    if (!dropped) out += line;
    out += '\n';
    dropped = dropped && line.ends_with('\\');  // a command that goes on
    source.remove_prefix(std::min(end + 1, source.size()));
  }
  return out;
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
    const std::string text_of_cell = python_of(source_of(cell));
    (void)scan_python(text_of_cell, fmt::format("{}: cell {}", file, i + 1));  // so that an error names the cell
    begins.push_back({i + 1, line});
    line += std::count(text_of_cell.begin(), text_of_cell.end(), '\n');
    script += text_of_cell;
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

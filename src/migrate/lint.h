// What goes wrong in a move between PyTorch with HuggingFace and MindSpore, found in a config, in the names and shapes
// of a file of weights, or in the text of a Python script. Nothing is executed, and no number of a tensor is read.
// What the differences are is one table, lint_rules.def.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/tensor_content.h"
#include "model/config.h"

namespace lamina {

enum class Severity { note, warning, error };
std::string_view severity_name(Severity severity);

struct LintRule {
  std::string_view id;
  Severity severity;
  std::string_view pytorch;    // what PyTorch and HuggingFace do
  std::string_view mindspore;  // what MindSpore does
  std::string_view consequence;
  std::string_view pytorch_setting;  // with both settings the sides are equal
  std::string_view mindspore_setting;
  std::string_view versions;  // for which it was seen to hold
};

std::span<const LintRule> lint_rules();
const LintRule& lint_rule(std::string_view id);  // of one that exists

// The table for people, as docs/differences.md holds it.
std::string lint_rules_markdown();

// Where in a file: one of the two, or neither.
struct LintPlace {
  std::string file;
  int64_t line = 0;       // of a script
  const char* kind = "";  // of the name: "key" of a config, "tensor" of a file
  std::string name;
};

struct Finding {
  const LintRule* rule;
  Severity severity;  // the rule's; of values and files, which rely on no default, at most a warning
  LintPlace place;
  std::string what;
  std::string pytorch;  // the setting, with the values at hand where there are some
  std::string mindspore;
};

// `config` as it was read from `file`.
std::vector<Finding> lint_config(const ModelConfig& config, const std::string& file);

// The text of a generation_config.json. Throws Error(invalid) where it is not JSON.
std::vector<Finding> lint_generation(std::string_view text, const std::string& file);

// Names, shapes and types. `config`: of the model, where there is one.
std::vector<Finding> lint_tensors(const TensorContent& content, const std::optional<ModelConfig>& config,
                                  const std::string& file);

// A Python script as text. Throws Error(invalid) where it is none that can be followed.
std::vector<Finding> lint_script(std::string_view text, const std::string& file);

// A Jupyter notebook (nbformat 4): its cells of code as one script; places are of a cell, counted from 1. Throws
// Error(invalid) where it is none.
std::vector<Finding> lint_notebook(std::string_view text, const std::string& file);

// What stands under a path: a config.json, a model folder with all it holds, a file of weights, a script.py, a
// notebook.ipynb.
struct LintReport {
  std::vector<Finding> findings;
  std::vector<std::string> files;     // that were looked at
  std::vector<std::string> warnings;  // of the readers, a line each
  int64_t count(Severity severity) const;
};
void lint_path(const std::string& path, LintReport& report);

// As --json gives it.
nlohmann::json lint_json(const LintReport& report);
nlohmann::json lint_rules_json();
std::string lint_text(const LintReport& report);  // lint_json() on one line

}  // namespace lamina

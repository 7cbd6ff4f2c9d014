// What a path stands for, read and handed to the rules.
#include <filesystem>
#include <iterator>

#include "base/error.h"
#include "base/file_map.h"
#include "io/formats.h"
#include "io/hf_config.h"
#include "io/json.h"
#include "migrate/lint.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

void add(std::vector<Finding> found, const std::string& file, LintReport& report) {
  report.files.push_back(file);
  std::move(found.begin(), found.end(), std::back_inserter(report.findings));
}

std::optional<ModelConfig> lint_config_file(const std::string& path, LintReport& report) {
  HfConfig config = parse_hf_config(read_text_file(path, "a config.json"), path);
  std::move(config.warnings.begin(), config.warnings.end(), std::back_inserter(report.warnings));
  add(lint_config(config.model, path), path, report);
  return config.model;
}

void lint_weights(const std::string& path, const std::optional<ModelConfig>& config, LintReport& report) {
  WeightFiles weights = open_weights(path);
  std::move(weights.warnings.begin(), weights.warnings.end(), std::back_inserter(report.warnings));
  for (const TensorFile& file : weights.files)
    add(lint_tensors(file.content(), config, file.path()), file.path(), report);
}

// It may hold whatever a program has put into it: what cannot be read ends nothing.
void lint_optimizer(const std::string& path, LintReport& report) {
  try {
    const TensorFile file(path);
    add(lint_tensors(file.content(), std::nullopt, path), path, report);
  } catch (const Error& error) {
    report.warnings.emplace_back(error.what());
  }
}

void lint_folder(const fs::path& folder, LintReport& report) {
  const size_t before = report.files.size();
  std::optional<ModelConfig> config;
  if (const fs::path file = folder / "config.json"; is_file(file)) config = lint_config_file(file.string(), report);
  if (const fs::path file = folder / "generation_config.json"; is_file(file))
    add(lint_generation(read_text_file(file.string(), "a generation_config.json"), file.string()), file.string(),
        report);
  for (const char* name : {"model.safetensors", "pytorch_model.bin", "model.ckpt", "model.safetensors.index.json",
                           "pytorch_model.bin.index.json"})
    if (is_file(folder / name)) {
      lint_weights(folder.string(), config, report);
      break;
    }
  if (const fs::path file = folder / "optimizer.pt"; is_file(file)) lint_optimizer(file.string(), report);
  if (report.files.size() == before)
    throw_error(ErrorCode::io, "nothing to look at: {}, expected a config.json or weights in the folder, got neither",
                folder.string());
}

}  // namespace

void lint_path(const std::string& path, LintReport& report) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    lint_folder(path, report);
  } else if (path.ends_with(".py")) {
    const FileMap file(path);
    add(lint_script({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path), path, report);
  } else if (path.ends_with(".ipynb")) {
    const FileMap file(path);
    add(lint_notebook({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path), path, report);
  } else if (fs::path(path).filename() == "generation_config.json") {
    add(lint_generation(read_text_file(path, "a generation_config.json"), path), path, report);
  } else if (path.ends_with(".json") && !path.ends_with(".index.json")) {
    lint_config_file(path, report);
  } else {
    lint_weights(path, std::nullopt, report);
  }
}

}  // namespace lamina

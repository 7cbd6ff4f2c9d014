#include "train/weights.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "io/hf_config.h"
#include "io/hf_folder.h"

namespace lamina {

namespace {

std::string joined(const std::vector<std::string>& names) {
  constexpr size_t kMost = 8;
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) out += (i == 0 ? "" : ", ") + names[i];
  return names.size() > kMost ? out + fmt::format(" and {} more", names.size() - kMost) : out;
}

}  // namespace

ModelSource open_model(const std::string& name) {
  ModelSource out;
  out.name = name;
  if (const std::optional<ModelConfig> preset = ModelConfig::preset(name)) {
    out.config = *preset;
    out.preset = true;
    return out;
  }
  std::error_code ignored;
  if (!std::filesystem::exists(name, ignored))
    throw_error(
        ErrorCode::io,
        "no such model: --model {}, expected gpt2, gpt2-medium, gpt2-large, gpt2-xl, a config.json or a model folder",
        name);
  HfConfig read = read_hf_config(name);
  out.config = read.model;
  out.warnings = std::move(read.warnings);
  if (std::filesystem::is_directory(name, ignored)) out.folder = name;
  return out;
}

std::string load_weights(Session& session, const std::string& folder, const ModelConfig& config,
                         const std::vector<ParameterSpec>& specs, std::vector<std::string>& warnings) {
  const HfWeights weights(folder, config);
  weights.read(specs, [&](size_t spec, const float* data, int64_t stride_k, int64_t stride_n) {
    session.write(specs[spec].name, {data, stride_k, stride_n});
  });
  const LoadReport& report = weights.report();
  warnings.insert(warnings.end(), report.warnings.begin(), report.warnings.end());
  std::string summary = report.summary();
  if (!report.removed.empty()) summary += "; taken off the names: " + joined(report.removed);
  if (!report.ignored.empty()) summary += "; constant buffers ignored: " + joined(report.ignored);
  return summary;
}

void save_model(const Session& session, const std::string& folder, const ModelConfig& config,
                const std::vector<ParameterSpec>& specs) {
  save_hf_folder(folder, config, [&](size_t spec, float* data, int64_t stride_k, int64_t stride_n) {
    session.read(specs[spec].name, data, stride_k, stride_n);
  });
}

}  // namespace lamina

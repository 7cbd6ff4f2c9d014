#include "train/weights.h"

#include <cmath>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "io/hf_config.h"
#include "io/hf_folder.h"
#include "io/model_weights.h"

namespace lamina {
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
  const ModelWeights weights(folder, config);
  weights.read([&](size_t spec, const float* data, int64_t stride_k, int64_t stride_n) {
    session.write(specs[spec].name, {data, stride_k, stride_n});
  });
  const LoadReport& report = weights.report();
  for (std::string& warning : report.loading()) warnings.push_back(std::move(warning));
  return report.text();
}

std::string find_non_finite(const Session& session, const std::vector<ParameterSpec>& specs) {
  std::vector<float> values;
  for (const ParameterSpec& spec : specs) {
    values.resize(static_cast<size_t>(spec.shape.elements()));
    session.read(spec.name, values.data(), spec.shape.last(), 1);
    for (const float value : values)
      if (!std::isfinite(value)) return fmt::format("{}, expected finite numbers, got {}", spec.hf.name, value);
  }
  return {};
}

void save_model(const Session& session, const std::string& folder, const ModelConfig& config,
                const std::vector<ParameterSpec>& specs) {
  save_hf_folder(folder, config, [&](size_t spec, float* data, int64_t stride_k, int64_t stride_n) {
    session.read(specs[spec].name, data, stride_k, stride_n);
  });
}

}  // namespace lamina

#include "migrate/verify_model.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "io/formats.h"
#include "io/json.h"
#include "io/model_weights.h"
#include "io/stored_config.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;

std::string settings_beside(const std::string& path) {
  std::error_code ignored;
  const fs::path name = "generation_config.json";
  const fs::path file = fs::is_directory(path, ignored) ? fs::path(path) / name : fs::path(path).parent_path() / name;
  return fs::exists(file, ignored) ? read_json(file.string()).dump() : std::string();
}

}  // namespace

VerifyModel load_verify_model(const std::string& path, const std::string& config, const std::string& names) {
  WeightFiles files = open_weights(path);
  StoredConfig stored = find_config(path, files, config);
  VerifyModel out{.path = path, .config = std::move(stored.model), .settings = settings_beside(path)};
  const WeightsOptions options{.names = names, .allow = {}, .biases = stored.biases};
  ModelConfig in_file = out.config;  // llm.c's table has more rows than there are ids: they are left behind
  in_file.vocab_size = stored.table_rows;
  const ModelWeights weights(std::move(files), path, in_file, options);
  out.config.resid_pdrop = out.config.embd_pdrop = out.config.attn_pdrop = 0.0;
  out.format = weights.format();
  out.names = weights.names().id;
  out.warnings = std::move(stored.warnings);
  out.warnings.insert(out.warnings.end(), weights.report().warnings.begin(), weights.report().warnings.end());
  const std::vector<ParameterSpec> specs = parameter_specs(out.config);
  out.weights.resize(specs.size());
  weights.read([&](size_t i, const float* from, int64_t stride_k, int64_t stride_n) {
    const int64_t K = specs[i].shape.rows(), N = specs[i].shape.last();
    std::vector<float>& to = out.weights[i];
    to.reserve(static_cast<size_t>(specs[i].shape.elements()));
    for (int64_t k = 0; k < K; ++k)
      for (int64_t n = 0; n < N; ++n) to.push_back(from[k * stride_k + n * stride_n]);
    const auto count = std::count_if(to.begin(), to.end(), [](float x) { return !std::isfinite(x); });
    if (count > 0) out.warnings.push_back(fmt::format("{}: {} holds {} NaN or infinity", path, specs[i].name, count));
  });
  return out;
}

WhatIf::WhatIf(const VerifyModel& model) : config(model.config) {
  const std::vector<ParameterSpec> specs = parameter_specs(config);
  for (size_t i = 0; i < specs.size(); ++i) weights_[specs[i].name] = &model.weights[i];
}

const std::vector<float>& WhatIf::operator[](const std::string& name) const {
  const auto found = weights_.find(name);
  LAMINA_CHECK(found != weights_.end(), "no parameter {}", name);
  return *found->second;
}

void WhatIf::set(const std::string& name, std::vector<float> values) {
  weights_[name] = &own_.emplace_back(std::move(values));
  changed_.push_back(name);
}

void WhatIf::swap(const std::string& a, const std::string& b) {
  std::swap(weights_.at(a), weights_.at(b));
  changed_.insert(changed_.end(), {a, b});
}

}  // namespace lamina

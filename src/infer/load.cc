#include "infer/load.h"

#include "base/cpu.h"
#include "io/hf_config.h"

namespace lamina {

LoadedModel load_model(const std::string& folder, const LoadOptions& options) {
  LoadedModel out;
  HfConfig config = read_hf_config(folder);
  out.config = config.model;
  out.specs = parameter_specs(out.config);
  out.warnings = std::move(config.warnings);
  const HfWeights weights(folder, out.config);
  out.warnings.insert(out.warnings.end(), weights.report().warnings.begin(), weights.report().warnings.end());
  CompileOptions needs = options.needs(out.config);
  needs.isa = select_isa();
  out.session = std::make_unique<Session>(compile(out.config, needs).plan, options.threads, options.memory_limit);
  weights.read(out.specs, [&](size_t i, const float* data, int64_t stride_k, int64_t stride_n) {
    options.poll();
    out.session->write(out.specs[i].name, {data, stride_k, stride_n});
  });
  return out;
}

}  // namespace lamina

#include "infer/load.h"

#include <utility>

#include "base/cpu.h"

namespace lamina {

LoadedModel load_model(const std::string& folder, HfConfig config, const LoadOptions& options) {
  LoadedModel out;
  out.config = std::move(config.model);
  out.specs = parameter_specs(out.config);
  out.warnings = std::move(config.warnings);
  const ModelWeights weights(folder, out.config);
  for (std::string& warning : weights.report().loading()) out.warnings.push_back(std::move(warning));
  CompileOptions needs = options.needs();
  needs.isa = select_isa();
  out.session = std::make_unique<Session>(compile(out.config, needs).plan, options.threads, options.memory_limit);
  weights.read([&](size_t i, const float* data, int64_t stride_k, int64_t stride_n) {
    options.poll();
    out.session->write(out.specs[i].name, {data, stride_k, stride_n});
  });
  return out;
}

}  // namespace lamina

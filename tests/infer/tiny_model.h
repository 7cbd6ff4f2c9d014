// Tiny ready to generate, and its logits from the slow truth.
#pragma once

#include <algorithm>
#include <cmath>

#include "common/tiny.h"
#include "infer/generate.h"
#include "infer/load.h"
#include "io/files.h"
#include "reference/interpreter.h"

namespace lamina::test {

using Ids = std::vector<int32_t>;

// Tiny in a session of `rows` rows; prompts go in blocks of `block`.
class TinyModel {
 public:
  explicit TinyModel(int64_t rows, int64_t block = 4, const ModelConfig& config = tiny_config(), int threads = 1) {
    const TempDir folder;
    write_tiny(folder.path(), config);
    model_ = load_model(
        folder.path(), read_hf_config(folder.path()),
        {.needs = [=] { return CompileOptions{.train = false, .generate_batch = rows, .prompt_block = block}; },
         .threads = threads});
  }
  Session& session() { return *model_.session; }
  Generator generator() { return Generator(*model_.session, model_.config); }

  std::vector<Ids> greedy(const std::vector<Ids>& prompts, int64_t count) {
    return ids(prompts, {.max_tokens = count, .sampling = {.temperature = 0.0}});
  }
  std::vector<Ids> ids(const std::vector<Ids>& prompts, const GenerateOptions& options, uint64_t seed = 1) {
    std::vector<Ids> out;
    for (const Generated& row : generator().generate(rows(prompts, seed), options)) out.push_back(row.ids);
    return out;
  }
  static std::vector<Prompt> rows(const std::vector<Ids>& prompts, uint64_t seed = 1) {
    std::vector<Prompt> out;
    for (const Ids& ids : prompts) out.push_back({ids, seed});
    return out;
  }

 private:
  LoadedModel model_;
};

// Logits (T, V) of one row in double, without a cache.
inline std::vector<double> reference_logits(const Ids& ids, const ModelConfig& config = tiny_config()) {
  const auto T = static_cast<int64_t>(ids.size());
  const Compiled compiled = compile(config, {.seq = T, .train = false, .forward = true});
  Interpreter<double> interpreter;
  std::vector<int64_t> positions(ids.size());
  for (size_t t = 0; t < ids.size(); ++t) positions[t] = static_cast<int64_t>(t);
  interpreter.set("tokens", {{}, {}, {ids.begin(), ids.end()}});
  interpreter.set("positions", {{}, {}, positions});
  interpreter.set("key_begin", {{}, {}, std::vector<int64_t>(ids.size(), 0)});
  for (const ParameterSpec& spec : parameter_specs(config)) {
    std::vector<float> values(static_cast<size_t>(spec.shape.elements()));
    fill_tiny(spec, values.data(), spec.shape.last(), 1);
    interpreter.set(spec.name, {{}, {values.begin(), values.end()}, {}});
  }
  interpreter.run(compiled.graphs.front());
  return interpreter.get("logits").values;
}

inline double largest_gap(std::span<const float> got, const std::vector<double>& all, size_t position) {
  double gap = 0.0;
  for (size_t v = 0; v < got.size(); ++v)
    gap = std::max(gap, std::abs(static_cast<double>(got[v]) - all[position * got.size() + v]));
  return gap;
}

inline constexpr double kSameLogits = 1e-5;  // rounding makes 2e-6 of Tiny's logits, the smallest mistake 6e-4

}  // namespace lamina::test

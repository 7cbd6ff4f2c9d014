#include "model/parameters.h"

#include <cmath>

namespace lamina {
namespace {

class Specs {
 public:
  explicit Specs(const ModelConfig& config) : config_(config) {}

  void table(const std::string& name, int64_t rows, const std::string& hf) {
    const int64_t C = config_.n_embd;
    add({.name = name,
         .shape = {C, rows},
         .decay = true,
         .init_std = config_.initializer_range,
         .hf = {.name = hf, .shape = {rows, C}, .transposed = true}});
  }

  void norm(const std::string& name, const std::string& hf) {
    const Shape shape{config_.n_embd};
    add({.name = name + ".weight", .shape = shape, .init_mean = 1.0, .hf = {.name = hf + ".weight", .shape = shape}});
    add({.name = name + ".bias", .shape = shape, .hf = {.name = hf + ".bias", .shape = shape}});
  }

  // A linear map (K, N) that lies at column block `block` of `blocks` equal ones in its HuggingFace tensor.
  void linear(const std::string& name, int64_t K, int64_t N, double std, const std::string& hf, int64_t block = 0,
              int64_t blocks = 1) {
    add({.name = name + ".weight",
         .shape = {K, N},
         .decay = true,
         .init_std = std,
         .hf = {.name = hf + ".weight", .shape = {K, N * blocks}, .column = block * N}});
    add({.name = name + ".bias",
         .shape = {N},
         .hf = {.name = hf + ".bias", .shape = {N * blocks}, .column = block * N}});
  }

  void layer(int64_t index) {
    const int64_t C = config_.n_embd;
    const double std = config_.initializer_range;
    const double residual_std = std / std::sqrt(2.0 * static_cast<double>(config_.n_layer));
    const std::string name = "layer." + std::to_string(index);
    const std::string hf = "h." + std::to_string(index);
    layer_ = index;
    norm(name + ".ln_1", hf + ".ln_1");
    linear(name + ".attention.q", C, C, std, hf + ".attn.c_attn", 0, 3);
    linear(name + ".attention.k", C, C, std, hf + ".attn.c_attn", 1, 3);
    linear(name + ".attention.v", C, C, std, hf + ".attn.c_attn", 2, 3);
    linear(name + ".attention.proj", C, C, residual_std, hf + ".attn.c_proj");
    norm(name + ".ln_2", hf + ".ln_2");
    linear(name + ".mlp.fc", C, config_.inner(), std, hf + ".mlp.c_fc");
    linear(name + ".mlp.proj", config_.inner(), C, residual_std, hf + ".mlp.c_proj");
    layer_ = -1;
  }

  std::vector<ParameterSpec> take() { return std::move(specs_); }

 private:
  void add(ParameterSpec spec) {
    spec.layer = layer_;
    specs_.push_back(std::move(spec));
  }

  const ModelConfig& config_;
  int64_t layer_ = -1;
  std::vector<ParameterSpec> specs_;
};

}  // namespace

std::vector<ParameterSpec> parameter_specs(const ModelConfig& config) {
  Specs specs(config);
  specs.table("embedding.token", config.vocab_size, "wte.weight");
  specs.table("embedding.position", config.n_positions, "wpe.weight");
  for (int64_t layer = 0; layer < config.n_layer; ++layer) specs.layer(layer);
  specs.norm("ln_f", "ln_f");
  if (!config.tie_word_embeddings) specs.table("head.weight", config.vocab_size, "lm_head.weight");
  return specs.take();
}

int64_t parameter_count(const ModelConfig& config) {
  int64_t total = 0;
  for (const ParameterSpec& spec : parameter_specs(config)) total += spec.shape.elements();
  return total;
}

}  // namespace lamina

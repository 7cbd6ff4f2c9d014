// What a GPT-2 is, as HuggingFace's GPT2Config says it. A plain value; reading and writing JSON is in io/hf_config.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lamina {

enum class Activation { gelu_tanh, gelu_exact };

// Field names and defaults are GPT2Config's.
struct ModelConfig {
  int64_t vocab_size = 50257;
  int64_t n_positions = 1024;
  int64_t n_embd = 768;
  int64_t n_layer = 12;
  int64_t n_head = 12;
  int64_t n_inner = 0;  // 0: 4 * n_embd
  std::string activation_function = "gelu_new";
  double layer_norm_epsilon = 1e-5;
  double resid_pdrop = 0.1;
  double embd_pdrop = 0.1;
  double attn_pdrop = 0.1;
  double initializer_range = 0.02;
  bool scale_attn_weights = true;
  bool scale_attn_by_inverse_layer_idx = false;
  bool reorder_and_upcast_attn = false;  // scores are always fp32 here, so both values mean the same
  bool tie_word_embeddings = true;
  std::optional<int64_t> bos_token_id = 50256;
  std::optional<int64_t> eos_token_id = 50256;

  int64_t inner() const { return n_inner > 0 ? n_inner : 4 * n_embd; }
  int64_t head_dim() const { return n_embd / n_head; }
  Activation activation() const;  // throws Error(invalid) naming activation_function and the unknown value
  bool operator==(const ModelConfig&) const = default;

  // "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"; nothing for another name.
  static std::optional<ModelConfig> preset(std::string_view name);
};

// Throws Error(invalid) that names the field, the expected and the actual value: non-positive sizes, n_embd not
// divisible by n_head, an unknown activation, probabilities outside [0, 1], an epsilon that is not positive and finite.
void validate(const ModelConfig& config);

}  // namespace lamina

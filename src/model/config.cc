#include "model/config.h"

#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace lamina {
namespace {

struct Preset {
  std::string_view name;
  int64_t n_layer, n_head, n_embd;
};

constexpr std::array<Preset, 4> kPresets{
    {{"gpt2", 12, 12, 768}, {"gpt2-medium", 24, 16, 1024}, {"gpt2-large", 36, 20, 1280}, {"gpt2-xl", 48, 25, 1600}}};

// An upper bound that keeps every product of two sizes far inside 64 bits.
constexpr int64_t kMaxSize = int64_t{1} << 24;

void check_size(std::string_view field, int64_t value, int64_t least) {
  if (value < least || value > kMaxSize)
    throw_error(ErrorCode::invalid, "bad model config: {}, expected a whole number from {} to {}, got {}", field, least,
                kMaxSize, value);
}

void check_probability(std::string_view field, double value) {
  if (!(value >= 0.0 && value <= 1.0))
    throw_error(ErrorCode::invalid, "bad model config: {}, expected a probability from 0 to 1, got {}", field, value);
}

}  // namespace

Activation ModelConfig::activation() const {
  if (activation_function == "gelu") return Activation::gelu_exact;
  if (activation_function == "gelu_new" || activation_function == "gelu_pytorch_tanh" ||
      activation_function == "gelu_fast")
    return Activation::gelu_tanh;
  throw_error(
      ErrorCode::invalid,
      "bad model config: activation_function, expected gelu, gelu_new, gelu_pytorch_tanh or gelu_fast, got {:?}",
      std::string_view(activation_function).substr(0, 60));
}

std::optional<ModelConfig> ModelConfig::preset(std::string_view name) {
  for (const Preset& preset : kPresets) {
    if (preset.name != name) continue;
    ModelConfig config;
    config.n_layer = preset.n_layer;
    config.n_head = preset.n_head;
    config.n_embd = preset.n_embd;
    return config;
  }
  return std::nullopt;
}

void validate(const ModelConfig& config) {
  check_size("vocab_size", config.vocab_size, 1);
  check_size("n_positions", config.n_positions, 1);
  check_size("n_embd", config.n_embd, 1);
  check_size("n_layer", config.n_layer, 1);
  check_size("n_head", config.n_head, 1);
  check_size("n_inner", config.n_inner, 0);
  if (config.n_embd % config.n_head != 0)
    throw_error(ErrorCode::invalid, "bad model config: n_embd {} is not divisible by n_head {}", config.n_embd,
                config.n_head);
  (void)config.activation();
  check_probability("resid_pdrop", config.resid_pdrop);
  check_probability("embd_pdrop", config.embd_pdrop);
  check_probability("attn_pdrop", config.attn_pdrop);
  if (!(config.layer_norm_epsilon > 0.0) || !std::isfinite(config.layer_norm_epsilon))
    throw_error(ErrorCode::invalid, "bad model config: layer_norm_epsilon, expected a positive number, got {}",
                config.layer_norm_epsilon);
  if (!(config.initializer_range >= 0.0) || !std::isfinite(config.initializer_range))
    throw_error(ErrorCode::invalid, "bad model config: initializer_range, expected a number from 0 on, got {}",
                config.initializer_range);
  for (const auto& [field, id] :
       {std::pair{"bos_token_id", config.bos_token_id}, {"eos_token_id", config.eos_token_id}})
    if (id && (*id < 0 || *id >= config.vocab_size))
      throw_error(ErrorCode::invalid, "bad model config: {}, expected an id below vocab_size {}, got {}", field,
                  config.vocab_size, *id);
}

}  // namespace lamina

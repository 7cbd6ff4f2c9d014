// Tiny: the small model that the tests of whole programs share. Its weights and tokens are made here from numbers, so
// that no file is needed, and they are large, so that mistakes show. 2 layers, 2 heads, width 16, context 16, 97 ids.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "io/hf_folder.h"
#include "io/model_weights.h"
#include "model/config.h"
#include "model/parameters.h"

namespace lamina::test {

// The 24 top bits of SplitMix64 at counter (stream << 32) + i + 1.
inline int64_t tiny_word(uint64_t stream, uint64_t i) {
  uint64_t z = ((stream << 32) + i + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return static_cast<int64_t>((z ^ (z >> 31)) >> 40);
}

inline ModelConfig tiny_config() {
  ModelConfig config;
  config.vocab_size = 97;
  config.n_positions = 16;
  config.n_embd = 16;
  config.n_layer = 2;
  config.n_head = 2;
  config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0;
  config.bos_token_id = config.eos_token_id = 96;
  return config;
}

// The first `count` ids of Tiny's stream of tokens.
inline std::vector<int32_t> tiny_tokens(size_t count) {
  std::vector<int32_t> out(count);
  for (size_t i = 0; i < count; ++i) out[i] = static_cast<int32_t>(tiny_word(2000, i) % 97);
  return out;
}

inline const std::vector<int32_t>& tiny_prompt() {
  static const std::vector<int32_t> prompt{5, 17, 80, 3, 41, 0, 95, 62, 23, 7, 7, 88};
  return prompt;
}

struct TinyStream {
  uint64_t stream;
  double centre, scale;
};

// By HuggingFace's name without a front part.
inline TinyStream tiny_stream(const std::string& hf_name) {
  static const std::map<std::string, TinyStream> outer{{"wte.weight", {0, 0, .5}},
                                                       {"wpe.weight", {1, 0, .125}},
                                                       {"ln_f.weight", {2, 1, .25}},
                                                       {"ln_f.bias", {3, 0, .25}},
                                                       {"lm_head.weight", {4, 0, .5}}};
  static const std::map<std::string, TinyStream> inner{
      {"ln_1.weight", {0, 1, .25}},      {"ln_1.bias", {1, 0, .25}},          {"attn.c_attn.weight", {2, 0, .5}},
      {"attn.c_attn.bias", {3, 0, .25}}, {"attn.c_proj.weight", {4, 0, .25}}, {"attn.c_proj.bias", {5, 0, .125}},
      {"ln_2.weight", {6, 1, .25}},      {"ln_2.bias", {7, 0, .25}},          {"mlp.c_fc.weight", {8, 0, .5}},
      {"mlp.c_fc.bias", {9, 0, .25}},    {"mlp.c_proj.weight", {10, 0, .25}}, {"mlp.c_proj.bias", {11, 0, .125}}};
  if (const auto found = outer.find(hf_name); found != outer.end()) return found->second;
  const size_t dot = hf_name.find('.', 2);  // h.<layer>.…
  TinyStream out = inner.at(hf_name.substr(dot + 1));
  out.stream += 16 * (std::stoull(hf_name.substr(2, dot - 2)) + 1);
  return out;
}

// The parameter's elements with element (k, n) at out[k * stride_k + n * stride_n].
inline void fill_tiny(const ParameterSpec& spec, float* out, int64_t stride_k, int64_t stride_n) {
  const TinyStream source = tiny_stream(spec.hf.name);
  const int64_t K = spec.shape.rows(), N = spec.shape.last(), width = spec.hf.shape.last();
  for (int64_t k = 0; k < K; ++k)
    for (int64_t n = 0; n < N; ++n) {
      const int64_t at = spec.hf.transposed ? n * width + k : k * width + spec.hf.column + n;
      const auto word = static_cast<double>(tiny_word(source.stream, static_cast<uint64_t>(at)));
      out[k * stride_k + n * stride_n] =
          static_cast<float>(source.centre + source.scale * (word - 0x1.0p23) * 0x1.0p-23);
    }
}

// A model folder with Tiny's weights for any config of its width.
inline void write_tiny(const std::string& folder, const ModelConfig& config = tiny_config()) {
  const std::vector<ParameterSpec> specs = parameter_specs(config);
  save_hf_folder(folder, config, [&](size_t i, float* data, int64_t stride_k, int64_t stride_n) {
    fill_tiny(specs[i], data, stride_k, stride_n);
  });
}

}  // namespace lamina::test

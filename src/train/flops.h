// What a step of training costs by count, and what part of the machine's peak that is. The formula is the interface's:
// per token 6 * (12 L C^2 + V C) + 6 L C T for causal attention; 12 C^2 is 4 C^2 + 2 C * inner.
#pragma once

#include <cstdint>

#include "model/config.h"

namespace lamina {

inline double model_flops_per_token(const ModelConfig& config, int64_t seq) {
  const auto number = [](int64_t value) { return static_cast<double>(value); };
  const double L = number(config.n_layer), C = number(config.n_embd), V = number(config.vocab_size);
  const double matrices = L * (4.0 * C * C + 2.0 * C * number(config.inner())) + V * C;
  return 6.0 * matrices + 6.0 * L * C * number(seq);
}

// Of the fp32 multiply-add peak of the threads in use; 0 where nothing was measured.
inline double peak_fraction(double flops, double seconds, double peak_gflops) {
  return seconds > 0.0 && peak_gflops > 0.0 ? flops / seconds / (peak_gflops * 1e9) : 0.0;
}

}  // namespace lamina

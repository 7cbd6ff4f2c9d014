// Tiny as `verify` holds it, for tests that plant something into it.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "common/tiny.h"
#include "migrate/verify.h"

namespace lamina::test {

inline std::vector<float>& weight(VerifyModel& model, const std::string& name) {
  const std::vector<ParameterSpec> specs = parameter_specs(model.config);
  for (size_t i = 0; i < specs.size(); ++i)
    if (specs[i].name == name) return model.weights[i];
  throw std::runtime_error("no parameter " + name);
}

inline VerifyModel tiny(const ModelConfig& config = tiny_config()) {
  VerifyModel out{.path = "tiny", .config = config};
  for (const ParameterSpec& spec : parameter_specs(config)) {
    out.weights.emplace_back(static_cast<size_t>(spec.shape.elements()));
    fill_tiny(spec, out.weights.back().data(), spec.shape.last(), 1);
  }
  return out;
}

inline VerifyInputs inputs_of(const ModelConfig& config, int64_t tokens = 12) {
  return seeded_inputs(config, config.vocab_size, tokens, 7);
}

inline Witness witness_of(const WhatIf& model, const VerifyInputs& inputs) {
  return {.path = "witness", .unit = kUnit64, .numbers = reference_numbers<double>(model, inputs)};
}

}  // namespace lamina::test

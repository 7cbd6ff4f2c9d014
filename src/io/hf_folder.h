// A HuggingFace GPT-2 folder written: config.json, generation_config.json, model.safetensors. Reading is
// io/model_weights.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "model/config.h"

namespace lamina {

// To be filled: element (k, n) of parameter `spec` of parameter_specs(), (K, N), at data[k * stride_k + n * stride_n];
// of a vector (N) at data[n * stride_n].
using ParameterSource = std::function<void(size_t spec, float* data, int64_t stride_k, int64_t stride_n)>;

// The folder is made if missing and each file replaced by rename. One tensor is in memory at a time; a tied head is not
// written. Equal weights give equal bytes.
void save_hf_folder(const std::string& folder, const ModelConfig& config, const ParameterSource& source);

}  // namespace lamina

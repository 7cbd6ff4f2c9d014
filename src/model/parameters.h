// The parameters of a GPT-2: their names here, their shapes, how they start, whether they decay, and where each one
// lies in a HuggingFace folder. One row per parameter, in the order of HuggingFace's state dict.
#pragma once

#include <string>
#include <vector>

#include "base/shape.h"
#include "model/config.h"

namespace lamina {

// Where a parameter lies in a HuggingFace tensor. c_attn packs three: q, k and v are column blocks of (C, 3C).
struct HfSlice {
  std::string name;  // without the front part "transformer.": "h.0.attn.c_attn.weight"; "lm_head.weight" has none ever
  Shape shape;       // of the whole tensor there
  int64_t column = 0;       // first column of the parameter in it (of its last dimension)
  bool transposed = false;  // the file holds (N, K): wte, wpe, lm_head, which are (V, C) there and (C, V) here
};

struct ParameterSpec {
  std::string name;        // "layer.0.attention.q.weight"
  Shape shape;             // logical: weights are (in, out), tables (C, rows)
  bool decay = false;      // two dimensions: decays; biases and LayerNorm do not
  double init_std = 0.0;   // normal with this deviation around `init_mean`
  double init_mean = 0.0;  // 1 for LayerNorm weights
  int64_t layer = -1;      // the layer it belongs to, -1 for embeddings, final norm and head
  HfSlice hf;
};

// For a tied model there is no lm_head row. Names: embedding.token, embedding.position,
// layer.{l}.{ln_1,ln_2}.{weight,bias}, layer.{l}.attention.{q,k,v,proj}.{weight,bias},
// layer.{l}.mlp.{fc,proj}.{weight,bias}, ln_f.{weight,bias}, head.weight.
std::vector<ParameterSpec> parameter_specs(const ModelConfig& config);

int64_t parameter_count(const ModelConfig& config);

}  // namespace lamina

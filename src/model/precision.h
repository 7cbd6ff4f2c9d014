// In which precision each part of a model takes the operands of its products. A plain value, made from patterns:
//
//   embedding   head   layer.N.attention.{q,k,v,core,proj}   layer.N.mlp.{fc,proj}
//
// `core` is the attention between its projections. LayerNorm, softmax, loss and the residual stream are always fp32.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "model/config.h"

namespace lamina {

// A pattern is "*", a part as above, the beginning of one, or one without its layer ("attention", "mlp.fc"); several
// layers are "layer.0-3", several names "attention.{q,k,v}". HuggingFace's names are understood too ("h.0.attn.c_proj",
// "wte", "lm_head").
struct PrecisionRule {
  std::string pattern;
  Dtype dtype = Dtype::f32;  // f32, bf16 or f16
};
using PrecisionMap = std::vector<PrecisionRule>;

struct PartPrecision {
  std::string part;
  Dtype dtype = Dtype::f32;
};

// Every part of the model, in its order; fp32 where no pattern matches. Of several patterns that match a part, the one
// that matches fewest parts counts. Throws Error(invalid) naming a pattern that is none, one that matches no part of
// this model, and two that say different things of one part and match equally many.
std::vector<PartPrecision> precision_of_parts(const PrecisionMap& map, const ModelConfig& config);

// The nodes of the forward graphs (model/programs.h) whose products a part consists of.
std::vector<std::string> nodes_of_part(const std::string& part);

// "fp32", "bf16", "fp16": what people write.
std::string_view precision_name(Dtype dtype);
std::optional<Dtype> parse_precision_name(std::string_view name);

}  // namespace lamina

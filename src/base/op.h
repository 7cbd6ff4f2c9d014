// Names and attributes of ops: what the graph, the plan and the kernels have in common. What an op means is said in
// graph/ops (shapes, gradient) and kernels/ref (values).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>
#include <variant>

#include "base/shape.h"

namespace lamina {

struct NoAttrs {
  bool operator==(const NoAttrs&) const = default;
};

struct BranchAttrs {
  bool taken = true;  // decided by the configuration, never by data
  bool operator==(const BranchAttrs&) const = default;
};

struct ScaleAttrs {
  double factor = 1.0;
  bool operator==(const ScaleAttrs&) const = default;
};

// Kept elements are divided by 1 - p. The decision for element t*C + c of a sample is keyed (rng.h), so that it does
// not depend on the batch around the sample. `training` false means identity.
struct DropoutAttrs {
  double p = 0.0;
  int64_t site = 0;
  bool training = false;
  bool operator==(const DropoutAttrs&) const = default;
};

struct LayerNormAttrs {
  double eps = 1e-5;
  bool operator==(const LayerNormAttrs&) const = default;
};

struct GeluAttrs {
  bool tanh = true;  // 0.5x(1+tanh(√(2/π)(x+0.044715x³))), else the exact 0.5x(1+erf(x/√2))
  bool operator==(const GeluAttrs&) const = default;
};

// A linear and a GELU in one, perhaps after a layernorm. `keep` false: backward does not need what GELU took.
struct LinearGeluAttrs {
  double eps = 1e-5;
  bool tanh = true;
  bool keep = true;
  bool operator==(const LinearGeluAttrs&) const = default;
};

// Scores are multiplied by `scale`. Dropout acts on the probabilities; element (h*stride + query)*stride + key.
struct AttentionAttrs {
  int64_t n_head = 1;
  double scale = 1.0;
  double dropout = 0.0;
  int64_t site = 0;
  int64_t stride = 0;  // the model's n_positions: the same element whatever T a batch is padded to
  bool operator==(const AttentionAttrs&) const = default;
};

struct EmbeddingBwdAttrs {
  int64_t rows = 0;  // V, the number of rows of the table
  bool operator==(const EmbeddingBwdAttrs&) const = default;
};

struct ExpandAttrs {
  Shape shape;
  bool operator==(const ExpandAttrs&) const = default;
};

struct ClipAttrs {
  double max_norm = 0.0;  // 0: no clipping, the factor only tells finite from not
  bool operator==(const ClipAttrs&) const = default;
};

// hyper = {lr, lr / (1 - beta1^t), sqrt(1 - beta2^t)}, inputs of the step. A non-finite factor leaves all as it is;
// none is 1.
struct AdamWAttrs {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  bool operator==(const AdamWAttrs&) const = default;
};

// square_sum gives one sum for each block of this many elements of storage: a fixed tree, whatever the threads.
constexpr int64_t kSquareSumBlock = 65536;

// An update in the backward pass gives the squares of its gradient in one sum for so many columns of each row.
constexpr int64_t kSquareColumns = 384;

// The gradients of a layernorm's weight and bias are summed over blocks of so many rows.
constexpr int64_t kNormRows = 64;

// The head works on so many rows at a time: their logits are the only ones that exist.
constexpr int64_t kHeadRows = 512;

// Calls f(name, field) for each field: the text printer, the parser and the digest are written once on top.
template <typename A, typename F>
void for_each_field(A& attrs, F&& f) {
  using T = std::remove_cvref_t<A>;
  if constexpr (std::is_same_v<T, BranchAttrs>) {
    f("taken", attrs.taken);
  } else if constexpr (std::is_same_v<T, ScaleAttrs>) {
    f("factor", attrs.factor);
  } else if constexpr (std::is_same_v<T, DropoutAttrs>) {
    f("p", attrs.p), f("site", attrs.site), f("training", attrs.training);
  } else if constexpr (std::is_same_v<T, LayerNormAttrs>) {
    f("eps", attrs.eps);
  } else if constexpr (std::is_same_v<T, GeluAttrs>) {
    f("tanh", attrs.tanh);
  } else if constexpr (std::is_same_v<T, LinearGeluAttrs>) {
    f("eps", attrs.eps), f("tanh", attrs.tanh), f("keep", attrs.keep);
  } else if constexpr (std::is_same_v<T, AttentionAttrs>) {
    f("n_head", attrs.n_head), f("scale", attrs.scale), f("dropout", attrs.dropout), f("site", attrs.site),
        f("stride", attrs.stride);
  } else if constexpr (std::is_same_v<T, EmbeddingBwdAttrs>) {
    f("rows", attrs.rows);
  } else if constexpr (std::is_same_v<T, ExpandAttrs>) {
    f("shape", attrs.shape);
  } else if constexpr (std::is_same_v<T, ClipAttrs>) {
    f("max_norm", attrs.max_norm);
  } else if constexpr (std::is_same_v<T, AdamWAttrs>) {
    f("beta1", attrs.beta1), f("beta2", attrs.beta2), f("eps", attrs.eps), f("weight_decay", attrs.weight_decay);
  } else {
    static_assert(std::is_same_v<T, NoAttrs>, "an attribute type without a row here");
  }
}

using Attrs = std::variant<NoAttrs, BranchAttrs, ScaleAttrs, DropoutAttrs, LayerNormAttrs, GeluAttrs, LinearGeluAttrs,
                           AttentionAttrs, EmbeddingBwdAttrs, ExpandAttrs, ClipAttrs, AdamWAttrs>;

enum class Op : uint8_t {
#define OP(name, attrs) name,
#include "base/ops.def"
#undef OP
};

constexpr int kOpCount = 0
#define OP(name, attrs) +1
#include "base/ops.def"
#undef OP
    ;

std::string_view op_name(Op op);
std::optional<Op> parse_op(std::string_view name);
Attrs default_attrs(Op op);  // the op's own attribute type, default values

}  // namespace lamina

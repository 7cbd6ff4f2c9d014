#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/half.h"
#include "migrate/verify_candidates.h"

namespace lamina {
namespace {

using Context = MistakeContext;
using Candidates = std::vector<Candidate>;
using Values = std::vector<float>;

// ---- the configuration

void epsilon(const Context& context, Candidates& out) {
  const double own = context.model.config.layer_norm_epsilon;
  std::vector<double> values{1e-5, 1e-6, 1e-7, 1e-8, 1e-12, 1e-3};
  if (context.other.config) values = {context.other.config->layer_norm_epsilon};
  for (const double value : values)
    if (value != own)
      out.push_back({fmt::format("{} in place of {}", value, own),
                     [=](WhatIf& model) { model.config.layer_norm_epsilon = value; }});
}

void gelu(const Context& context, Candidates& out) {
  const bool tanh = context.model.config.activation() == Activation::gelu_tanh;
  const char* forms[] = {"exact (gelu)", "tanh (gelu_new)"};
  out.push_back({fmt::format("{} in place of {}", forms[!tanh], forms[tanh]),
                 [=](WhatIf& model) { model.config.activation_function = tanh ? "gelu" : "gelu_new"; }});
}

void scale(const Context& context, Candidates& out) {
  const bool own = context.model.config.scale_attn_weights;
  out.push_back({fmt::format("scale_attn_weights {} in place of {}", !own, own),
                 [=](WhatIf& model) { model.config.scale_attn_weights = !own; }});
}

void inverse_layer(const Context& context, Candidates& out) {
  const bool own = context.model.config.scale_attn_by_inverse_layer_idx;
  out.push_back({fmt::format("scale_attn_by_inverse_layer_idx {} in place of {}", !own, own),
                 [=](WhatIf& model) { model.config.scale_attn_by_inverse_layer_idx = !own; }});
}

void heads(const Context& context, Candidates& out) {
  const ModelConfig& config = context.model.config;
  for (int64_t n = 1; n <= config.n_embd; ++n)
    if (config.n_embd % n == 0 && n != config.n_head)
      out.push_back(
          {fmt::format("{} in place of {}", n, config.n_head), [=](WhatIf& model) { model.config.n_head = n; }});
}

void layers(const Context& context, Candidates& out) {
  for (int64_t n = context.model.config.n_layer - 1; n >= 1; --n)
    out.push_back({fmt::format("{} in place of {}", n, context.model.config.n_layer),
                   [=](WhatIf& model) { model.config.n_layer = n; }});
}

void mask(const Context& context, Candidates& out) {
  if (context.other.config) return;  // both were computed here
  out.push_back({"every token sees those that follow it", [](WhatIf& model) { model.causal = false; }, {}, true});
}

// ---- tables and head

void positions(const Context& context, Candidates& out) {
  const ModelConfig& config = context.model.config;
  const auto known = context.other.weights.find("embedding.position");
  const std::vector<float>* other = known == context.other.weights.end() ? nullptr : known->second;
  for (const int64_t by : {1, -1, 2}) {
    const int64_t C = config.n_embd, T = config.n_positions;
    out.push_back(
        {fmt::format("shifted by {}", by), [=](WhatIf& model) {
           const Values& from = model["embedding.position"];  // (C, T)
           Values to = from;
           for (int64_t c = 0; c < C; ++c)
             for (int64_t t = 0; t < T; ++t) {
               const auto at = static_cast<size_t>(c * T + t);
               const bool inside = t + by >= 0 && t + by < T;
               to[at] = inside ? from[at + static_cast<size_t>(by)] : other != nullptr ? (*other)[at] : from[at];
             }
           model.set("embedding.position", std::move(to));
         }});
  }
}

const NamedNumbers* numbers_of(const Context& context, std::string_view name) {
  return find_numbers(*context.other.numbers, name);
}

// Whether logits are some linear map of the final norm, the same for all tokens: what is left of them beside the space
// that its columns span. More tokens than columns are needed to tell.
bool is_linear_in(const NamedNumbers& x, const NamedNumbers& y, double tolerance) {
  const auto C = static_cast<size_t>(x.shape.back()), V = static_cast<size_t>(y.shape.back()), M = x.values.size() / C;
  if (M <= C) return false;
  std::vector<std::vector<double>> basis;
  const auto dot = [](const std::vector<double>& a, const std::vector<double>& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  };
  const auto project = [&](std::vector<double>& column) {
    for (int twice = 0; twice < 2; ++twice)
      for (const std::vector<double>& b : basis) {
        const double part = dot(b, column);
        for (size_t m = 0; m < M; ++m) column[m] -= part * b[m];
      }
  };
  const auto column_of = [M](const NamedNumbers& from, size_t width, size_t c) {
    std::vector<double> out(M);
    for (size_t m = 0; m < M; ++m) out[m] = from.values[m * width + c];
    return out;
  };
  for (size_t c = 0; c < C; ++c) {
    std::vector<double> column = column_of(x, C, c);
    const double before = std::sqrt(dot(column, column));
    project(column);
    const double length = std::sqrt(dot(column, column));
    if (length <= 1e-10 * before) continue;
    for (double& v : column) v /= length;
    basis.push_back(std::move(column));
  }
  double left = 0.0, all = 0.0;
  for (size_t v = 0; v < V; ++v) {
    std::vector<double> column = column_of(y, V, v);
    all += dot(column, column);
    project(column);
    left += dot(column, column);
  }
  return left <= tolerance * tolerance * all;
}

void head(const Context& context, Candidates& out) {
  const bool tied = context.model.config.tie_word_embeddings;
  if (const auto known = context.other.weights.find("head.weight"); known != context.other.weights.end())
    out.push_back({tied ? "of its own, with other numbers than the table" : "other numbers", [=](WhatIf& model) {
                     model.config.tie_word_embeddings = false;
                     model.set("head.weight", *known->second);
                   }});
  if (!tied)
    out.push_back(
        {"the table in place of a head of its own", [](WhatIf& model) { model.config.tie_word_embeddings = true; }});
  const NamedNumbers *x = numbers_of(context, "ln_f"), *y = numbers_of(context, "logits");
  if (context.first != "logits" || x == nullptr || y == nullptr || context.other.config) return;
  const double unit = context.other.unit + kUnit64;
  out.push_back({"logits are a linear map of the final norm, and not by this model's table", {}, [=, &context] {
                   return is_linear_in(*x, *y, 16.0 * context.tolerances.of("logits", unit));
                 }});
}

Values widened(const Values& from, int64_t rows, int64_t to, const std::vector<float>* with) {
  const auto K = static_cast<int64_t>(from.size()) / rows;  // (K, rows) to (K, to)
  Values out;
  for (int64_t k = 0; k < K; ++k)
    for (int64_t v = 0; v < to; ++v)
      out.push_back(v < rows          ? from[static_cast<size_t>(k * rows + v)]
                    : with != nullptr ? (*with)[static_cast<size_t>(k * to + v)]
                                      : 0.0F);
  return out;
}

void padded(const Context& context, Candidates& out) {
  const ModelConfig& config = context.model.config;
  const NamedNumbers* logits = numbers_of(context, "logits");
  const int64_t rows = context.other.config ? context.other.config->vocab_size
                       : logits != nullptr  ? logits->shape.back()
                                            : config.vocab_size;
  if (rows <= config.vocab_size) return;
  const std::string what = fmt::format("{} columns in place of {}", rows, config.vocab_size);
  if (!context.other.config) {
    out.push_back({what, {}, [=, &context] {
                     const NamedNumbers* loss = numbers_of(context, "loss");
                     const double unit = context.other.unit + kUnit64;
                     return context.first == "loss" && loss != nullptr &&
                            std::abs(loss_of_logits(*logits, context.inputs.targets) - loss->values[0]) <=
                                context.tolerances.of("loss", unit) * std::abs(loss->values[0]);
                   }});
    return;
  }
  const auto known = context.other.weights;
  out.push_back({what,
                 [=, old = config.vocab_size](WhatIf& model) {
                   for (const char* name : {"embedding.token", "head.weight"}) {
                     if (!model.has(name)) continue;
                     const auto found = known.find(name);
                     model.set(name, widened(model[name], old, rows, found == known.end() ? nullptr : found->second));
                   }
                   model.config.vocab_size = rows;
                 },
                 {},
                 true});
}

// ---- numbers

// Of those weights that differ, where the other's are known.
void rounded(const Context& context, Candidates& out) {
  std::vector<std::string> all, matrices;
  const WhatIf model(context.model);
  for (const ParameterSpec& spec : parameter_specs(context.model.config)) {
    const auto theirs = context.other.weights.find(spec.name);
    if (theirs != context.other.weights.end() && *theirs->second == model[spec.name]) continue;
    all.push_back(spec.name);
    if (spec.shape.rank == 2) matrices.push_back(spec.name);
  }
  const auto add = [&](const char* what, Dtype dtype, const std::vector<std::string>& names) {
    out.push_back({what, [=](WhatIf& changed) {
                     for (const std::string& name : names) {
                       Values values = changed[name];
                       for (float& x : values) x = round_to(x, dtype);
                       changed.set(name, std::move(values));
                     }
                   }});
  };
  add("fp16", Dtype::f16, all);
  add("bf16", Dtype::bf16, all);
  if (context.other.config) return;
  add("fp16, matrices only", Dtype::f16, matrices);
  add("bf16, matrices only", Dtype::bf16, matrices);
}

// Whether each element of `got` is 0 or the true one times one factor, which are both there: what dropout does.
std::optional<double> dropped_share(const std::vector<double>& truth, const std::vector<double>& got, double unit) {
  double zeros = 0.0, factor = 0.0;
  for (size_t i = 0; i < truth.size(); ++i) {
    if (got[i] == 0.0) {
      zeros += 1.0;
      continue;
    }
    if (factor == 0.0 && std::abs(truth[i]) > 1e-3) factor = got[i] / truth[i];
  }
  if (zeros == 0.0 || factor <= 1.0) return {};
  for (size_t i = 0; i < truth.size(); ++i)
    if (got[i] != 0.0 && std::abs(got[i] - factor * truth[i]) > 1024.0 * unit * (1.0 + std::abs(got[i]))) return {};
  return 1.0 - 1.0 / factor;
}

void dropout(const Context& context, Candidates& out) {
  if (context.other.config) return;
  const double unit = context.other.unit;
  const NamedNumbers *logits = numbers_of(context, "logits"), *again = numbers_of(context, "logits.again");
  if (logits != nullptr && again != nullptr)
    out.push_back(
        {"two passes over the same tokens gave other logits", {}, [=] { return logits->values != again->values; }});
  const NamedNumbers* truth = find_numbers(context.truth, "embedding");
  const NamedNumbers* got = numbers_of(context, "embedding");
  if (context.first == "embedding" && truth != nullptr && got != nullptr)
    out.push_back({"the embeddings are 0 or the true ones times one factor", {}, [=] {
                     return dropped_share(truth->values, got->values, unit).has_value();
                   }});
}

void labels(const Context& context, Candidates& out) {
  if (context.other.config) return;
  for (const int64_t by : {1, -1})
    out.push_back({by > 0 ? "targets are those of the token after the next" : "targets are the tokens themselves",
                   [=](WhatIf& model) { model.target_shift = by; },
                   {},
                   true});
}

constexpr Mistake kMistakes[] = {
    {"layer_norm_epsilon", "LayerNorm epsilon", epsilon},
    {"gelu", "form of GELU", gelu},
    {"attention_scale", "1/√d of attention", scale},
    {"inverse_layer_scale", "division of attention by the layer's number", inverse_layer},
    {"n_head", "n_head", heads},
    {"n_layer", "n_layer", layers},
    {"rounded_weights", "weights rounded to 16 bits", rounded},
    {"transposed_weight", "transposed weight", transposed_weights},
    {"missing_bias", "missing bias", missing_biases},
    {"gamma_beta_swapped", "LayerNorm's weight and bias exchanged", swapped_gamma_beta},
    {"norms_swapped", "LayerNorms of a layer exchanged", swapped_norms},
    {"layers_swapped", "layers exchanged", swapped_layers},
    {"qkv_order", "order of q, k and v", qkv_orders},
    {"qkv_per_head", "packing of q, k and v", qkv_by_heads},
    {"missing_mask", "causal mask missing", mask},
    {"position_offset", "positions", positions},
    {"untied_head", "head", head},
    {"padded_vocabulary", "padded rows of the vocabulary in the softmax", padded},
    {"dropout", "dropout acts", dropout},
    {"label_shift", "shift of the targets", labels},
};

}  // namespace

std::span<const Mistake> mistakes() { return kMistakes; }

}  // namespace lamina

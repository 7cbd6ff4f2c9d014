#include "migrate/verify_mistakes.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/half.h"

namespace lamina {
namespace {

using Context = MistakeContext;
using Candidates = std::vector<Candidate>;
using Values = std::vector<float>;

std::string in_layer(int64_t layer, std::string_view name) { return fmt::format("layer.{}.{}", layer, name); }

std::vector<int64_t> all_layers(const Context& context) {
  std::vector<int64_t> out(static_cast<size_t>(context.model.config.n_layer));
  std::iota(out.begin(), out.end(), int64_t{0});
  return out;
}

// Where to look: the layer of the tensor that differs first, else all.
std::vector<int64_t> suspects(const Context& context) {
  const int64_t layer = layer_of(context.first);
  return layer >= 0 && layer < context.model.config.n_layer ? std::vector<int64_t>{layer} : all_layers(context);
}

// The same mistake in each of the layers where to look, and in all at once.
void per_layer(const Context& context, const std::string& what, const std::function<void(WhatIf&, int64_t)>& apply,
               Candidates& out) {
  for (const int64_t layer : suspects(context))
    out.push_back({in_layer(layer, what), [=](WhatIf& model) { apply(model, layer); }});
  const std::vector<int64_t> all = all_layers(context);
  if (all.size() == 1) return;
  out.push_back({fmt::format("{} of all {} layers", what, all.size()), [=](WhatIf& model) {
                   for (const int64_t layer : all) apply(model, layer);
                 }});
}

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

// ---- single weights

Values transposed(const Values& from) {
  const auto n = static_cast<size_t>(std::llround(std::sqrt(static_cast<double>(from.size()))));
  Values out(from.size());
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < n; ++j) out[j * n + i] = from[i * n + j];
  return out;
}

void transpose(const Context& context, Candidates& out) {
  std::vector<std::vector<std::string>> groups{{"attention.proj"},
                                               {"attention.q"},
                                               {"attention.k"},
                                               {"attention.v"},
                                               {"attention.q", "attention.k", "attention.v"}};
  if (context.model.config.inner() == context.model.config.n_embd)
    groups.insert(groups.end(), {{"mlp.fc"}, {"mlp.proj"}, {"mlp.fc", "mlp.proj"}});
  for (const std::vector<std::string>& group : groups) {
    const auto apply = [group](WhatIf& model, int64_t layer) {
      for (const std::string& name : group) {
        const std::string weight = in_layer(layer, name + ".weight");
        model.set(weight, transposed(model[weight]));
      }
    };
    per_layer(context,
              group.size() == 3   ? "attention.{q,k,v}.weight"
              : group.size() == 2 ? "mlp.{fc,proj}.weight"
                                  : group[0] + ".weight",
              apply, out);
  }
}

void clear(WhatIf& model, const std::string& name) { model.set(name, Values(model[name].size(), 0.0F)); }

void biases(const Context& context, Candidates& out) {
  static const std::vector<std::string> kNames{"ln_1",           "attention.q", "attention.k", "attention.v",
                                               "attention.proj", "ln_2",        "mlp.fc",      "mlp.proj"};
  for (const std::string& name : kNames)
    per_layer(
        context, name + ".bias", [=](WhatIf& model, int64_t l) { clear(model, in_layer(l, name + ".bias")); }, out);
  const auto several = [&](const std::string& what, size_t from, size_t to, size_t step) {
    per_layer(
        context, what,
        [=](WhatIf& model, int64_t l) {
          for (size_t i = from; i < to; i += step) clear(model, in_layer(l, kNames[i] + ".bias"));
        },
        out);
  };
  several("attention.{q,k,v}.bias", 1, 4, 1);
  several("{ln_1,ln_2}.bias", 0, 8, 5);
  out.push_back({"ln_f.bias", [](WhatIf& model) { clear(model, "ln_f.bias"); }});
  const std::vector<int64_t> all = all_layers(context);
  for (const bool norms : {false, true})
    out.push_back({norms ? "all of the model" : "all of linear maps", [=](WhatIf& model) {
                     for (const int64_t l : all)
                       for (const std::string& name : kNames)
                         if (norms || !name.starts_with("ln")) clear(model, in_layer(l, name + ".bias"));
                     if (norms) clear(model, "ln_f.bias");
                   }});
}

void swap_pair(WhatIf& model, const std::string& a, const std::string& b) {
  for (const char* part : {".weight", ".bias"}) model.swap(a + part, b + part);
}

void gamma_beta(const Context& context, Candidates& out) {
  for (const char* name : {"ln_1", "ln_2"})
    per_layer(
        context, name,
        [=](WhatIf& model, int64_t l) { model.swap(in_layer(l, name) + ".weight", in_layer(l, name) + ".bias"); }, out);
  out.push_back({"ln_f", [](WhatIf& model) { model.swap("ln_f.weight", "ln_f.bias"); }});
  const std::vector<int64_t> all = all_layers(context);
  out.push_back({"all of the model", [=](WhatIf& model) {
                   for (const int64_t l : all)
                     for (const char* name : {"ln_1", "ln_2"})
                       model.swap(in_layer(l, name) + ".weight", in_layer(l, name) + ".bias");
                   model.swap("ln_f.weight", "ln_f.bias");
                 }});
}

void norms(const Context& context, Candidates& out) {
  per_layer(
      context, "ln_1 and ln_2",
      [](WhatIf& model, int64_t l) { swap_pair(model, in_layer(l, "ln_1"), in_layer(l, "ln_2")); }, out);
  for (const std::string part : {".weight", ".bias"})
    per_layer(
        context, "ln_1" + part + " and ln_2" + part,
        [=](WhatIf& model, int64_t l) { model.swap(in_layer(l, "ln_1" + part), in_layer(l, "ln_2" + part)); }, out);
}

const std::vector<std::string>& parts_of_layer() {
  static const std::vector<std::string> kParts = [] {
    std::vector<std::string> out;
    for (const char* name :
         {"ln_1", "ln_2", "attention.q", "attention.k", "attention.v", "attention.proj", "mlp.fc", "mlp.proj"})
      for (const char* part : {".weight", ".bias"}) out.push_back(std::string(name) + part);
    return out;
  }();
  return kParts;
}

void exchange(WhatIf& model, int64_t a, int64_t b) {
  for (const std::string& part : parts_of_layer()) model.swap(in_layer(a, part), in_layer(b, part));
}

void swapped_layers(const Context& context, Candidates& out) {
  const int64_t L = context.model.config.n_layer;
  const std::vector<int64_t> where = suspects(context);
  for (const int64_t a : where)
    for (int64_t b = 0; b < L; ++b) {
      if (b == a || (b < a && where.size() > 1)) continue;
      out.push_back({fmt::format("layers {} and {}", std::min(a, b), std::max(a, b)),
                     [=](WhatIf& model) { exchange(model, a, b); }});
      for (const std::string& part : parts_of_layer())
        if (part.starts_with("ln") || !context.other.weights.empty())
          out.push_back({fmt::format("{} of layers {} and {}", part, std::min(a, b), std::max(a, b)),
                         [=](WhatIf& model) { model.swap(in_layer(a, part), in_layer(b, part)); }});
    }
  if (L > 2)
    out.push_back({"all in reverse order", [=](WhatIf& model) {
                     for (int64_t l = 0; l < L / 2; ++l) exchange(model, l, L - 1 - l);
                   }});
}

// ---- q, k and v

constexpr const char* kQkv[] = {"attention.q", "attention.k", "attention.v"};

void qkv_order(const Context& context, Candidates& out) {
  std::vector<size_t> order{0, 1, 2};
  while (std::next_permutation(order.begin(), order.end())) {
    const auto apply = [order](WhatIf& model, int64_t layer) {
      for (const char* part : {".weight", ".bias"}) {
        Values old[3];
        for (size_t i = 0; i < 3; ++i) old[i] = model[in_layer(layer, kQkv[i]) + part];
        for (size_t i = 0; i < 3; ++i) model.set(in_layer(layer, kQkv[i]) + part, std::move(old[order[i]]));
      }
    };
    const std::string letters = "qkv";
    per_layer(context,
              fmt::format("attention.{{q,k,v}} taken from {}, {}, {}", letters[order[0]], letters[order[1]],
                          letters[order[2]]),
              apply, out);
  }
}

// Columns of all three in blocks, read as if those of each head came together, or the other way round.
void regroup(WhatIf& model, int64_t layer, bool from_heads) {
  const auto H = static_cast<size_t>(model.config.n_head), D = static_cast<size_t>(model.config.head_dim()), C = H * D;
  for (const char* part : {".weight", ".bias"}) {
    Values old[3], made[3];
    for (size_t w = 0; w < 3; ++w) old[w] = made[w] = model[in_layer(layer, kQkv[w]) + part];
    for (size_t k = 0; k < old[0].size() / C; ++k)
      for (size_t w = 0; w < 3; ++w)
        for (size_t h = 0; h < H; ++h)
          for (size_t d = 0; d < D; ++d) {
            const size_t block = h * D + d, mixed = (h * 3 + w) * D + d;
            float& a = from_heads ? made[mixed / C][k * C + mixed % C] : made[w][k * C + block];
            a = from_heads ? old[w][k * C + block] : old[mixed / C][k * C + mixed % C];
          }
    for (size_t w = 0; w < 3; ++w) model.set(in_layer(layer, kQkv[w]) + part, std::move(made[w]));
  }
}

void qkv_heads(const Context& context, Candidates& out) {
  for (const bool from_heads : {false, true})
    per_layer(
        context,
        from_heads ? "attention.{q,k,v}, packed by head and taken in blocks"
                   : "attention.{q,k,v}, packed in blocks and taken by head",
        [=](WhatIf& model, int64_t l) { regroup(model, l, from_heads); }, out);
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
    {"transposed_weight", "transposed weight", transpose},
    {"missing_bias", "missing bias", biases},
    {"gamma_beta_swapped", "LayerNorm's weight and bias exchanged", gamma_beta},
    {"norms_swapped", "LayerNorms of a layer exchanged", norms},
    {"layers_swapped", "layers exchanged", swapped_layers},
    {"qkv_order", "order of q, k and v", qkv_order},
    {"qkv_per_head", "packing of q, k and v", qkv_heads},
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

#include "migrate/verify_candidates.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

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

Values transposed(const Values& from) {
  const auto n = static_cast<size_t>(std::llround(std::sqrt(static_cast<double>(from.size()))));
  Values out(from.size());
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < n; ++j) out[j * n + i] = from[i * n + j];
  return out;
}

Values zeros(const Values& from) { return Values(from.size(), 0.0F); }

using Change = Values (*)(const Values&);

// Tensors of a layer that one mistake meets together: "attention.{q,k,v}".
struct Group {
  std::string what;
  std::vector<std::string> names;
};

void per_group(const Context& context, const std::vector<Group>& groups, const std::string& part, Change change,
               Candidates& out) {
  for (const Group& group : groups)
    per_layer(
        context, group.what + part,
        [=, names = group.names](WhatIf& model, int64_t layer) {
          for (const std::string& name : names) {
            const std::string tensor = in_layer(layer, name + part);
            model.set(tensor, change(model[tensor]));
          }
        },
        out);
}

// Where both are files, it is known what differs: one mistake in all of that, whatever group it is.
void all_that_differ(const Context& context, const std::function<bool(const ParameterSpec&)>& has_kind, Change change,
                     Candidates& out) {
  if (!context.other.config) return;
  std::vector<std::string> names;
  const WhatIf model(context.model);
  for (const ParameterSpec& spec : parameter_specs(context.model.config)) {
    const auto theirs = context.other.weights.find(spec.name);
    if (theirs == context.other.weights.end() || *theirs->second == model[spec.name]) continue;
    if (!has_kind(spec)) return;
    names.push_back(spec.name);
  }
  if (names.empty()) return;
  const auto shown = std::min<std::ptrdiff_t>(std::ssize(names), 3);
  const std::string more = std::ssize(names) > shown ? fmt::format(" and {} more", std::ssize(names) - shown) : "";
  out.push_back(
      {fmt::format("{}{}, which are all that differ", fmt::join(names.begin(), names.begin() + shown, ", "), more),
       [=](WhatIf& changed) {
         for (const std::string& name : names) changed.set(name, change(changed[name]));
       }});
}

void swap_pair(WhatIf& model, const std::string& a, const std::string& b) {
  for (const char* part : {".weight", ".bias"}) model.swap(a + part, b + part);
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

constexpr const char* kQkv[] = {"attention.q", "attention.k", "attention.v"};

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

}  // namespace

void transposed_weights(const MistakeContext& context, std::vector<Candidate>& out) {
  std::vector<Group> groups{
      {"attention.proj", {"attention.proj"}},
      {"attention.q", {"attention.q"}},
      {"attention.k", {"attention.k"}},
      {"attention.v", {"attention.v"}},
      {"attention.{q,k,v}", {"attention.q", "attention.k", "attention.v"}},
      {"attention.{q,k,v,proj}", {"attention.q", "attention.k", "attention.v", "attention.proj"}}};
  if (context.model.config.inner() == context.model.config.n_embd)
    groups.insert(
        groups.end(),
        {{"mlp.fc", {"mlp.fc"}},
         {"mlp.proj", {"mlp.proj"}},
         {"mlp.{fc,proj}", {"mlp.fc", "mlp.proj"}},
         {"{attention,mlp}.proj", {"attention.proj", "mlp.proj"}},
         {"attention.proj and mlp.{fc,proj}", {"attention.proj", "mlp.fc", "mlp.proj"}},
         {"{attention,mlp}.*", {"attention.q", "attention.k", "attention.v", "attention.proj", "mlp.fc", "mlp.proj"}}});
  per_group(context, groups, ".weight", transposed, out);
  const auto square = [](const ParameterSpec& spec) {
    return spec.layer >= 0 && spec.shape.rank == 2 && spec.shape.rows() == spec.shape.last();
  };
  all_that_differ(context, square, transposed, out);
}

void missing_biases(const MistakeContext& context, std::vector<Candidate>& out) {
  const std::vector<std::string> norms{"ln_1", "ln_2"},
      linear{"attention.q", "attention.k", "attention.v", "attention.proj", "mlp.fc", "mlp.proj"};
  std::vector<std::string> all = norms;
  all.insert(all.end(), linear.begin(), linear.end());
  std::vector<Group> groups;
  for (const std::string& name : all) groups.push_back({name, {name}});
  groups.insert(groups.end(), {{"attention.{q,k,v}", {linear.begin(), linear.begin() + 3}},
                               {"attention.{q,k,v,proj}", {linear.begin(), linear.begin() + 4}},
                               {"mlp.{fc,proj}", {"mlp.fc", "mlp.proj"}},
                               {"{attention,mlp}.proj", {"attention.proj", "mlp.proj"}},
                               {"{ln_1,ln_2}", norms},
                               {"{attention,mlp}.*", linear},
                               {"*", all}});
  per_group(context, groups, ".bias", zeros, out);
  const auto clear = [](WhatIf& model, const std::string& name) { model.set(name, zeros(model[name])); };
  out.push_back({"ln_f.bias", [=](WhatIf& model) { clear(model, "ln_f.bias"); }});
  for (const std::vector<std::string>& names : {norms, all})
    out.push_back({names.size() == all.size() ? "all of the model" : "all LayerNorms of the model",
                   [=, layers = all_layers(context)](WhatIf& model) {
                     for (const int64_t layer : layers)
                       for (const std::string& name : names) clear(model, in_layer(layer, name + ".bias"));
                     clear(model, "ln_f.bias");
                   }});
  all_that_differ(
      context, [](const ParameterSpec& spec) { return spec.name.ends_with(".bias"); }, zeros, out);
}

void swapped_gamma_beta(const MistakeContext& context, std::vector<Candidate>& out) {
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

void swapped_norms(const MistakeContext& context, std::vector<Candidate>& out) {
  per_layer(
      context, "ln_1 and ln_2",
      [](WhatIf& model, int64_t l) { swap_pair(model, in_layer(l, "ln_1"), in_layer(l, "ln_2")); }, out);
  for (const std::string part : {".weight", ".bias"})
    per_layer(
        context, "ln_1" + part + " and ln_2" + part,
        [=](WhatIf& model, int64_t l) { model.swap(in_layer(l, "ln_1" + part), in_layer(l, "ln_2" + part)); }, out);
}

void swapped_layers(const MistakeContext& context, std::vector<Candidate>& out) {
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

void qkv_orders(const MistakeContext& context, std::vector<Candidate>& out) {
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

void qkv_by_heads(const MistakeContext& context, std::vector<Candidate>& out) {
  for (const bool from_heads : {false, true})
    per_layer(
        context,
        from_heads ? "attention.{q,k,v}, packed by head and taken in blocks"
                   : "attention.{q,k,v}, packed in blocks and taken by head",
        [=](WhatIf& model, int64_t l) { regroup(model, l, from_heads); }, out);
}

}  // namespace lamina

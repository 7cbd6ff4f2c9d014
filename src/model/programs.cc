#include "model/programs.h"

#include <cmath>

#include "base/error.h"

namespace lamina {
namespace {

class ForwardBuilder {
 public:
  ForwardBuilder(std::string name, const ModelConfig& config, const ForwardOptions& options)
      : config_(config), options_(options), specs_(parameter_specs(config)) {
    graph().name = std::move(name);
    for (const ParameterSpec& spec : specs_)
      out_.parameters.push_back(
          graph().declare(ValueKind::persistent, spec.name, {spec.shape, Dtype::f32, {}}, TensorClass::parameters));
    declare_inputs();
  }

  ForwardGraph build() {
    ValueId x = embed();
    for (int64_t layer = 0; layer < config_.n_layer; ++layer) {
      x = attention_block(layer, x);
      x = mlp_block(layer, x);
    }
    head(keep("ln_f", norm("ln_f", x)));
    return std::move(out_);
  }

 private:
  Graph& graph() { return out_.graph; }

  ValueId keep(const std::string& name, ValueId x) {
    if (!options_.residuals) return x;
    graph()[x].name = name;
    graph().outputs.push_back(x);
    return x;
  }

  ValueId input(const std::string& name, Shape shape, Dtype dtype) {
    return graph().declare(ValueKind::input, options_.input_prefix + name, {shape, dtype, {}}, TensorClass::io);
  }

  void declare_inputs() {
    const int64_t B = options_.batch, T = options_.seq;
    tokens_ = input("tokens", {B, T}, Dtype::i32);
    positions_ = input("positions", {B, T}, Dtype::i32);
    key_begin_ = input("key_begin", {B, T}, Dtype::i32);
    rng_ = input("rng", {2}, Dtype::i64);
    sample_ = input("sample", {B}, Dtype::i64);
    past_ = input("past", {B}, Dtype::i32);
    count_ = input("count", {B}, Dtype::i32);
    first_key_ = input("first_key", {B}, Dtype::i32);
  }

  ValueId parameter(const std::string& name) {
    for (; next_spec_ < specs_.size(); ++next_spec_)
      if (specs_[next_spec_].name == name) return out_.parameters[next_spec_];
    for (size_t i = 0; i < specs_.size(); ++i)
      if (specs_[i].name == name) return out_.parameters[next_spec_ = i];
    LAMINA_CHECK(false, "no parameter {}", name);
  }

  ValueId norm(const std::string& name, ValueId x) {
    const ValueId weight = parameter(name + ".weight");
    return graph().add1(Op::layernorm, name, {x, weight, parameter(name + ".bias")},
                        LayerNormAttrs{config_.layer_norm_epsilon});
  }

  ValueId linear(const std::string& name, ValueId x) {
    const ValueId weight = parameter(name + ".weight");
    return graph().add1(Op::linear, name, {x, weight, parameter(name + ".bias"), ValueId::none});
  }

  ValueId dropout(const std::string& name, ValueId x, double p) {
    return graph().add1(Op::dropout, name, {x, rng_, sample_}, DropoutAttrs{p, next_site_++, options_.training});
  }

  ValueId embed() {
    const ValueId token = graph().add1(Op::embedding, "embedding.token", {parameter("embedding.token"), tokens_});
    const ValueId position =
        graph().add1(Op::embedding, "embedding.position", {parameter("embedding.position"), positions_});
    const ValueId sum = keep("embedding", graph().add1(Op::add, "embedding", {token, position}));
    return dropout("embedding.dropout", sum, config_.embd_pdrop);
  }

  double attention_scale(int64_t layer) const {
    double scale = 1.0;
    if (config_.scale_attn_weights) scale /= std::sqrt(static_cast<double>(config_.head_dim()));
    if (config_.scale_attn_by_inverse_layer_idx) scale /= static_cast<double>(layer + 1);
    return scale;
  }

  ValueId attention_block(int64_t layer, ValueId x) {
    const std::string name = fmt::format("layer.{}", layer);
    const std::string attention = name + ".attention";
    const ValueId h = norm(name + ".ln_1", x);
    const ValueId q = linear(attention + ".q", h);
    const ValueId k = linear(attention + ".k", h);
    const ValueId v = linear(attention + ".v", h);
    const AttentionAttrs attrs{.n_head = config_.n_head,
                               .scale = attention_scale(layer),
                               .dropout = options_.training ? config_.attn_pdrop : 0.0,
                               .site = next_site_++,
                               .stride = config_.n_positions};
    const ValueId plain =
        graph().add(Op::attention, attention, {q, k, v, key_begin_, rng_, sample_}, attrs, TensorClass::activations)[0];
    const ValueId o = graph().add1(Op::branch, attention + ".use_past", {with_past(layer, q, k, v, attrs), plain},
                                   BranchAttrs{options_.cached});
    const ValueId projected = linear(attention + ".proj", o);
    return add_residual(attention, x, projected);
  }

  ValueId add_residual(const std::string& half, ValueId x, ValueId projected) {
    const ValueId dropped = dropout(half + ".dropout", projected, config_.resid_pdrop);
    return keep(half + ".residual", graph().add1(Op::add, half + ".residual", {x, dropped}));
  }

  ValueId with_past(int64_t layer, ValueId q, ValueId k, ValueId v, const AttentionAttrs& attrs) {
    const Shape shape{options_.batch, std::max<int64_t>(options_.capacity, 1), config_.n_embd};
    const auto cache = [&](const char* which) {
      return graph().declare(ValueKind::persistent, fmt::format("cache.{}.{}", layer, which), {shape, Dtype::f32, {}},
                             TensorClass::activations);
    };
    const ValueId k_cache = cache("k"), v_cache = cache("v");
    const std::vector<ValueId> out =
        graph().add(Op::attention_cached, fmt::format("layer.{}.attention.cached", layer),
                    {q, k, v, k_cache, v_cache, past_, count_, first_key_}, attrs, TensorClass::activations);
    if (options_.cached) graph().outputs.insert(graph().outputs.end(), {out[1], out[2]});
    return out[0];
  }

  ValueId mlp_block(int64_t layer, ValueId x) {
    const std::string name = fmt::format("layer.{}", layer);
    const ValueId fc = linear(name + ".mlp.fc", norm(name + ".ln_2", x));
    const GeluAttrs attrs{config_.activation() == Activation::gelu_tanh};
    const ValueId projected = linear(name + ".mlp.proj", graph().add1(Op::gelu, name + ".mlp.gelu", {fc}, attrs));
    return add_residual(name + ".mlp", x, projected);
  }

  void head(ValueId x) {
    if (options_.cached) x = graph().add1(Op::select_rows, "last", {x, input("last", {options_.batch}, Dtype::i32)});
    const ValueId table = parameter("embedding.token");
    const bool tied = config_.tie_word_embeddings;
    const ValueId own = tied ? table : parameter("head.weight");
    const ValueId weight = graph().add1(Op::branch, "head.tie", {table, own}, BranchAttrs{tied});
    out_.logits = graph().add1(Op::linear, "head", {x, weight, ValueId::none, ValueId::none});
    graph()[out_.logits].name = options_.input_prefix + "logits";
    if (!options_.with_loss) {
      graph().outputs.push_back(out_.logits);
      return;
    }
    const ValueId targets = input("targets", {options_.batch, options_.seq}, Dtype::i32);
    const ValueId weight_in = input("target_weight", {1}, Dtype::f32);
    out_.loss_scale = input("loss_scale", {1}, Dtype::f32);
    const ValueId losses = graph().add1(Op::cross_entropy, "cross_entropy", {out_.logits, targets});
    out_.loss = graph().add1(Op::weighted_sum, "loss", {losses, weight_in}, NoAttrs{}, TensorClass::io);
    graph()[out_.loss].name = "loss";
    graph().outputs.push_back(out_.loss);
  }

  const ModelConfig& config_;
  const ForwardOptions& options_;
  std::vector<ParameterSpec> specs_;
  size_t next_spec_ = 0;
  int64_t next_site_ = 0;
  ForwardGraph out_;
  ValueId tokens_{}, positions_{}, key_begin_{}, rng_{}, sample_{}, past_{}, count_{}, first_key_{};
};

// Norms and clip factors over the scaled gradients, in groups of one layer. A factor of gradients takes the scale away
// as well; a norm that was multiplied by one is without it.
class ClipBuilder {
 public:
  ClipBuilder(Graph& graph, const UpdateInputs& inputs, const UpdateOptions& options)
      : graph_(graph), inputs_(inputs), options_(options) {}

  void add(int64_t layer, const std::string& name, ValueId gradient) {
    const size_t group = static_cast<size_t>(layer + 1);
    if (groups_.size() <= group) groups_.resize(group + 1);
    const ValueId sums = scalar(Op::square_sum, name + ".square_sum", {gradient});
    graph_[sums].name = name + ".square_sum";
    graph_.outputs.push_back(sums);
    groups_[group].push_back(sums);
    all_.push_back(sums);
  }

  // The factor of each layer's gradients, at index layer + 1.
  std::vector<ValueId> factors() {
    const ValueId norm = scalar(Op::norm, "grad_norm", all_);
    graph_[norm].name = "grad_norm";
    graph_.outputs.push_back(norm);
    if (options_.clip_layer == 0.0)
      return std::vector<ValueId>(groups_.size(), factor("clip", norm, options_.clip, inputs_.loss_scale));
    std::vector<ValueId> layer_factors, squares;
    for (size_t g = 0; g < groups_.size(); ++g) {
      const std::string name = fmt::format("clip.layer.{}", static_cast<int64_t>(g) - 1);
      const ValueId layer_norm = scalar(Op::norm, name + ".norm", groups_[g]);
      layer_factors.push_back(factor(name, layer_norm, options_.clip_layer, inputs_.loss_scale));
      squares.push_back(scalar(Op::square_sum, name + ".square",
                               {scalar(Op::mul, name + ".clipped", {layer_norm, layer_factors.back()})}));
    }
    const ValueId clipped = scalar(Op::norm, "clip.norm", squares);
    const ValueId global = factor("clip", clipped, options_.clip, ValueId::none);
    for (ValueId& factor : layer_factors) factor = scalar(Op::mul, "clip.factor", {factor, global});
    return layer_factors;
  }

 private:
  ValueId scalar(Op op, const std::string& name, std::vector<ValueId> in, Attrs attrs = NoAttrs{}) {
    return graph_.add1(op, name, std::move(in), std::move(attrs), TensorClass::workspace);
  }

  ValueId factor(const std::string& name, ValueId norm, double most, ValueId scale) {
    return scalar(Op::clip_factor, name, {norm, inputs_.loss, scale}, ClipAttrs{most});
  }

  Graph& graph_;
  const UpdateInputs& inputs_;
  const UpdateOptions& options_;
  std::vector<std::vector<ValueId>> groups_;  // square sums by layer + 1
  std::vector<ValueId> all_;
};

}  // namespace

std::vector<std::string> residual_names(const ModelConfig& config) {
  std::vector<std::string> out{"embedding"};
  for (int64_t layer = 0; layer < config.n_layer; ++layer)
    for (const char* half : {"attention", "mlp"}) out.push_back(fmt::format("layer.{}.{}.residual", layer, half));
  out.emplace_back("ln_f");
  return out;
}

ForwardGraph build_forward(std::string name, const ModelConfig& config, const ForwardOptions& options) {
  return ForwardBuilder(std::move(name), config, options).build();
}

void append_update(Graph& graph, const std::vector<ParameterSpec>& specs, const std::vector<ValueId>& parameters,
                   const std::vector<ValueId>& gradients, const UpdateInputs& inputs, const UpdateOptions& options) {
  const ValueId hyper = graph.declare(ValueKind::input, "hyper", {{3}, Dtype::f32, {}}, TensorClass::io);
  ClipBuilder clip(graph, inputs, options);
  for (size_t i = 0; i < specs.size(); ++i) clip.add(specs[i].layer, specs[i].name, gradients[i]);
  const std::vector<ValueId> factors = clip.factors();
  for (size_t i = 0; i < specs.size(); ++i) {
    const ParameterSpec& spec = specs[i];
    const auto moment = [&](const char* which) {
      return graph.declare(ValueKind::persistent, fmt::format("{}.{}", which, spec.name), graph[parameters[i]].type,
                           TensorClass::optimizer);
    };
    const ValueId m = moment("m"), v = moment("v");
    const AdamWAttrs attrs{options.beta1, options.beta2, options.eps, spec.decay ? options.weight_decay : 0.0};
    const bool at_once = options.in_backward && spec.layer >= 0 && spec.shape.rank == 2;
    const ValueId factor = at_once ? ValueId::none : factors[static_cast<size_t>(spec.layer + 1)];
    const std::vector<ValueId> updated =
        graph.add(Op::adamw, spec.name + ".adamw", {parameters[i], m, v, gradients[i], hyper, factor}, attrs,
                  TensorClass::parameters);
    graph.outputs.insert(graph.outputs.end(), updated.begin(), updated.end());
  }
}

}  // namespace lamina

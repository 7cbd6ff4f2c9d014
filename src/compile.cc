#include "compile.h"

#include <algorithm>
#include <chrono>

#include "autodiff/autodiff.h"
#include "base/error.h"
#include "kernels/kernel.h"
#include "plan/planner.h"

namespace lamina {
namespace {

// What the forward nodes of the parts that are not fp32 are called.
std::vector<NodePrecision> precision_of_nodes(const PrecisionMap& map, const ModelConfig& config) {
  std::vector<NodePrecision> out;
  for (const PartPrecision& part : precision_of_parts(map, config))
    if (part.dtype != Dtype::f32)
      for (std::string& node : nodes_of_part(part.part)) out.push_back({std::move(node), part.dtype});
  return out;
}

class Compiler {
 public:
  Compiler(const ModelConfig& config, const CompileOptions& options)
      : config_(config),
        options_(options),
        precision_(precision_of_nodes(options.precision, config)),
        context_{.panel_width = kernel_table(options.isa).nr, .precision = precision_} {}

  Compiled compile() {
    if (options_.train) training();
    if (options_.eval) inference("eval", {.batch = options_.batch, .seq = options_.seq});
    if (options_.forward)
      inference("forward",
                {.batch = options_.batch, .seq = options_.seq, .with_loss = false, .residuals = options_.residuals});
    if (options_.generate_batch > 0) {
      generation("prefill", std::min(options_.prompt_block, config_.n_positions));
      generation("decode", 1);
    }
    out_.plan = make_plan(out_.graphs, options_.isa, options_.arithmetics);
    if (options_.train) {
      count_nodes(out_.graphs.front());
      choose();
    }
    validate(out_.plan);
    return std::move(out_);
  }

 private:
  void training() {
    const bool one_timeline = options_.accumulate == 1 && !options_.keep_gradients;
    const std::vector<ParameterSpec> specs = parameter_specs(config_);
    ForwardGraph forward = build_forward(one_timeline ? "step" : "micro_step", config_,
                                         {.batch = options_.batch, .seq = options_.seq, .training = true});
    Graph& graph = forward.graph;
    run_passes(graph, forward_passes(), context_, options_.pipeline, out_.passes);
    out_.forward_nodes_before = static_cast<int64_t>(graph.nodes.size());
    context_.backward = NodeId{graph.next_node};
    std::vector<ValueId> gradients = differentiate(graph, forward.loss, forward.loss_scale, forward.parameters);
    out_.backward_nodes_before = static_cast<int64_t>(graph.nodes.size()) - out_.forward_nodes_before;
    for (size_t i = 0; i < specs.size(); ++i)
      LAMINA_CHECK(gradients[i] != ValueId::none, "parameter {} has no gradient", specs[i].name);
    if (one_timeline)
      append_update(graph, specs, forward.parameters, gradients, {forward.loss, forward.loss_scale}, options_.update);
    else
      accumulate(graph, specs, gradients);
    run_passes(graph, whole_passes(), context_, options_.pipeline, out_.passes);
    training_ = graph;
    place(std::move(graph));
    seed_ = forward.loss_scale;
    if (!one_timeline) update_program(specs);
  }

  // What depends on the seed of the gradients is backward, and what depends on a square sum is the optimizer.
  void count_nodes(const Graph& graph) {
    std::vector<bool> backward(graph.values.size(), false), update(graph.values.size(), false);
    backward[static_cast<size_t>(seed_)] = true;
    for (const Node& node : graph.nodes) {
      bool is_backward = false, is_update = node.op == Op::square_sum || node.op == Op::adamw;
      for (ValueId id : node.inputs) {
        is_backward = is_backward || (id != ValueId::none && backward[static_cast<size_t>(id)]);
        is_update = is_update || (id != ValueId::none && update[static_cast<size_t>(id)]);
      }
      for (ValueId id : node.outputs) {
        // The losses that a head gives besides its gradients are forward.
        backward[static_cast<size_t>(id)] = is_backward && !(node.op == Op::head && id == node.outputs[0]);
        update[static_cast<size_t>(id)] = is_update;
      }
      out_.forward_nodes += !is_backward && !is_update;
      out_.backward_nodes += is_backward && !is_update;
    }
  }

  static ValueId gradient_sum(Graph& graph, const ParameterSpec& spec, Layout layout) {
    return graph.declare(ValueKind::persistent, "grad." + spec.name, {spec.shape, Dtype::f32, layout},
                         TensorClass::gradients);
  }

  // Adds each gradient to its persistent sum; the passes then move the addition into the op that makes the gradient.
  void accumulate(Graph& graph, const std::vector<ParameterSpec>& specs, const std::vector<ValueId>& gradients) {
    for (size_t i = 0; i < specs.size(); ++i) {
      const ValueId sum = gradient_sum(graph, specs[i], Layout::row_major());
      const ValueId updated =
          graph.add1(Op::add, "grad." + specs[i].name, {sum, gradients[i]}, NoAttrs{}, TensorClass::gradients);
      graph[updated].storage_of = sum;
      graph.outputs.push_back(updated);
    }
  }

  void update_program(const std::vector<ParameterSpec>& specs) {
    Graph graph;
    graph.name = "update";
    std::vector<ValueId> parameters, sums;
    for (const ParameterSpec& spec : specs) {
      const Type type{spec.shape, Dtype::f32, weight_layout(spec)};
      parameters.push_back(graph.declare(ValueKind::persistent, spec.name, type, TensorClass::parameters));
      sums.push_back(gradient_sum(graph, spec, type.layout));
    }
    const auto input = [&](const char* name) {
      return graph.declare(ValueKind::input, name, {{1}, Dtype::f32, {}}, TensorClass::io);
    };
    append_update(graph, specs, parameters, sums, {.loss = input("loss"), .loss_scale = input("loss_scale")},
                  options_.update);
    for (size_t i = 0; i < specs.size(); ++i)
      graph.outputs.push_back(
          graph.add1(Op::zero, "zero." + specs[i].name, {sums[i]}, NoAttrs{}, TensorClass::gradients));
    finish(std::move(graph));
  }

  // In a program of its own nothing tells the update which tensors are weights: its matrices are, in panels as
  // set_layout lays them in the others.
  Layout weight_layout(const ParameterSpec& spec) const {
    return spec.shape.rank == 2 ? Layout::panel(context_.panel_width) : Layout::row_major();
  }

  void inference(const char* name, const ForwardOptions& options) {
    ForwardGraph forward = build_forward(name, config_, options);
    run_passes(forward.graph, forward_passes(), context_, options_.pipeline, out_.passes);
    finish(std::move(forward.graph));
  }

  void generation(const std::string& name, int64_t seq) {
    inference(name.c_str(), {.batch = options_.generate_batch,
                             .seq = seq,
                             .with_loss = false,
                             .cached = true,
                             .capacity = config_.n_positions,
                             .input_prefix = name + "."});
  }

  void finish(Graph graph) {
    run_passes(graph, whole_passes(), context_, options_.pipeline, out_.passes);
    place(std::move(graph));
  }

  void place(Graph graph) {
    run_passes(graph, memory_passes(), context_, options_.pipeline, out_.passes);
    out_.graphs.push_back(std::move(graph));
  }

  // The loop between recompute and planning: the plan that keeps everything says what it costs, and is replaced.
  void choose() {
    if (options_.pipeline.skips("recompute")) return;
    Graph& planned = out_.graphs.front();
    const std::vector<NodeId> nodes = choose_recompute(
        {training_, out_.plan, context_, options_.pipeline, options_.arithmetics}, options_.recompute, out_.recompute);
    if (nodes.empty()) return;
    context_.recompute = nodes;
    std::erase_if(out_.passes, [&](const PassRecord& record) {
      return record.graph == training_.name && std::any_of(memory_passes().begin(), memory_passes().end(),
                                                           [&](const Pass& p) { return p.name == record.pass; });
    });
    out_.recomputed_nodes = -static_cast<int64_t>(planned.nodes.size());
    run_passes(training_, memory_passes(), context_, options_.pipeline, out_.passes);
    context_.recompute = {};
    planned = std::move(training_);
    out_.recomputed_nodes += static_cast<int64_t>(planned.nodes.size());
    Plan plan = make_plan(out_.graphs, options_.isa, options_.arithmetics);
    plan.numbers = out_.plan.numbers;
    out_.plan = std::move(plan);
  }

  const ModelConfig& config_;
  const CompileOptions& options_;
  std::vector<NodePrecision> precision_;
  PassContext context_;
  Graph training_;  // before memory_passes
  ValueId seed_{};  // of its gradients
  Compiled out_;
};

void check_amounts(const ModelConfig& config, const CompileOptions& options) {
  const auto check = [](std::string_view what, int64_t value, int64_t most, std::string_view limit) {
    if (value < 1 || value > most)
      throw_error(ErrorCode::invalid, "{} out of range: expected 1 to {} ({}), got {}", what, most, limit, value);
  };
  constexpr int64_t kMost = int64_t{1} << 20;
  check("batch", options.batch, kMost, "rows");
  check("accumulate", options.accumulate, kMost, "micro-batches");
  check("seq", options.seq, config.n_positions, "n_positions");
  // Below these no product of sizes comes near 64 bits: not bytes of a tensor, and not their sum.
  if (options.batch > kMostTokens / options.seq)
    throw_error(ErrorCode::invalid, "batch x seq out of range: expected at most {} tokens, got {} x {}", kMostTokens,
                options.batch, options.seq);
  constexpr double kMostParameters = 0x1.0p50;
  const double C = static_cast<double>(config.n_embd), L = static_cast<double>(config.n_layer);
  const double vectors = static_cast<double>(config.vocab_size + config.n_positions);
  const double parameters = L * C * (4.0 * C + 2.0 * static_cast<double>(config.inner())) + 2.0 * vectors * C;
  if (parameters > kMostParameters)
    throw_error(ErrorCode::invalid, "model out of range: expected at most {:.0f} parameters, got about {:.0f}",
                kMostParameters, parameters);
}

void check_update(const CompileOptions& options) {
  if (!options.update.in_backward) return;
  if (options.accumulate != 1 || options.keep_gradients || options.update.clip > 0.0 || options.update.clip_layer > 0.0)
    throw_error(ErrorCode::invalid,
                "no update in the backward pass: expected gradients of 1 micro-batch, neither kept nor clipped, got {} "
                "micro-batches, {}, clip {}, clip_layer {}",
                options.accumulate, options.keep_gradients ? "kept gradients" : "none kept", options.update.clip,
                options.update.clip_layer);
}

// A dropout decides by a number of 32 bits: more elements of one sample would share their decisions.
void check_dropout(const ModelConfig& config, const CompileOptions& options) {
  static constexpr double kMost = 0x1.0p32;
  const auto check = [](std::string_view what, double p, double elements, const std::string& sizes) {
    if (p > 0.0 && elements > kMost)
      throw Error(
          ErrorCode::invalid,
          fmt::format("too many elements for {} in one row: expected at most {:.0f}, got {}", what, kMost, sizes),
          "--dropout 0 leaves it out");
  };
  const double T = static_cast<double>(options.seq), P = static_cast<double>(config.n_positions);
  check("dropout", std::max(config.resid_pdrop, config.embd_pdrop), T * static_cast<double>(config.n_embd),
        fmt::format("seq {} x n_embd {}", options.seq, config.n_embd));
  check("attn_pdrop", config.attn_pdrop, P * P * static_cast<double>(config.n_head),
        fmt::format("n_positions {0} x n_positions {0} x n_head {1}", config.n_positions, config.n_head));
}

}  // namespace

Compiled compile(const ModelConfig& config, const CompileOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  validate(config);
  check_amounts(config, options);
  if (options.train) check_dropout(config, options);
  if (options.train) check_update(options);
  check_skipped_passes(options.pipeline.skip);
  Compiled out = Compiler(config, options).compile();
  out.compile_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count() -
                   out.recompute.curve_ms;
  return out;
}

}  // namespace lamina

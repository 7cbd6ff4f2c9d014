#include "compile.h"

#include <chrono>

#include "autodiff/autodiff.h"
#include "base/error.h"
#include "kernels/kernel.h"
#include "plan/planner.h"

namespace lamina {
namespace {

class Compiler {
 public:
  Compiler(const ModelConfig& config, const CompileOptions& options)
      : config_(config), options_(options), context_{kernel_table(options.isa).nr} {}

  Compiled compile() {
    if (options_.train) training();
    if (options_.eval) inference("eval", {.batch = options_.batch, .seq = options_.seq});
    if (options_.forward) inference("forward", {.batch = options_.batch, .seq = options_.seq, .with_loss = false});
    if (options_.generate_batch > 0) {
      generation("prefill", std::min(options_.prompt_block, config_.n_positions));
      generation("decode", 1);
    }
    out_.plan = make_plan(out_.graphs, options_.isa);
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
    out_.forward_nodes = static_cast<int64_t>(graph.nodes.size());
    std::vector<ValueId> gradients = differentiate(graph, forward.loss, forward.loss_scale, forward.parameters);
    out_.backward_nodes_before = static_cast<int64_t>(graph.nodes.size()) - out_.forward_nodes;
    for (size_t i = 0; i < specs.size(); ++i)
      LAMINA_CHECK(gradients[i] != ValueId::none, "parameter {} has no gradient", specs[i].name);
    const int64_t optimizer_nodes = one_timeline ? update(graph, specs, forward.parameters, gradients, forward.loss)
                                                 : accumulate(graph, specs, gradients);
    finish(std::move(graph));
    out_.backward_nodes = static_cast<int64_t>(out_.graphs.back().nodes.size()) - out_.forward_nodes -
                          (one_timeline ? optimizer_nodes : 0);
    if (!one_timeline) update_program(specs);
  }

  // Returns the number of nodes added.
  int64_t update(Graph& graph, const std::vector<ParameterSpec>& specs, const std::vector<ValueId>& parameters,
                 const std::vector<ValueId>& gradients, ValueId loss) {
    const size_t before = graph.nodes.size();
    append_update(graph, specs, parameters, gradients, loss, options_.update);
    return static_cast<int64_t>(graph.nodes.size() - before);
  }

  static ValueId gradient_sum(Graph& graph, const ParameterSpec& spec, Layout layout) {
    return graph.declare(ValueKind::persistent, "grad." + spec.name, {spec.shape, Dtype::f32, layout},
                         TensorClass::gradients);
  }

  // Adds each gradient to its persistent sum; the passes then move the addition into the op that makes the gradient.
  int64_t accumulate(Graph& graph, const std::vector<ParameterSpec>& specs, const std::vector<ValueId>& gradients) {
    for (size_t i = 0; i < specs.size(); ++i) {
      const ValueId sum = gradient_sum(graph, specs[i], Layout::row_major());
      const ValueId updated =
          graph.add1(Op::add, "grad." + specs[i].name, {sum, gradients[i]}, NoAttrs{}, TensorClass::gradients);
      graph[updated].storage_of = sum;
      graph.outputs.push_back(updated);
    }
    return static_cast<int64_t>(specs.size());
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
    update(graph, specs, parameters, sums,
           graph.declare(ValueKind::input, "loss", {{1}, Dtype::f32, {}}, TensorClass::io));
    for (size_t i = 0; i < specs.size(); ++i)
      graph.outputs.push_back(
          graph.add1(Op::zero, "zero." + specs[i].name, {sums[i]}, NoAttrs{}, TensorClass::gradients));
    finish(std::move(graph));
  }

  // In a program of its own nothing tells the update which tensors are weights: its matrices are, and lie as set_layout
  // lays them in the others.
  Layout weight_layout(const ParameterSpec& spec) const {
    return spec.shape.rank == 2 && !options_.pipeline.skips("set_layout") ? Layout::panel(context_.panel_width)
                                                                          : Layout::row_major();
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
    out_.graphs.push_back(std::move(graph));
  }

  const ModelConfig& config_;
  const CompileOptions& options_;
  PassContext context_;
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
}

}  // namespace

Compiled compile(const ModelConfig& config, const CompileOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  validate(config);
  check_amounts(config, options);
  check_skipped_passes(options.pipeline.skip);
  Compiled out = Compiler(config, options).compile();
  out.compile_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return out;
}

}  // namespace lamina

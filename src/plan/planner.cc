#include "plan/planner.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "graph/lifetime.h"
#include "graph/schema.h"
#include "kernels/arithmetic.h"
#include "kernels/kernel.h"

namespace lamina {
namespace {

class Planner {
 public:
  Planner(Isa isa, const Arithmetics& arithmetics) : arithmetics_(arithmetics) {
    plan_.isa = isa;
    if (kernel_table(isa, arithmetics.bf16) == nullptr)
      throw_error(ErrorCode::unsupported, "no kernels: arithmetic {} on {}", arithmetic_name(arithmetics.bf16),
                  isa_name(isa));
  }

  void add(const Graph& graph) {
    tensor_of_.assign(graph.values.size(), -1);
    PlanProgram program;
    program.name = graph.name;
    fixed_tensors(graph);
    transient_tensors(graph, program);
    std::vector<int32_t> step_of(graph.nodes.size(), -1);
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      step_of[n] = static_cast<int32_t>(program.steps.size());
      if (schema(graph.nodes[n].op).kernel) program.steps.push_back(step(graph, graph.nodes[n]));
    }
    if (program.peak_step >= 0) program.peak_step = step_of[static_cast<size_t>(program.peak_step)];
    plan_.region_bytes[static_cast<size_t>(Region::transient)] =
        std::max(plan_.region(Region::transient), program.arena_bytes);
    plan_.programs.push_back(std::move(program));
  }

  Plan take() {
    plan_.digest = plan_.numbers = plan_digest(plan_);
    return std::move(plan_);
  }

 private:
  int32_t push(PlanTensor tensor) {
    plan_.tensors.push_back(std::move(tensor));
    return static_cast<int32_t>(plan_.tensors.size() - 1);
  }

  static PlanTensor describe(const Value& value) {
    PlanTensor tensor;
    tensor.name = value.name;
    tensor.shape = value.type.shape;
    tensor.dtype = value.type.dtype;
    tensor.layout = value.type.layout;
    tensor.tensor_class = tensor_class_name(value.tensor_class);
    tensor.bytes = storage_bytes(value.type);
    return tensor;
  }

  // A tensor that programs share by name.
  int32_t shared(const Value& value, Region region) {
    const auto [found, fresh] = by_name_.emplace(value.name, static_cast<int32_t>(plan_.tensors.size()));
    PlanTensor tensor = describe(value);
    if (!fresh) {
      const PlanTensor& there = plan_.tensors[static_cast<size_t>(found->second)];
      LAMINA_CHECK(there.shape == tensor.shape && there.dtype == tensor.dtype && there.layout == tensor.layout &&
                       there.region == region,
                   "programs disagree on {}: {} {} and {} {}", value.name, there.shape.text(), there.layout.text(),
                   tensor.shape.text(), tensor.layout.text());
      return found->second;
    }
    int64_t& end = plan_.region_bytes[static_cast<size_t>(region)];
    tensor.region = region;
    tensor.offset = end;
    tensor.storage = next_storage_++;
    end += tensor.bytes;
    return push(std::move(tensor));
  }

  // Inputs and persistent values that some node uses, in their order of declaration; then outputs.
  void fixed_tensors(const Graph& graph) {
    std::vector<bool> used(graph.values.size(), false);
    for (const Node& node : graph.nodes)
      for (ValueId id : node.inputs)
        if (id != ValueId::none) used[static_cast<size_t>(graph.root(id))] = true;
    for (size_t i = 0; i < graph.values.size(); ++i) {
      const Value& value = graph.values[i];
      if (!used[i] || value.kind == ValueKind::computed) continue;
      tensor_of_[i] = shared(value, value.kind == ValueKind::input ? Region::io : Region::persistent);
    }
    for (ValueId id : graph.outputs) {
      const ValueId root = graph.root(id);
      if (graph[root].kind == ValueKind::computed)
        tensor_of_[static_cast<size_t>(root)] = shared(graph[root], Region::io);
    }
  }

  void transient_tensors(const Graph& graph, PlanProgram& program) {
    const std::vector<Lifetime> lifetimes = transient_lifetimes(graph);
    const LivePeak peak = live_peak(lifetimes, graph.nodes.size());
    std::vector<Interval> intervals;
    intervals.reserve(lifetimes.size());
    for (const Lifetime& life : lifetimes) intervals.push_back({life.first, life.last, life.bytes});
    const Placement placement = lifetimes.empty() ? Placement{} : place(intervals);
    program.arena_bytes = placement.height;
    program.max_live_bytes = peak.bytes;
    program.peak_step = peak.node;
    for (size_t i = 0; i < lifetimes.size(); ++i) {
      PlanTensor tensor = describe(graph[lifetimes[i].root]);
      tensor.region = Region::transient;
      tensor.offset = placement.offsets[i];
      tensor.storage = next_storage_++;
      tensor_of_[static_cast<size_t>(lifetimes[i].root)] = push(std::move(tensor));
    }
  }

  // The tensor of a value; a value that lies on another gets an entry of its own only if its type differs.
  int32_t tensor(const Graph& graph, ValueId id) {
    if (id == ValueId::none) return -1;
    int32_t& index = tensor_of_[static_cast<size_t>(id)];
    if (index >= 0) return index;
    index = tensor_of_[static_cast<size_t>(graph.root(id))];
    LAMINA_CHECK(index >= 0, "value {} has no storage", graph[id].name);
    PlanTensor view = plan_.tensors[static_cast<size_t>(index)];
    const Type& type = graph[id].type;
    if (view.shape == type.shape && view.layout == type.layout && view.dtype == type.dtype) return index;
    view.name = graph[id].name;
    view.shape = type.shape;
    view.layout = type.layout;
    view.dtype = type.dtype;
    return index = push(std::move(view));
  }

  PlanStep step(const Graph& graph, const Node& node) {
    const Arithmetic arithmetic = node.precision == Dtype::bf16 ? arithmetics_.bf16 : Arithmetic::f32;
    const Kernel* kernel = find_kernel(plan_.isa, arithmetic, node.op);
    if (kernel == nullptr)
      throw_error(ErrorCode::unsupported, "no kernel: op {} on {}", op_name(node.op), isa_name(plan_.isa));
    PlanStep step{node.name, node.op, kernel->id, node.attrs, node.precision, {}, {}, 0};
    for (ValueId id : node.inputs) step.in.push_back(tensor(graph, id));
    for (ValueId id : node.outputs) step.out.push_back(tensor(graph, id));
    // Kernels ask which operands are present, and look at no byte of them yet.
    static std::byte present;
    const auto bind = [&](const std::vector<int32_t>& list) {
      std::vector<TensorArg> args(list.size());
      for (size_t i = 0; i < list.size(); ++i) {
        if (list[i] < 0) continue;
        const PlanTensor& tensor = plan_.tensors[static_cast<size_t>(list[i])];
        args[i] = {&present, tensor.shape, tensor.layout, tensor.dtype};
      }
      return args;
    };
    const std::vector<TensorArg> in = bind(step.in), out = bind(step.out);
    const void* attrs = std::visit([](const auto& a) -> const void* { return &a; }, step.attrs);
    const Args args{in.data(), out.data(),    static_cast<int32_t>(in.size()), static_cast<int32_t>(out.size()),
                    attrs,     step.precision};
    step.tasks = kernel->tasks(args);
    plan_.scratch_bytes = std::max(plan_.scratch_bytes, (kernel->scratch(args) + 63) / 64 * 64);
    return step;
  }

  const Arithmetics& arithmetics_;
  Plan plan_;
  std::unordered_map<std::string, int32_t> by_name_;
  std::vector<int32_t> tensor_of_;  // of the values of the graph being added
  int32_t next_storage_ = 0;
};

}  // namespace

Plan make_plan(std::span<const Graph> graphs, Isa isa, const Arithmetics& arithmetics) {
  Planner planner(isa, arithmetics);
  for (const Graph& graph : graphs) planner.add(graph);
  return planner.take();
}

}  // namespace lamina

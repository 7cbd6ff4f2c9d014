#include "autodiff/autodiff.h"

#include <memory>

#include "base/error.h"
#include "graph/schema.h"

namespace lamina {
namespace {

// Which values lie on a path from `wrt`.
std::vector<bool> values_needing_gradients(const Graph& graph, std::span<const ValueId> wrt) {
  std::vector<bool> needs(graph.values.size(), false);
  for (ValueId id : wrt) needs[static_cast<size_t>(id)] = true;
  for (const Node& node : graph.nodes) {
    bool any = false;
    for (ValueId id : node.inputs) any = any || (id != ValueId::none && needs[static_cast<size_t>(id)]);
    if (!any || schema(node.op).gradient == nullptr) continue;
    for (ValueId id : node.outputs) needs[static_cast<size_t>(id)] = true;
  }
  return needs;
}

class Backward {
 public:
  Backward(Graph& graph, std::span<const ValueId> wrt)
      : graph_(graph), needs_(values_needing_gradients(graph, wrt)), gradient_(graph.values.size(), ValueId::none) {}

  void seed(ValueId loss, ValueId seed) { gradient_[index(loss)] = seed; }
  ValueId gradient(ValueId id) const { return gradient_[index(id)]; }

  void visit(const Node& node) {
    const OpSchema& rule = schema(node.op);
    std::vector<ValueId> dout;
    bool flows = false;
    for (ValueId id : node.outputs) {
      dout.push_back(gradient_[index(id)]);
      flows = flows || dout.back() != ValueId::none;
    }
    const size_t inputs = node.inputs.size();
    const auto needs = std::make_unique<bool[]>(inputs);
    bool needed = false;
    for (size_t i = 0; i < inputs; ++i) {
      needs[i] = node.inputs[i] != ValueId::none && needs_[index(node.inputs[i])];
      needed = needed || needs[i];
    }
    if (!flows || !needed || rule.gradient == nullptr) return;
    std::vector<ValueId> din(inputs, ValueId::none);
    GradientCall call{graph_, node, dout, {needs.get(), inputs}, din};
    const size_t first = graph_.nodes.size();
    rule.gradient(call);
    for (size_t n = first; n < graph_.nodes.size(); ++n)
      if (schema(graph_.nodes[n].op).operands != 0) graph_.nodes[n].precision = node.precision;
    for (size_t i = 0; i < inputs; ++i)
      if (needs[i] && din[i] != ValueId::none) accumulate(node.inputs[i], din[i]);
  }

 private:
  static size_t index(ValueId id) { return static_cast<size_t>(id); }

  void accumulate(ValueId id, ValueId contribution) {
    ValueId& sum = gradient_[index(id)];
    if (sum == ValueId::none) {
      sum = contribution;
      return;
    }
    const TensorClass tensor_class = graph_[contribution].tensor_class;
    sum = graph_.add1(Op::add, graph_[id].name + ".grad", {sum, contribution}, NoAttrs{}, tensor_class);
  }

  Graph& graph_;
  std::vector<bool> needs_;
  std::vector<ValueId> gradient_;  // of the values of the forward graph
};

}  // namespace

std::vector<ValueId> differentiate(Graph& graph, ValueId loss, ValueId seed, std::span<const ValueId> wrt) {
  LAMINA_CHECK(graph[loss].type.shape.elements() == 1, "loss {} has shape {}", graph[loss].name,
               graph[loss].type.shape.text());
  Backward backward(graph, wrt);
  backward.seed(loss, seed);
  const std::vector<Node> forward = graph.nodes;  // rules append to the graph while we walk
  for (size_t n = forward.size(); n-- > 0;) backward.visit(forward[n]);
  std::vector<ValueId> gradients;
  for (ValueId id : wrt) gradients.push_back(backward.gradient(id));
  return gradients;
}

}  // namespace lamina

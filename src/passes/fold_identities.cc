// Folds what the configuration makes the identity: dropout that is off, `scale` by 1 and a reshape to the same shape.
// Attention without dropout reads no random numbers.
#include "passes/pass.h"

namespace lamina {
namespace {

// The input that the node merely repeats, or none.
ValueId repeated_input(const Graph& graph, const Node& node) {
  switch (node.op) {
    case Op::dropout: {
      const auto& attrs = std::get<DropoutAttrs>(node.attrs);
      return !attrs.training || attrs.p == 0.0 ? node.inputs[0] : ValueId::none;
    }
    case Op::scale: return std::get<ScaleAttrs>(node.attrs).factor == 1.0 ? node.inputs[0] : ValueId::none;
    case Op::reshape:
      return graph[node.inputs[0]].type.shape == graph[node.outputs[0]].type.shape ? node.inputs[0] : ValueId::none;
    default: return ValueId::none;
  }
}

// Attention that drops nothing has no use for its random inputs.
bool drop_random_inputs(Node& node) {
  const auto* attrs = std::get_if<AttentionAttrs>(&node.attrs);
  const size_t rng = node.op == Op::attention ? 4 : node.op == Op::attention_bwd ? 7 : 0;
  if (attrs == nullptr || rng == 0 || attrs->dropout != 0.0 || node.inputs.size() <= rng) return false;
  node.inputs.resize(rng);
  return true;
}

}  // namespace

bool fold_identities(Graph& graph, const PassContext&) {
  bool changed = drop_nodes(graph, [&](const Node& node) { return repeated_input(graph, node); });
  for (Node& node : graph.nodes) changed = drop_random_inputs(node) || changed;
  return changed;
}

}  // namespace lamina

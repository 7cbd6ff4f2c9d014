// Folds what the configuration decides: `branch` takes its side; dropout that is off, `scale` by 1 and a reshape to the
// same shape are the identity; attention without dropout reads no random numbers.
#include "base/error.h"
#include "passes/pass.h"

namespace lamina {
namespace {

// The input that the node merely repeats, or none.
ValueId repeated_input(const Graph& graph, const Node& node) {
  switch (node.op) {
    case Op::branch: return node.inputs[std::get<BranchAttrs>(node.attrs).taken ? 0 : 1];
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

bool fold_branches(Graph& graph, const PassContext&) {
  std::vector<ValueId> to(graph.values.size(), ValueId::none);
  bool changed = false;
  std::vector<Node> kept;
  kept.reserve(graph.nodes.size());
  for (Node& node : graph.nodes) {
    if (const ValueId input = repeated_input(graph, node); input != ValueId::none) {
      to[static_cast<size_t>(node.outputs[0])] = input;
      changed = true;
      continue;
    }
    changed = drop_random_inputs(node) || changed;
    kept.push_back(std::move(node));
  }
  graph.nodes = std::move(kept);
  replace_uses(graph, to);
  return changed;
}

}  // namespace lamina

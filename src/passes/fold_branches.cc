// Takes the side of each `branch` that the configuration chose. No branch has a gradient or a kernel, so this pass is
// no choice.
#include "passes/pass.h"

namespace lamina {

bool fold_branches(Graph& graph, const PassContext&) {
  return drop_nodes(graph, [](const Node& node) {
    if (node.op != Op::branch) return ValueId::none;
    return node.inputs[std::get<BranchAttrs>(node.attrs).taken ? 0 : 1];
  });
}

}  // namespace lamina

// Gives each node with products the precision of the part of the model that it belongs to. GELU takes that of the
// product whose result it reads. The nodes of the backward side get theirs from the forward node, when they are made.
#include "graph/schema.h"
#include "passes/pass.h"

namespace lamina {

bool set_precision(Graph& graph, const PassContext& context) {
  const Uses uses(graph);
  bool changed = false;
  for (Node& node : graph.nodes) {
    if (schema(node.op).operands == 0) continue;
    Dtype precision = node.precision;
    if (node.op == Op::gelu) {
      const int32_t producer = uses.producer_of(node.inputs[0]);
      if (producer >= 0) precision = graph.nodes[static_cast<size_t>(producer)].precision;
    } else {
      for (const NodePrecision& given : context.precision)
        if (given.node == node.name) precision = given.dtype;
    }
    changed = changed || precision != node.precision;
    node.precision = precision;
  }
  return changed;
}

}  // namespace lamina

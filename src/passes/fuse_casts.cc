// Casts move into what makes their operand, or into what reads their result:
//
//   h = layernorm(x); a = cast(h); … = linear(a)    ->   h is stored in 16 bits, where nothing reads it in fp32
//   a = cast(dx); … = linear_bwd_input(a) in bf16   ->   linear_bwd_input(dx) in bf16: it rounds while it packs
//
// The second loses nothing: nodes round their operands to their precision anyway. Data structure: the uses of values.
#include "graph/schema.h"
#include "passes/pass.h"

namespace lamina {
namespace {

// The one node that reads the value is this cast, and its producer can store 16 bits.
bool can_be_narrow(const Graph& graph, const Uses& uses, const std::vector<bool>& fixed, ValueId id) {
  const Value& value = graph[id];
  if (value.kind != ValueKind::computed || fixed[static_cast<size_t>(id)] || uses.readers_of(id).size() != 1)
    return false;
  const Node& producer = graph.nodes[static_cast<size_t>(uses.producer_of(id))];
  for (size_t o = 0; o < producer.outputs.size(); ++o)
    if (producer.outputs[o] == id) return ((schema(producer.op).narrow >> o) & 1u) != 0;
  return false;
}

}  // namespace

bool fuse_casts(Graph& graph, const PassContext&) {
  const Uses uses(graph);
  std::vector<bool> fixed(graph.values.size(), false);  // outputs, and what shares storage
  for (ValueId id : graph.outputs) fixed[static_cast<size_t>(id)] = true;
  for (size_t i = 0; i < graph.values.size(); ++i) {
    if (graph.values[i].storage_of == ValueId::none) continue;
    fixed[i] = fixed[static_cast<size_t>(graph.values[i].storage_of)] = true;
  }
  for (const Node& node : graph.nodes)
    if (node.op == Op::cast && can_be_narrow(graph, uses, fixed, node.inputs[0]))
      graph[node.inputs[0]].type.dtype = node.precision;
  return drop_nodes(graph, [](const Node& node) { return node.op == Op::cast ? node.inputs[0] : ValueId::none; });
}

}  // namespace lamina

// The slope of GELU moves into the product that makes what it multiplies:
//
//   dy = linear_bwd_input(…); dpre = gelu_bwd(dy, pre)   ->   dpre = linear_bwd_gelu(…, pre)
#include "passes/cells.h"
#include "passes/pass.h"

namespace lamina {
namespace {

void fuse(Graph& graph, CellBuilder& cells, size_t n) {
  const Node& slope = graph.nodes[n];
  const Node* linear = cells.producer(slope.inputs[0], Op::linear_bwd_input);
  if (linear == nullptr || cells.only_reader(slope.inputs[0]) != &slope || input_of(*linear, 2) != ValueId::none)
    return;
  Node made{{},
            Op::linear_bwd_gelu,
            linear->name,
            {linear->inputs[0], linear->inputs[1], slope.inputs[1]},
            slope.outputs,
            slope.attrs};
  cells.replace(&slope, {linear, &slope}, std::move(made));
}

}  // namespace

bool fuse_gelu_gradient(Graph& graph, const PassContext&) {
  CellBuilder cells(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    if (graph.nodes[n].op == Op::gelu_bwd) fuse(graph, cells, n);
  return cells.finish();
}

}  // namespace lamina

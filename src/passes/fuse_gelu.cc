// GELU moves into the product that makes what it takes:
//
//   pre = linear(h); y = gelu(pre)   ->   y, pre = linear_gelu(h)
//
// pre is left out where nothing else reads it: an evaluation keeps nothing.
#include "passes/cells.h"
#include "passes/pass.h"

namespace lamina {
namespace {

void fuse(Graph& graph, CellBuilder& cells, size_t n) {
  const Node gelu = graph.nodes[n];
  const ValueId pre = gelu.inputs[0];
  const Node* linear = cells.producer(pre, Op::linear);
  if (linear == nullptr || cells.is_output(pre)) return;
  if (input_of(*linear, 2) == ValueId::none || input_of(*linear, 3) != ValueId::none) return;
  const LinearGeluAttrs attrs{0.0, std::get<GeluAttrs>(gelu.attrs).tanh, cells.readers(pre).size() > 1};
  Node made{{},
            Op::linear_gelu,
            linear->name,
            {linear->inputs[0], ValueId::none, ValueId::none, linear->inputs[1], linear->inputs[2]},
            {gelu.outputs[0], pre},
            attrs};
  for (const char* statistic : {".mean", ".rstd"}) made.outputs.push_back(cells.workspace(made.name + statistic, {0}));
  if (cells.replace(&graph.nodes[n], {linear, &graph.nodes[n]}, std::move(made)) && !attrs.keep)
    graph[pre].type.shape = {0};
}

}  // namespace

bool fuse_gelu(Graph& graph, const PassContext&) {
  CellBuilder cells(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    if (graph.nodes[n].op == Op::gelu) fuse(graph, cells, n);
  return cells.finish();
}

}  // namespace lamina

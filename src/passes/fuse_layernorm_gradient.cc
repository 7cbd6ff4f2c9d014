// The gradients of a layernorm's input, weight and bias come from one visit of its rows:
//
//   dx = layernorm_bwd_input(dy, x); dw, db = layernorm_bwd_params(dy, x)   ->   dx, dw, db = layernorm_bwd(dy, x)
#include <algorithm>

#include "passes/cells.h"
#include "passes/pass.h"

namespace lamina {
namespace {

void fuse(Graph& graph, CellBuilder& cells, size_t n) {
  const Node& input = graph.nodes[n];
  for (const Node* params : cells.readers(input.inputs[0])) {
    if (params->op != Op::layernorm_bwd_params || params->inputs[1] != input.inputs[1]) continue;
    if (params->inputs[2] != input.inputs[3] || params->inputs[3] != input.inputs[4]) continue;
    Node made{{}, Op::layernorm_bwd, input.name, input.inputs, input.outputs, NoAttrs{}};
    made.inputs.resize(6, ValueId::none);
    made.inputs.insert(made.inputs.end(), {input_of(*params, 4), input_of(*params, 5)});
    made.outputs.insert(made.outputs.end(), params->outputs.begin(), params->outputs.end());
    const Shape rows = graph[input.inputs[1]].type.shape;
    const Shape sums{(rows.rows() + kNormRows - 1) / kNormRows, 2 * rows.last()};
    made.outputs.push_back(cells.workspace(input.name + ".sums", sums));
    cells.replace(std::max(&input, params), {&input, params}, std::move(made));
    return;
  }
}

}  // namespace

bool fuse_layernorm_gradient(Graph& graph, const PassContext&) {
  CellBuilder cells(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    if (graph.nodes[n].op == Op::layernorm_bwd_input) fuse(graph, cells, n);
  return cells.finish();
}

}  // namespace lamina

// The gradient of a bias is summed up while dy is packed for the gradient of its weight:
//
//   dW = linear_bwd_weight(x, dy); db = linear_bwd_bias(dy)   ->   dW, db = linear_bwd_params(x, dy)
#include "passes/cells.h"
#include "passes/pass.h"

namespace lamina {
namespace {

void fuse(Graph& graph, CellBuilder& cells, size_t n) {
  const Node& weight = graph.nodes[n];
  for (const Node* bias : cells.readers(weight.inputs[1])) {
    if (bias->op != Op::linear_bwd_bias) continue;
    std::string name = weight.name;
    if (name.ends_with(".weight")) name.resize(name.size() - 7);
    Node made{{},
              Op::linear_bwd_params,
              name + ".params",
              {weight.inputs[0], weight.inputs[1], input_of(weight, 2), input_of(*bias, 1)},
              {weight.outputs[0], bias->outputs[0]},
              NoAttrs{}};
    cells.replace(std::max(&weight, bias), {&weight, bias}, std::move(made));
    return;
  }
}

}  // namespace

bool fuse_bias_gradient(Graph& graph, const PassContext&) {
  CellBuilder cells(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    if (graph.nodes[n].op == Op::linear_bwd_weight) fuse(graph, cells, n);
  return cells.finish();
}

}  // namespace lamina

// A layernorm moves into the packing of the rows of the product after it, where nothing else reads what it gives: in
// evaluation, and in training where the backward side makes it again.
//
//   h = layernorm(x); … = linear_qkv(h)   ->   … = linear_qkv(x), with weight and bias of the layernorm
#include "passes/cells.h"
#include "passes/pass.h"

namespace lamina {
namespace {

// The first of the two outputs for statistics.
size_t mean_of(const Node& node) { return node.outputs.size() - 2; }

void fuse(Graph& graph, CellBuilder& cells, size_t n) {
  const Node norm = graph.nodes[n];
  const Node* product = cells.only_reader(norm.outputs[0]);
  if (product == nullptr || (product->op != Op::linear_qkv && product->op != Op::linear_gelu)) return;
  if (product->inputs[0] != norm.outputs[0] || input_of(*product, 1) != ValueId::none) return;
  Node made = *product;
  for (size_t i = 0; i < 3; ++i) made.inputs[i] = norm.inputs[i];
  made.outputs[mean_of(made)] = norm.outputs[1];
  made.outputs[mean_of(made) + 1] = norm.outputs[2];
  const double eps = std::get<LayerNormAttrs>(norm.attrs).eps;
  if (product->op == Op::linear_qkv)
    made.attrs = LayerNormAttrs{eps};
  else
    std::get<LinearGeluAttrs>(made.attrs).eps = eps;
  cells.replace(product, {&graph.nodes[n], product}, std::move(made));
}

}  // namespace

bool fuse_layernorm(Graph& graph, const PassContext&) {
  CellBuilder cells(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    if (graph.nodes[n].op == Op::layernorm) fuse(graph, cells, n);
  return cells.finish();
}

}  // namespace lamina

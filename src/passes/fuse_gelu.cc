// GELU moves into the product that makes what it takes, and its slope into the product that makes dy; a layernorm before
// them moves into the packing of its rows, where backward does not need what it gave:
//
//   h = layernorm(x); pre = linear(h); y = gelu(pre)     ->     y, pre = norm_linear_gelu(x)
//   dy = linear_bwd_input(…); dpre = gelu_bwd(dy, pre)   ->     dpre = linear_bwd_gelu(…, pre)
#include "passes/cells.h"
#include "passes/pass.h"

namespace lamina {
namespace {

void fuse_forward(Graph& graph, CellBuilder& cells, size_t n) {
  const Node norm = graph.nodes[n];
  const Node* linear = cells.only_reader(norm.outputs[0], Op::linear);
  if (linear == nullptr || input_of(*linear, 2) == ValueId::none || input_of(*linear, 3) != ValueId::none) return;
  const ValueId pre = linear->outputs[0];
  if (cells.is_output(pre)) return;
  const Node* gelu = nullptr;
  const std::vector<Node*> readers = cells.readers(pre);
  for (const Node* reader : readers)
    if (reader->op == Op::gelu && (gelu == nullptr || reader < gelu)) gelu = reader;  // a later one recomputes it
  if (gelu == nullptr) return;
  const NormGeluAttrs attrs{std::get<LayerNormAttrs>(norm.attrs).eps, std::get<GeluAttrs>(gelu->attrs).tanh,
                            readers.size() > 1};
  Node made{{}, Op::norm_linear_gelu, linear->name, norm.inputs, {}, attrs};
  made.inputs.insert(made.inputs.end(), {linear->inputs[1], linear->inputs[2]});
  made.outputs = {gelu->outputs[0], pre, norm.outputs[1], norm.outputs[2]};
  if (cells.replace(&graph.nodes[n], {&graph.nodes[n], linear, gelu}, std::move(made)) && !attrs.keep)
    graph[pre].type.shape = {0};
}

void fuse_backward(Graph& graph, CellBuilder& cells, size_t n) {
  const Node& slope = graph.nodes[n];
  const Node* linear = cells.producer(slope.inputs[0], Op::linear_bwd_input);
  if (linear == nullptr || cells.only_reader(slope.inputs[0]) != &slope || input_of(*linear, 2) != ValueId::none)
    return;
  Node made{{},           Op::linear_bwd_gelu, linear->name, {linear->inputs[0], linear->inputs[1], slope.inputs[1]},
            slope.outputs, slope.attrs};
  cells.replace(&slope, {linear, &slope}, std::move(made));
}

}  // namespace

bool fuse_gelu(Graph& graph, const PassContext&) {
  CellBuilder cells(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (graph.nodes[n].op == Op::layernorm) fuse_forward(graph, cells, n);
    if (graph.nodes[n].op == Op::gelu_bwd) fuse_backward(graph, cells, n);
  }
  return cells.finish();
}

}  // namespace lamina

// AdamW moves into the op that makes the gradient of a weight, where nothing else needs that gradient whole and nothing
// has to be known before:
//
//   dW, db = linear_bwd_params(x, dy); s = square_sum(dW); W', m', v' = adamw(W, m, v, dW, hyper, -)
//   ->   W', m', v', s, db = linear_bwd_update(x, dy, hyper, W, m, v)
//
// and the same for three weights at once. An adamw with a factor waits for the norm of all gradients and stays, so
// there is something to do only where UpdateOptions::in_backward left factors out. The weight is written in its place,
// at the place of the gradient's node: where an old W, m or v is read behind it the composition stays. That is why the
// pass comes after recompute, whose copies read weights too, and before the nodes are ordered.
#include "passes/cells.h"
#include "passes/pass.h"

namespace lamina {
namespace {

// What follows the gradient of one weight.
struct Tail {
  const Node* squares = nullptr;
  const Node* adamw = nullptr;
};

Tail tail_of(const Graph& graph, CellBuilder& cells, ValueId gradient) {
  Tail out;
  const std::vector<Node*> readers = cells.readers(gradient);
  if (readers.size() != 2 || cells.is_output(gradient) || graph[gradient].storage_of != ValueId::none) return out;
  for (const Node* reader : readers) {
    if (reader->op == Op::square_sum) out.squares = reader;
    if (reader->op == Op::adamw && reader->inputs[3] == gradient && input_of(*reader, 5) == ValueId::none)
      out.adamw = reader;
  }
  return out;
}

// Whether W, m and v can be written at the node: all that reads them besides stands before it.
bool may_write(CellBuilder& cells, const Node& node, const Node& adamw) {
  for (size_t i = 0; i < 3; ++i)
    for (const Node* reader : cells.readers(adamw.inputs[i]))
      if (reader != &adamw && reader >= &node) return false;
  return true;
}

void fuse(Graph& graph, CellBuilder& cells, const Node& node, size_t targets, Op op) {
  Node made{{}, op, node.name, {node.inputs.begin(), node.inputs.begin() + 1 + static_cast<int>(targets)}, {}, {}};
  for (size_t acc = 1 + targets; acc < node.inputs.size(); ++acc)
    if (node.inputs[acc] != ValueId::none) return;
  std::vector<const Node*> parts{&node};
  std::vector<ValueId> squares;
  for (size_t t = 0; t < targets; ++t) {
    const Tail tail = tail_of(graph, cells, node.outputs[2 * t]);
    if (tail.squares == nullptr || tail.adamw == nullptr || !may_write(cells, node, *tail.adamw)) return;
    const Node& adamw = *tail.adamw;
    if (t == 0) {
      made.inputs.push_back(adamw.inputs[4]);
      made.attrs = adamw.attrs;
    }
    if (adamw.inputs[4] != made.inputs[1 + targets] || adamw.attrs != made.attrs) return;
    made.inputs.insert(made.inputs.end(), adamw.inputs.begin(), adamw.inputs.begin() + 3);
    made.outputs.insert(made.outputs.end(), adamw.outputs.begin(), adamw.outputs.end());
    squares.push_back(tail.squares->outputs[0]);
    made.outputs.insert(made.outputs.end(), {squares.back(), node.outputs[2 * t + 1]});
    parts.insert(parts.end(), {tail.squares, tail.adamw});
  }
  const Shape& weight = graph[node.outputs[0]].type.shape;
  const Shape sums{weight[0], (weight[1] + kSquareColumns - 1) / kSquareColumns};
  if (!cells.replace(&node, parts, std::move(made))) return;
  for (ValueId id : squares) graph[id].type.shape = sums;
}

}  // namespace

bool fuse_update(Graph& graph, const PassContext&) {
  CellBuilder cells(graph);
  for (const Node& node : graph.nodes) {
    if (node.op == Op::linear_bwd_params) fuse(graph, cells, node, 1, Op::linear_bwd_update);
    if (node.op == Op::qkv_bwd_params) fuse(graph, cells, node, 3, Op::qkv_bwd_update);
  }
  return cells.finish();
}

}  // namespace lamina

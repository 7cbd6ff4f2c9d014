// AdamW moves into the op that makes the gradient of a weight, where nothing else needs that gradient whole and nothing
// has to be known before:
//
//   dW, db = linear_bwd_params(x, dy); s = square_sum(dW); W', m', v' = adamw(W, m, v, dW, hyper, -)
//   ->   W', m', v', s, db = linear_bwd_update(x, dy, hyper, W, m, v)
//
// and the same for three weights at once. An adamw with a factor waits for the norm of all gradients and stays, so
// there is something to do only where UpdateOptions::in_backward left factors out. The weight is written in its place,
// where the gradient is made: a gradient goes behind all that reads the old W (the product before GELU stands behind
// it), and where it cannot the composition stays. That is why the pass comes after recompute, whose copies read weights
// too, and before the nodes are ordered.
#include <algorithm>

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

size_t targets_of(const Node& node) {
  return node.op == Op::linear_bwd_params ? 1 : node.op == Op::qkv_bwd_params ? 3 : 0;
}

// The last node that reads W, m or v besides their update, the node itself where that stands before it.
const Node* last_reader(CellBuilder& cells, const Node& node, const Node& adamw) {
  const Node* last = &node;
  for (size_t i = 0; i < 3; ++i)
    for (const Node* reader : cells.readers(adamw.inputs[i]))
      if (reader != &adamw) last = std::max(last, reader);
  return last;
}

// Behind which node the gradients could be made and the weights written; the node itself: where they are, or nowhere.
const Node* place_of(const Graph& graph, CellBuilder& cells, const Node& node, size_t targets) {
  const Node* last = &node;
  for (size_t t = 0; t < targets; ++t) {
    const Tail tail = tail_of(graph, cells, node.outputs[2 * t]);
    if (tail.squares == nullptr || tail.adamw == nullptr) return &node;
    last = std::max(last, last_reader(cells, node, *tail.adamw));
  }
  for (ValueId id : node.outputs)
    for (const Node* reader : cells.readers(id))
      if (reader <= last) return &node;
  return last;
}

// Moves gradients behind the last readers of their weights. True where any moved.
bool delay(Graph& graph) {
  CellBuilder cells(graph);
  std::vector<std::vector<size_t>> behind(graph.nodes.size());
  std::vector<bool> moved(graph.nodes.size(), false);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    const size_t targets = targets_of(node);
    const Node* place = targets == 0 ? &node : place_of(graph, cells, node, targets);
    if (place == &node) continue;
    behind[static_cast<size_t>(place - graph.nodes.data())].push_back(n);
    moved[n] = true;
  }
  if (std::find(moved.begin(), moved.end(), true) == moved.end()) return false;
  std::vector<Node> old = std::move(graph.nodes);
  graph.nodes.clear();
  for (size_t n = 0; n < old.size(); ++n) {
    if (moved[n]) continue;
    graph.nodes.push_back(old[n]);
    for (size_t gradient : behind[n]) graph.nodes.push_back(old[gradient]);
  }
  return true;
}

void fuse(Graph& graph, CellBuilder& cells, const Node& node, size_t targets) {
  const Op op = targets == 1 ? Op::linear_bwd_update : Op::qkv_bwd_update;
  Node made{{}, op, node.name, {node.inputs.begin(), node.inputs.begin() + 1 + static_cast<int>(targets)}, {}, {}};
  for (size_t acc = 1 + targets; acc < node.inputs.size(); ++acc)
    if (node.inputs[acc] != ValueId::none) return;
  std::vector<const Node*> parts{&node};
  std::vector<ValueId> squares;
  for (size_t t = 0; t < targets; ++t) {
    const Tail tail = tail_of(graph, cells, node.outputs[2 * t]);
    if (tail.squares == nullptr || tail.adamw == nullptr || last_reader(cells, node, *tail.adamw) != &node) return;
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
  const bool moved = delay(graph);
  CellBuilder cells(graph);
  for (const Node& node : graph.nodes)
    if (const size_t targets = targets_of(node); targets > 0) fuse(graph, cells, node, targets);
  return cells.finish() || moved;
}

}  // namespace lamina

// The head becomes one node that works on some rows at a time, so that the logits of all rows never exist:
//
//   logits = linear(x, W); loss = cross_entropy(logits)                          ->   head_loss
//   the same with dlogits = cross_entropy_bwd(…), dx = linear_bwd_input(dlogits)
//   and dW = linear_bwd_weight(x, dlogits)                                       ->   head
//
// What multiplies the losses depends on inputs only, so its node moves before the head.
#include <algorithm>

#include "passes/cells.h"
#include "passes/pass.h"

namespace lamina {
namespace {

struct Backward {
  const Node *loss = nullptr, *input = nullptr, *weight = nullptr;
};

// The three nodes that lead back to x and W, in whatever order they stand.
Backward backward_of(CellBuilder& cells, const Node& loss, ValueId x, ValueId weight) {
  Backward found;
  const ValueId dlogits = loss.outputs[0];
  const std::vector<Node*> readers = cells.readers(dlogits);
  if (cells.is_output(dlogits) || readers.size() != 2) return found;
  for (const Node* reader : readers) {
    if (reader->op == Op::linear_bwd_input && reader->inputs[1] == weight) found.input = reader;
    if (reader->op == Op::linear_bwd_weight && reader->inputs[0] == x) found.weight = reader;
  }
  if (found.input != nullptr && found.weight != nullptr) found.loss = &loss;
  return found;
}

void turn_into_workspace(Graph& graph, ValueId logits) {
  Value& value = graph[logits];
  value.type.shape = {std::min(value.type.shape.rows(), kHeadRows), value.type.shape.last()};
  value.tensor_class = TensorClass::workspace;
}

void fuse(Graph& graph, CellBuilder& cells, size_t n) {
  const Node linear = graph.nodes[n];
  const ValueId x = linear.inputs[0], weight = linear.inputs[1], logits = linear.outputs[0];
  if (cells.is_output(logits) || input_of(linear, 2) != ValueId::none || input_of(linear, 3) != ValueId::none) return;
  const std::vector<Node*> readers = cells.readers(logits);
  const Node *loss = nullptr, *gradient = nullptr;
  for (const Node* reader : readers) {
    if (reader->op == Op::cross_entropy) loss = reader;
    if (reader->op == Op::cross_entropy_bwd) gradient = reader;
  }
  if (loss == nullptr || readers.size() != (gradient == nullptr ? 1u : 2u)) return;
  const ValueId lse = loss->outputs[1];
  if (cells.is_output(lse)) return;
  Node* place = &graph.nodes[n];
  if (gradient == nullptr) {
    if (!cells.readers(lse).empty()) return;
    Node made{{}, Op::head_loss, linear.name, {x, weight, loss->inputs[1]}, {loss->outputs[0], logits}, NoAttrs{}};
    if (cells.replace(place, {place, loss}, std::move(made))) turn_into_workspace(graph, logits);
    return;
  }
  const Backward back = backward_of(cells, *gradient, x, weight);
  if (back.loss == nullptr || cells.only_reader(lse) != gradient) return;
  const ValueId dloss = gradient->inputs[3];
  if (const Node* expand = cells.producer(dloss, Op::expand); expand != nullptr && !cells.hoist(expand, place)) return;
  Node made{{},
            Op::head,
            linear.name,
            {x, weight, loss->inputs[1], dloss, input_of(*back.input, 2), input_of(*back.weight, 2)},
            {loss->outputs[0], back.input->outputs[0], back.weight->outputs[0], logits},
            NoAttrs{}};
  if (cells.replace(place, {place, loss, gradient, back.input, back.weight}, std::move(made)))
    turn_into_workspace(graph, logits);
}

}  // namespace

bool fuse_head(Graph& graph, const PassContext&) {
  CellBuilder cells(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    if (graph.nodes[n].op == Op::linear) fuse(graph, cells, n);
  return cells.finish();
}

}  // namespace lamina

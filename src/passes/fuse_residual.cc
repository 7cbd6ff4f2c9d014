// Dropout before a residual addition moves into the product before it, and the embeddings become one node:
//
//   d = dropout(linear(x)); y = add(r, d)                          ->     y = linear_dropout(x, …, r)
//   e = add(embedding(tokens), embedding(positions)); dropout(e)   ->     embedding_sum
#include "passes/cells.h"
#include "passes/pass.h"

namespace lamina {
namespace {

bool acts(const Node* node) { return node != nullptr && std::get<DropoutAttrs>(node->attrs).training; }

bool fuse_product(CellBuilder& cells, const Node& add, size_t side) {
  const ValueId dropped = add.inputs[side], residual = add.inputs[1 - side];
  const Node* dropout = cells.producer(dropped, Op::dropout);
  if (!acts(dropout) || cells.only_reader(dropped) != &add) return false;
  const Node* linear = cells.producer(dropout->inputs[0], Op::linear);
  if (linear == nullptr || cells.only_reader(dropout->inputs[0]) != dropout) return false;
  if (input_of(*linear, 2) == ValueId::none || input_of(*linear, 3) != ValueId::none) return false;
  Node made{{},
            Op::linear_dropout,
            linear->name,
            {linear->inputs[0], linear->inputs[1], linear->inputs[2], residual, dropout->inputs[1], dropout->inputs[2]},
            add.outputs,
            dropout->attrs};
  return cells.replace(&add, {linear, dropout, &add}, std::move(made));
}

void fuse_embeddings(CellBuilder& cells, const Node& add) {
  const Node* token = cells.producer(add.inputs[0], Op::embedding);
  const Node* position = cells.producer(add.inputs[1], Op::embedding);
  if (token == nullptr || position == nullptr || token == position) return;
  if (cells.only_reader(add.inputs[0]) != &add || cells.only_reader(add.inputs[1]) != &add) return;
  Node made{{},          Op::embedding_sum,
            add.name,    {token->inputs[0], token->inputs[1], position->inputs[0], position->inputs[1]},
            add.outputs, DropoutAttrs{}};
  const Node* dropout = cells.only_reader(add.outputs[0], Op::dropout);
  if (!acts(dropout)) {
    cells.replace(&add, {token, position, &add}, std::move(made));
    return;
  }
  made.inputs.insert(made.inputs.end(), {dropout->inputs[1], dropout->inputs[2]});
  made.outputs = dropout->outputs;
  made.attrs = dropout->attrs;
  cells.replace(dropout, {token, position, &add, dropout}, std::move(made));
}

}  // namespace

bool fuse_residual(Graph& graph, const PassContext&) {
  CellBuilder cells(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (graph.nodes[n].op != Op::add) continue;
    if (fuse_product(cells, graph.nodes[n], 0) || fuse_product(cells, graph.nodes[n], 1)) continue;
    fuse_embeddings(cells, graph.nodes[n]);
  }
  return cells.finish();
}

}  // namespace lamina

// The gradients of the three projections of an attention cell become one node for their input and one for their
// parameters:
//
//   dh = linear_bwd_input(dq) + … (dk) + … (dv)   ->   dh = qkv_bwd_input(dq, dk, dv)
//   dW, dbias = linear_bwd_params(h, dq), …            dW, dbias, … = qkv_bwd_params(h, dq, dk, dv)
#include <algorithm>

#include "passes/cells.h"
#include "passes/pass.h"

namespace lamina {
namespace {

bool same_weights(const Graph& graph, ValueId a, ValueId b, ValueId c) {
  return graph[a].type == graph[b].type && graph[a].type == graph[c].type;
}

// dx of three products, each of which is the accumulator of the next; the last one is node n. They stay in their order,
// which is that of the sum.
void fuse_input(Graph& graph, CellBuilder& cells, size_t n) {
  std::vector<const Node*> chain{&graph.nodes[n]};
  while (chain.size() < 3) {
    const ValueId acc = input_of(*chain.back(), 2);
    const Node* next = cells.producer(acc, Op::linear_bwd_input);
    if (next == nullptr || cells.only_reader(acc) != chain.back()) return;
    chain.push_back(next);
  }
  if (!same_weights(graph, chain[0]->inputs[1], chain[1]->inputs[1], chain[2]->inputs[1])) return;
  Node made{{}, Op::qkv_bwd_input, common_name(chain[0]->name, chain[1]->name) + ".qkv.bwd.input", {}, {}, NoAttrs{}};
  for (size_t i : {0u, 1u})
    for (size_t c = chain.size(); c-- > 0;) made.inputs.push_back(chain[c]->inputs[i]);
  made.inputs.push_back(input_of(*chain[2], 2));
  made.outputs = chain[0]->outputs;
  cells.replace(chain[0], chain, std::move(made));
}

// The other products of the same x whose dy come from the same attention.
void fuse_params(Graph& graph, CellBuilder& cells, const Node& attention) {
  std::vector<const Node*> parts;
  for (ValueId dy : attention.outputs)
    for (const Node* reader : cells.readers(dy))
      if (reader->op == Op::linear_bwd_params && reader->inputs[1] == dy) parts.push_back(reader);
  if (parts.size() != 3 || parts[0]->inputs[0] != parts[1]->inputs[0] || parts[0]->inputs[0] != parts[2]->inputs[0])
    return;
  if (!same_weights(graph, parts[0]->outputs[0], parts[1]->outputs[0], parts[2]->outputs[0])) return;
  Node made{
      {}, Op::qkv_bwd_params, common_name(parts[0]->name, parts[1]->name) + ".qkv.bwd.params", {parts[0]->inputs[0]},
      {}, NoAttrs{}};
  const Node* last = parts[0];
  for (const Node* part : parts) {
    made.inputs.push_back(part->inputs[1]);
    made.outputs.insert(made.outputs.end(), part->outputs.begin(), part->outputs.end());
    last = std::max(last, part);
  }
  for (const Node* part : parts) made.inputs.insert(made.inputs.end(), {input_of(*part, 2), input_of(*part, 3)});
  cells.replace(last, parts, std::move(made));
}

}  // namespace

bool fuse_qkv_gradient(Graph& graph, const PassContext&) {
  CellBuilder cells(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (graph.nodes[n].op == Op::linear_bwd_input) fuse_input(graph, cells, n);
    if (graph.nodes[n].op == Op::attention_bwd) fuse_params(graph, cells, graph.nodes[n]);
  }
  return cells.finish();
}

}  // namespace lamina

// The three projections of an attention cell become one node:
//
//   q = linear(h); k = linear(h); v = linear(h)   ->   q, k, v = linear_qkv(h)
#include <algorithm>

#include "passes/cells.h"
#include "passes/pass.h"

namespace lamina {
namespace {

bool is_projection(const Node& node, ValueId h) {
  return node.op == Op::linear && node.inputs[0] == h && input_of(node, 2) != ValueId::none &&
         input_of(node, 3) == ValueId::none;
}

// The attention that reads q, k and v says which products belong together.
void fuse(Graph& graph, CellBuilder& cells, const Node& attention) {
  const Node* parts[3];
  for (size_t i = 0; i < 3; ++i) {
    parts[i] = cells.producer(attention.inputs[i], Op::linear);
    if (parts[i] == nullptr || !is_projection(*parts[i], parts[0]->inputs[0])) return;
    if (graph[parts[i]->inputs[1]].type != graph[parts[0]->inputs[1]].type) return;
  }
  if (parts[0] == parts[1] || parts[0] == parts[2] || parts[1] == parts[2]) return;
  Node made{{},
            Op::linear_qkv,
            common_name(parts[0]->name, parts[1]->name) + ".qkv",
            {parts[0]->inputs[0], ValueId::none, ValueId::none},
            {},
            LayerNormAttrs{}};
  for (const Node* part : parts) {
    made.inputs.insert(made.inputs.end(), {part->inputs[1], part->inputs[2]});
    made.outputs.push_back(part->outputs[0]);
  }
  for (const char* statistic : {".mean", ".rstd"}) made.outputs.push_back(cells.workspace(made.name + statistic, {0}));
  cells.replace(std::max({parts[0], parts[1], parts[2]}), {parts[0], parts[1], parts[2]}, std::move(made));
}

}  // namespace

bool fuse_qkv(Graph& graph, const PassContext&) {
  CellBuilder cells(graph);
  for (const Node& node : graph.nodes)
    if (node.op == Op::attention || node.op == Op::attention_cached) fuse(graph, cells, node);
  return cells.finish();
}

}  // namespace lamina

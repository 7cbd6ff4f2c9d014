// Removes nodes whose results no output of the graph needs. Updates of persistent storage that must happen are outputs.
#include "passes/pass.h"

namespace lamina {

bool remove_dead(Graph& graph, const PassContext&) {
  std::vector<bool> live(graph.values.size(), false);
  for (ValueId id : graph.outputs) live[static_cast<size_t>(id)] = true;
  std::vector<bool> keep(graph.nodes.size(), false);
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    for (ValueId id : node.outputs) keep[n] = keep[n] || live[static_cast<size_t>(id)];
    if (!keep[n]) continue;
    for (ValueId id : node.inputs)
      if (id != ValueId::none) live[static_cast<size_t>(id)] = true;
  }
  size_t to = 0;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!keep[n]) continue;
    if (to != n) graph.nodes[to] = std::move(graph.nodes[n]);
    ++to;
  }
  const bool changed = to != graph.nodes.size();
  graph.nodes.resize(to);
  return changed;
}

}  // namespace lamina

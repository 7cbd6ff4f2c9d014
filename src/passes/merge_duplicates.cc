// Merges nodes that compute the same: equal op, attributes and inputs. Ops that write persistent storage stay.
#include <string>
#include <unordered_map>

#include "base/error.h"
#include "graph/schema.h"
#include "graph/text.h"
#include "passes/pass.h"

namespace lamina {
namespace {

bool writes_in_place(const Graph& graph, const Node& node) {
  for (ValueId id : node.outputs)
    if (graph[id].storage_of != ValueId::none) return true;
  return false;
}

}  // namespace

bool merge_duplicates(Graph& graph, const PassContext&) {
  // A persistent value that is written has different contents before and after: its readers are left alone.
  std::vector<bool> written(graph.values.size(), false);
  for (const Node& node : graph.nodes)
    for (ValueId id : node.outputs)
      if (graph[id].storage_of != ValueId::none) written[static_cast<size_t>(graph.root(id))] = true;

  std::unordered_map<std::string, size_t> seen;
  std::vector<ValueId> to(graph.values.size(), ValueId::none);
  std::vector<Node> kept;
  kept.reserve(graph.nodes.size());
  for (Node& node : graph.nodes) {
    bool fixed = writes_in_place(graph, node);
    std::string key = fmt::format("{}{}{}", op_name(node.op), attrs_text(node.attrs), dtype_name(node.precision));
    for (ValueId& id : node.inputs) {
      if (id != ValueId::none && to[static_cast<size_t>(id)] != ValueId::none) id = to[static_cast<size_t>(id)];
      fixed = fixed || (id != ValueId::none && written[static_cast<size_t>(graph.root(id))]);
      key += fmt::format(",{}", static_cast<int>(id));
    }
    const auto [found, fresh] = fixed ? std::pair{seen.end(), true} : seen.emplace(std::move(key), kept.size());
    if (fresh) {
      kept.push_back(std::move(node));
      continue;
    }
    for (size_t o = 0; o < node.outputs.size(); ++o)
      to[static_cast<size_t>(node.outputs[o])] = kept[found->second].outputs[o];
  }
  const bool changed = kept.size() != graph.nodes.size();
  graph.nodes = std::move(kept);
  if (changed) replace_uses(graph, to);
  return changed;
}

}  // namespace lamina

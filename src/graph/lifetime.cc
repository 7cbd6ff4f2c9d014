#include "graph/lifetime.h"

#include <algorithm>

namespace lamina {

int64_t storage_bytes(const Type& type) {
  const int64_t bytes = storage_elements(type.shape, type.layout) * dtype_bytes(type.dtype);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::vector<Lifetime> transient_lifetimes(const Graph& graph) {
  std::vector<int32_t> slot(graph.values.size(), -1);
  std::vector<bool> placed(graph.values.size(), false);
  for (ValueId id : graph.outputs) placed[static_cast<size_t>(graph.root(id))] = true;
  std::vector<Lifetime> out;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const auto touch = [&](ValueId id) {
      if (id == ValueId::none) return;
      const ValueId root = graph.root(id);
      if (graph[root].kind != ValueKind::computed || placed[static_cast<size_t>(root)]) return;
      int32_t& index = slot[static_cast<size_t>(root)];
      if (index < 0) {
        index = static_cast<int32_t>(out.size());
        out.push_back({root, storage_bytes(graph[root].type), static_cast<int32_t>(n), static_cast<int32_t>(n)});
      }
      out[static_cast<size_t>(index)].last = static_cast<int32_t>(n);
    };
    for (ValueId id : graph.nodes[n].inputs) touch(id);
    for (ValueId id : graph.nodes[n].outputs) touch(id);
  }
  return out;
}

LivePeak live_peak(const std::vector<Lifetime>& lifetimes, size_t nodes) {
  std::vector<int64_t> change(nodes + 1, 0);
  for (const Lifetime& life : lifetimes) {
    change[static_cast<size_t>(life.first)] += life.bytes;
    change[static_cast<size_t>(life.last) + 1] -= life.bytes;
  }
  LivePeak peak;
  int64_t live = 0;
  for (size_t n = 0; n < nodes; ++n) {
    live += change[n];
    if (live > peak.bytes) peak = {live, static_cast<int32_t>(n)};
  }
  return peak;
}

}  // namespace lamina

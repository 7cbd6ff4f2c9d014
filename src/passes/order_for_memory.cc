// Reorders nodes so that less is alive at once: list scheduling that looks a few nodes ahead and takes the ready one
// that adds the fewest bytes. The result is kept only if its peak is lower, so the pass never makes a program larger.
//
// Data structure: the dependence graph (data, and for storage written in place: readers of the old contents before the
// writer). Limit: a window of kWindow nodes; it does not search.
#include <algorithm>

#include "graph/lifetime.h"
#include "passes/pass.h"

namespace lamina {
namespace {

constexpr size_t kWindow = 12;

struct Dependences {
  std::vector<std::vector<int32_t>> successors;
  std::vector<int32_t> waiting;  // predecessors that have not run

  explicit Dependences(const Graph& graph) : successors(graph.nodes.size()), waiting(graph.nodes.size(), 0) {
    const Uses uses(graph);
    std::vector<std::vector<int32_t>> readers(graph.values.size());  // of a root, since its last write
    std::vector<int32_t> writer(graph.values.size(), -1);
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      const auto self = static_cast<int32_t>(n);
      for (ValueId id : graph.nodes[n].inputs) {
        if (id == ValueId::none) continue;
        edge(uses.producer_of(id), self);
        const auto root = static_cast<size_t>(graph.root(id));
        edge(writer[root], self);
        readers[root].push_back(self);
      }
      for (ValueId id : graph.nodes[n].outputs) {
        const auto root = static_cast<size_t>(graph.root(id));
        if (graph[id].storage_of == ValueId::none) continue;
        for (int32_t reader : readers[root]) edge(reader, self);
        readers[root].clear();
        writer[root] = self;
      }
    }
  }

 private:
  void edge(int32_t from, int32_t to) {
    if (from < 0 || from == to) return;
    successors[static_cast<size_t>(from)].push_back(to);
    ++waiting[static_cast<size_t>(to)];
  }
};

class Scheduler {
 public:
  explicit Scheduler(const Graph& graph)
      : graph_(graph), dependences_(graph), reads_(graph.values.size(), 0), placed_(graph.values.size(), false) {
    for (size_t i = 0; i < graph.values.size(); ++i) root_.push_back(graph.root(static_cast<ValueId>(i)));
    for (const Node& node : graph.nodes)
      for (ValueId id : node.inputs)
        if (id != ValueId::none) ++reads_[root(id)];
    for (ValueId id : graph.outputs) placed_[root(id)] = true;
  }

  std::vector<int32_t> run() {
    std::vector<int32_t> order, pending(graph_.nodes.size());
    for (size_t n = 0; n < pending.size(); ++n) pending[n] = static_cast<int32_t>(n);
    order.reserve(pending.size());
    std::vector<int32_t> window;  // the oldest nodes that have not run
    size_t next = 0;
    while (order.size() < pending.size()) {
      while (window.size() < kWindow && next < pending.size()) window.push_back(pending[next++]);
      size_t best = window.size();
      int64_t best_cost = 0;
      for (size_t w = 0; w < window.size(); ++w) {
        if (dependences_.waiting[static_cast<size_t>(window[w])] > 0) continue;
        const int64_t candidate = cost(graph_.nodes[static_cast<size_t>(window[w])]);
        if (best < window.size() && candidate >= best_cost) continue;
        best = w;
        best_cost = candidate;
      }
      order.push_back(window[best]);  // the oldest node is always ready
      finish(window[best]);
      window.erase(window.begin() + static_cast<std::ptrdiff_t>(best));
    }
    return order;
  }

 private:
  size_t root(ValueId id) const { return static_cast<size_t>(root_[static_cast<size_t>(id)]); }
  int64_t bytes(size_t root) const {
    const Value& value = graph_.values[root];
    return value.kind == ValueKind::computed && !placed_[root] ? storage_bytes(value.type) : 0;
  }

  int64_t cost(const Node& node) const {
    int64_t total = 0;
    for (ValueId id : node.outputs)
      if (root(id) == static_cast<size_t>(id) && reads_[root(id)] > 0) total += bytes(root(id));
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == ValueId::none) continue;
      const size_t place = root(node.inputs[i]);
      int32_t here = 0, first = -1;
      for (size_t j = 0; j < node.inputs.size(); ++j) {
        if (node.inputs[j] == ValueId::none || root(node.inputs[j]) != place) continue;
        ++here;
        if (first < 0) first = static_cast<int32_t>(j);
      }
      if (static_cast<size_t>(first) == i && reads_[place] == here) total -= bytes(place);
    }
    return total;
  }

  void finish(int32_t n) {
    for (ValueId id : graph_.nodes[static_cast<size_t>(n)].inputs)
      if (id != ValueId::none) --reads_[root(id)];
    for (int32_t successor : dependences_.successors[static_cast<size_t>(n)])
      --dependences_.waiting[static_cast<size_t>(successor)];
  }

  const Graph& graph_;
  Dependences dependences_;
  std::vector<int32_t> reads_;  // of a root, still to come
  std::vector<ValueId> root_;   // of a value
  std::vector<bool> placed_;    // of a root: an output, which has a place of its own
};

}  // namespace

bool order_for_memory(Graph& graph, const PassContext&) {
  const LivePeak before = live_peak(transient_lifetimes(graph), graph.nodes.size());
  Graph candidate = graph;
  const std::vector<int32_t> order = Scheduler(graph).run();
  for (size_t n = 0; n < order.size(); ++n) candidate.nodes[n] = graph.nodes[static_cast<size_t>(order[n])];
  if (live_peak(transient_lifetimes(candidate), candidate.nodes.size()).bytes >= before.bytes) return false;
  graph = std::move(candidate);
  return true;
}

}  // namespace lamina

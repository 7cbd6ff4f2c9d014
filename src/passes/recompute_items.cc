// The items from which a choice of what to recompute is made. Data structure: for each value the indices of its
// producer, its last reader forward and its first reader backward.
//
//   x0 ──ln──▶ h ──linear──▶ q ─┐                 a checkpoint is a value that alone is alive between two forward
//    └───────────────────────── + ──▶ x1          nodes: x0 and x1 here, not h and not q
//
// A node is an item if the backward side reads its results. If it needs a value that is not kept now (nothing backward
// reads it), that value's producer runs again with it, and so on; an item that would reach behind a checkpoint is none.
#include <algorithm>

#include "graph/lifetime.h"
#include "graph/schema.h"
#include "passes/recompute.h"

namespace lamina {
namespace {

class Items {
 public:
  Items(const Graph& graph, NodeId backward)
      : graph_(graph), producer_(graph.values.size(), -1), last_forward_(producer_), first_backward_(producer_) {
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      const Node& node = graph.nodes[n];
      const bool forward = node.id < backward;
      if (forward) forward_.push_back(static_cast<int32_t>(n));
      for (ValueId id : node.outputs) producer_[index(id)] = static_cast<int32_t>(n);
      for (ValueId id : node.inputs) {
        if (id == ValueId::none) continue;
        if (forward)
          last_forward_[index(id)] = static_cast<int32_t>(n);
        else if (first_backward_[index(id)] < 0)
          first_backward_[index(id)] = static_cast<int32_t>(n);
      }
    }
    output_.assign(graph.values.size(), false);
    for (ValueId id : graph.outputs) output_[index(graph.root(id))] = true;
    find_checkpoints();
  }

  int32_t checkpoints() const { return static_cast<int32_t>(checkpoints_.size()); }

  std::vector<RecomputeItem> list(int32_t stride) const {
    std::vector<bool> kept(graph_.values.size(), false);
    for (size_t c = 0; c < checkpoints_.size(); c += static_cast<size_t>(stride)) kept[index(checkpoints_[c])] = true;
    std::vector<RecomputeItem> out;
    for (int32_t n : forward_) {
      RecomputeItem item;
      if (is_item(n, kept, item)) out.push_back(std::move(item));
    }
    return out;
  }

 private:
  static size_t index(ValueId id) { return static_cast<size_t>(id); }
  const Node& node(int32_t n) const { return graph_.nodes[static_cast<size_t>(n)]; }
  bool needed(ValueId id) const { return first_backward_[index(id)] >= 0; }

  // A computed value with storage of its own, by a kernel that only reads: what can be made twice.
  bool repeatable(const Node& node) const {
    if (!schema(node.op).kernel) return false;
    for (ValueId id : node.outputs)
      if (graph_[id].storage_of != ValueId::none || output_[index(id)]) return false;
    return true;
  }

  void find_checkpoints() {
    std::vector<int32_t> releases(graph_.nodes.size() + 1, 0);
    int32_t alive = 0;
    for (int32_t n : forward_) {
      ValueId single = ValueId::none;
      alive -= releases[static_cast<size_t>(n)];
      for (ValueId id : node(n).outputs) {
        if (last_forward_[index(id)] <= n) continue;
        ++alive;
        ++releases[static_cast<size_t>(last_forward_[index(id)])];
        single = id;
      }
      if (alive == 1 && single != ValueId::none && needed(single)) checkpoints_.push_back(single);
    }
  }

  bool is_item(int32_t n, const std::vector<bool>& kept, RecomputeItem& item) const {
    item.op = node(n).op;
    int32_t first = static_cast<int32_t>(graph_.nodes.size()), last = n;
    for (ValueId id : node(n).outputs) {
      if (!needed(id)) continue;
      if (kept[index(id)]) return false;
      item.bytes += storage_bytes(graph_[id].type);
      first = std::min(first, first_backward_[index(id)]);
      last = std::max(last, last_forward_[index(id)]);
    }
    item.gap = first - last;
    return item.bytes > 0 && bundle(n, item.nodes);
  }

  // Inputs first.
  bool bundle(int32_t n, std::vector<NodeId>& nodes) const {
    if (!repeatable(node(n))) return false;
    for (ValueId id : node(n).inputs) {
      if (id == ValueId::none || graph_[id].kind != ValueKind::computed || needed(id)) continue;
      const int32_t p = producer_[index(id)];
      if (std::find(nodes.begin(), nodes.end(), node(p).id) != nodes.end()) continue;
      if (!bundle(p, nodes)) return false;
    }
    nodes.push_back(node(n).id);
    return true;
  }

  const Graph& graph_;
  std::vector<int32_t> producer_, last_forward_, first_backward_;  // of a value; -1: none
  std::vector<bool> output_;
  std::vector<int32_t> forward_;  // indices of forward nodes
  std::vector<ValueId> checkpoints_;
};

}  // namespace

std::vector<RecomputeItem> recompute_items(const Graph& graph, NodeId backward, int32_t stride) {
  return Items(graph, backward).list(stride);
}

int32_t count_checkpoints(const Graph& graph, NodeId backward) { return Items(graph, backward).checkpoints(); }

}  // namespace lamina

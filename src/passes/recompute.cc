// The backward side makes some results of the forward side again, right before it first reads them, in place of keeping
// them from one side to the other:
//
//   h = layernorm(x)                                 h = layernorm(x)
//   … to the loss and back …             becomes     …
//   dw = linear_bwd_weight(h, dy)                    h' = layernorm(x)
//                                                    dw = linear_bwd_weight(h', dy)
//
// The copy is the same node on the same values, so it has the same bits; dropout is keyed and needs nothing kept. If
// what a copy reads is itself not kept, that is made again before it. Which nodes, the context says; each is copied
// once.
#include <algorithm>

#include "base/error.h"
#include "passes/pass.h"

namespace lamina {

bool remove_dead(Graph& graph, const PassContext& context);

namespace {

class Recomputer {
 public:
  Recomputer(Graph& graph, const PassContext& context)
      : graph_(graph), backward_(context.backward), again_(graph.values.size(), ValueId::none) {
    wanted_.assign(static_cast<size_t>(graph.next_node), false);
    for (NodeId id : context.recompute) wanted_[static_cast<size_t>(id)] = true;
    producer_.assign(graph.values.size(), -1);
    for (size_t n = 0; n < graph.nodes.size(); ++n)
      for (ValueId id : graph.nodes[n].outputs) producer_[static_cast<size_t>(id)] = static_cast<int32_t>(n);
  }

  bool run() {
    old_ = std::move(graph_.nodes);
    graph_.nodes.clear();
    graph_.nodes.reserve(old_.size());
    for (Node& node : old_) {
      if (node.id < backward_) {
        graph_.nodes.push_back(node);  // a copy: copies are made from the original
        continue;
      }
      for (ValueId& id : node.inputs) id = again(id);
      graph_.nodes.push_back(std::move(node));
    }
    return graph_.nodes.size() > old_.size();
  }

 private:
  // The value that the backward side reads in place of this one.
  ValueId again(ValueId id) {
    if (id == ValueId::none) return id;
    const int32_t p = static_cast<size_t>(id) < producer_.size() ? producer_[static_cast<size_t>(id)] : -1;
    if (p < 0 || !wanted_[static_cast<size_t>(old_[static_cast<size_t>(p)].id)]) return id;
    if (again_[static_cast<size_t>(id)] == ValueId::none) copy(old_[static_cast<size_t>(p)]);
    return again_[static_cast<size_t>(id)];
  }

  void copy(const Node& node) {
    Node out = node;
    for (ValueId& id : out.inputs) id = again(id);
    out.id = NodeId{graph_.next_node++};
    out.name += ".again";
    for (size_t o = 0; o < out.outputs.size(); ++o) {
      Value value = graph_[node.outputs[o]];
      LAMINA_CHECK(value.storage_of == ValueId::none, "node {} does not make values of its own", node.name);
      value.name = fmt::format("{}:{}", out.name, static_cast<int>(out.id));
      if (o > 0) value.name += fmt::format(".{}", o);
      out.outputs[o] = static_cast<ValueId>(graph_.values.size());
      graph_.values.push_back(std::move(value));
      again_[static_cast<size_t>(node.outputs[o])] = out.outputs[o];
    }
    graph_.nodes.push_back(std::move(out));
  }

  Graph& graph_;
  NodeId backward_;
  std::vector<Node> old_;
  std::vector<bool> wanted_;       // of a node's id
  std::vector<int32_t> producer_;  // of a value, index into old_
  std::vector<ValueId> again_;     // of a value: its copy
};

}  // namespace

bool recompute(Graph& graph, const PassContext& context) {
  if (context.recompute.empty() || !Recomputer(graph, context).run()) return false;
  remove_dead(graph, context);  // what only the backward side read
  return true;
}

}  // namespace lamina

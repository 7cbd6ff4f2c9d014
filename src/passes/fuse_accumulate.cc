// Moves an addition into the op that makes one of its sides, where that op has a free accumulator or residual input:
//
//     g = linear_bwd_input(dy, w, -)                          s = linear_bwd_input(dy, w, acc=p)
//     s = add(p, g)                              becomes
//
// An accumulator is an optional input that the output may lie on (schema), so that no op is named here.
#include "base/error.h"
#include "graph/schema.h"
#include "passes/pass.h"

namespace lamina {
namespace {

class Fuser {
 public:
  explicit Fuser(Graph& graph)
      : graph_(graph), uses_(graph), gone_(graph.nodes.size(), false), kept_(graph.values.size(), false) {
    for (ValueId id : graph.outputs) kept_[static_cast<size_t>(id)] = true;
  }

  bool run() {
    bool changed = false;
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      if (graph_.nodes[n].op == Op::add) changed = fuse(n) || changed;
    if (!changed) return false;
    std::vector<Node> kept;
    kept.reserve(graph_.nodes.size());
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      if (!gone_[n]) kept.push_back(std::move(graph_.nodes[n]));
    graph_.nodes = std::move(kept);
    return true;
  }

 private:
  // The free accumulator input of the op that makes `value` as its output `o`; -1 where there is none.
  static int accumulator(const Node& node, size_t o) {
    const OpSchema& rule = schema(node.op);
    for (const InPlace& pair : rule.in_place) {
      const auto input = static_cast<size_t>(pair.input);
      if (pair.kind != InPlace::may || pair.output != static_cast<int8_t>(o)) continue;
      if (((rule.optional >> input) & 1u) == 0) continue;
      if (input >= node.inputs.size() || node.inputs[input] == ValueId::none) return pair.input;
    }
    return -1;
  }

  // Makes the producer of `made` add `other` by itself, if it can. The producer stays where it is, so `other` must be
  // there before it.
  bool fuse_side(size_t add, ValueId made, ValueId other) {
    const int32_t p = uses_.producer_of(made);
    if (p < 0 || gone_[static_cast<size_t>(p)] || uses_.producer_of(other) >= p || made == other) return false;
    if (uses_.readers_of(made).size() != 1 || kept_[static_cast<size_t>(made)]) return false;
    if (graph_[made].storage_of != ValueId::none) return false;
    Node& producer = graph_.nodes[static_cast<size_t>(p)];
    size_t o = 0;
    while (producer.outputs[o] != made) ++o;
    const int slot = accumulator(producer, o);
    if (slot < 0) return false;
    const auto input = static_cast<size_t>(slot);
    if (producer.inputs.size() <= input) producer.inputs.resize(input + 1, ValueId::none);
    producer.inputs[input] = other;
    producer.outputs[o] = graph_.nodes[add].outputs[0];
    uses_.producer[static_cast<size_t>(producer.outputs[o])] = p;
    gone_[add] = true;
    return true;
  }

  bool fuse(size_t add) {
    const ValueId a = graph_.nodes[add].inputs[0], b = graph_.nodes[add].inputs[1];
    return fuse_side(add, b, a) || fuse_side(add, a, b);
  }

  Graph& graph_;
  Uses uses_;
  std::vector<bool> gone_;  // nodes
  std::vector<bool> kept_;  // values that are outputs of the graph
};

}  // namespace

bool fuse_accumulate(Graph& graph, const PassContext&) { return Fuser(graph).run(); }

}  // namespace lamina

// Puts an output in the place of an input that is read here for the last time, where the kernel allows it. dlogits take
// the place of logits, a sum that of its accumulator.
#include "graph/schema.h"
#include "passes/pass.h"

namespace lamina {
namespace {

class Sharer {
 public:
  explicit Sharer(Graph& graph)
      : graph_(graph), last_read_(graph.values.size(), -1), kept_(graph.values.size(), false) {
    for (size_t n = 0; n < graph.nodes.size(); ++n)
      for (ValueId id : graph.nodes[n].inputs)
        if (id != ValueId::none) last_read_[root(id)] = static_cast<int64_t>(n);
    for (ValueId id : graph.outputs) kept_[root(id)] = true;
  }

  bool run() {
    bool changed = false;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      for (const InPlace& pair : schema(node.op).in_place)
        if (pair.kind == InPlace::may) changed = share(static_cast<int64_t>(n), node, pair) || changed;
    }
    return changed;
  }

 private:
  size_t root(ValueId id) const { return static_cast<size_t>(graph_.root(id)); }

  bool share(int64_t n, const Node& node, const InPlace& pair) {
    const auto slot = static_cast<size_t>(pair.input);
    if (slot >= node.inputs.size() || node.inputs[slot] == ValueId::none) return false;
    const ValueId input = node.inputs[slot], output = node.outputs[static_cast<size_t>(pair.output)];
    Value& value = graph_[output];
    const size_t place = root(input);
    if (value.storage_of != ValueId::none || kept_[root(output)] || kept_[place] || last_read_[place] != n)
      return false;
    if (graph_.values[place].kind != ValueKind::computed) return false;
    if (graph_[input].type.dtype != value.type.dtype || bytes(graph_[input]) != bytes(value)) return false;
    // The op may read the storage through another operand whose elements lie elsewhere than its own output's.
    int reads = 0;
    for (ValueId id : node.inputs) reads += id != ValueId::none && root(id) == place;
    for (ValueId id : node.outputs) reads += id != output && root(id) == place;
    if (reads != 1) return false;
    value.storage_of = input;
    last_read_[place] = last_read_[static_cast<size_t>(output)];
    return true;
  }

  static int64_t bytes(const Value& value) {
    return storage_elements(value.type.shape, value.type.layout) * dtype_bytes(value.type.dtype);
  }

  Graph& graph_;
  std::vector<int64_t> last_read_;  // of a root: the last node that reads it through any value
  std::vector<bool> kept_;          // of a root: an output of the graph
};

}  // namespace

bool share_storage(Graph& graph, const PassContext&) { return Sharer(graph).run(); }

}  // namespace lamina

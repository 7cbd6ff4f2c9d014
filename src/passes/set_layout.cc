// Gives weights their panel layout: every value in a weight slot of an op, and whatever is elementwise with it
// (gradients, moments), is a panel of the width of the kernels that will run. Matrices only; everything else stays
// row-major.
#include "base/error.h"
#include "graph/schema.h"
#include "passes/pass.h"

namespace lamina {
namespace {

class LayoutSetter {
 public:
  LayoutSetter(Graph& graph, Layout panel) : graph_(graph), panel_(panel) {}

  bool run() {
    bool any = false;
    // Moments are elementwise with parameters that a later node marks, so repeat until nothing moves.
    for (bool moved = true; moved;) {
      moved = false;
      for (const Node& node : graph_.nodes) moved = slots(node) || same_layout(node) || moved;
      any = any || moved;
    }
    return sizes() || any;
  }

 private:
  bool mark(ValueId id) {
    if (id == ValueId::none || graph_[id].type.shape.rank != 2 || graph_[id].type.layout == panel_) return false;
    graph_[id].type.layout = panel_;
    return true;
  }

  bool slots(const Node& node) {
    if (node.op == Op::square_sum) return false;  // takes either
    const OpSchema& rule = schema(node.op);
    bool moved = false;
    for (size_t i = 0; i < node.inputs.size() && i < 32; ++i)
      if ((rule.panel_in >> i) & 1u) moved = mark(node.inputs[i]) || moved;
    for (size_t o = 0; o < node.outputs.size(); ++o)
      if ((rule.panel_out >> o) & 1u) moved = mark(node.outputs[o]) || moved;
    return moved;
  }

  bool same_layout(const Node& node) {
    if (!schema(node.op).same_layout) return false;
    const Shape& shape = graph_[node.outputs[0]].type.shape;
    bool panel = false, moved = false;
    const auto each = [&](auto&& f) {
      for (const std::vector<ValueId>* list : {&node.inputs, &node.outputs})
        for (ValueId id : *list)
          if (id != ValueId::none && graph_[id].type.shape == shape) f(id);
    };
    each([&](ValueId id) { panel = panel || graph_[id].type.layout == panel_; });
    if (panel) each([&](ValueId id) { moved = mark(id) || moved; });
    return moved;
  }

  // Outputs whose size follows from the storage of an input.
  bool sizes() {
    bool changed = false;
    for (const Node& node : graph_.nodes) {
      if (node.op != Op::square_sum) continue;
      std::vector<Type> out(1);
      const Type* in = &graph_[node.inputs[0]].type;
      const std::string wrong = schema(node.op).infer({{&in, 1}, node.attrs, out});
      LAMINA_CHECK(wrong.empty(), "{}", wrong);
      Type& type = graph_[node.outputs[0]].type;
      changed = changed || type != out[0];
      type = out[0];
    }
    return changed;
  }

  Graph& graph_;
  Layout panel_;
};

}  // namespace

bool set_layout(Graph& graph, const PassContext& context) {
  return LayoutSetter(graph, Layout::panel(context.panel_width)).run();
}

}  // namespace lamina

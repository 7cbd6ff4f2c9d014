// The verifier: independent of how the graph was made, one pass over the nodes.
#include <unordered_set>

#include "base/error.h"
#include "base/half.h"
#include "graph/graph.h"
#include "graph/schema.h"

namespace lamina {
namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& graph)
      : graph_(graph),
        defined_(graph.values.size(), false),
        seen_version_(graph.values.size(), 0),
        version_(graph.values.size(), 0) {}

  void run() {
    declared_values();
    std::unordered_set<int32_t> ids;
    for (const Node& node : graph_.nodes) {
      if (!ids.insert(static_cast<int32_t>(node.id)).second) fail(node, "node id used twice");
      inputs(node);
      types(node);
      layouts(node);
      aliasing(node);
      define(node);
    }
    for (ValueId id : graph_.outputs) {
      if (!valid(id) || !defined_[index(id)]) fail_graph("an output of the graph is not defined");
      if (stale(id)) fail_graph(fmt::format("output {} was overwritten", graph_[id].name));
    }
  }

 private:
  static size_t index(ValueId id) { return static_cast<size_t>(id); }
  bool valid(ValueId id) const { return static_cast<int32_t>(id) >= 0 && index(id) < graph_.values.size(); }
  bool stale(ValueId id) const { return seen_version_[index(id)] != version_[index(graph_.root(id))]; }

  [[noreturn]] void fail(const Node& node, const std::string& what) const {
    throw_error(ErrorCode::invalid, "bad graph {}: node {} {} ({}): {}", graph_.name, static_cast<int>(node.id),
                node.name, op_name(node.op), what);
  }
  [[noreturn]] void fail_graph(const std::string& what) const {
    throw_error(ErrorCode::invalid, "bad graph {}: {}", graph_.name, what);
  }

  void declared_values() {
    std::unordered_set<std::string_view> names;
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      const Value& value = graph_.values[i];
      if (!names.insert(value.name).second) fail_graph(fmt::format("two values named {}", value.name));
      check_chain(value);
      if (value.kind == ValueKind::computed) continue;
      if (value.storage_of != ValueId::none) fail_graph(fmt::format("declared value {} lies on another", value.name));
      defined_[i] = true;
    }
  }

  // The chain of storage ends: checked first, because root() follows it blindly.
  void check_chain(const Value& value) const {
    size_t steps = 0;
    for (ValueId id = value.storage_of; id != ValueId::none; id = graph_[id].storage_of)
      if (!valid(id) || ++steps > graph_.values.size())
        fail_graph(fmt::format("value {} lies on no value in the end", value.name));
  }

  void inputs(const Node& node) const {
    const OpSchema& rule = schema(node.op);
    const auto count = static_cast<int32_t>(node.inputs.size());
    if (count < rule.min_inputs || (rule.max_inputs >= 0 && count > rule.max_inputs))
      fail(node, fmt::format("{} inputs, expected {} to {}", count, rule.min_inputs, rule.max_inputs));
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (id == ValueId::none) {
        if (i >= 32 || ((rule.optional >> i) & 1u) == 0) fail(node, fmt::format("input {} is absent", i));
        continue;
      }
      if (!valid(id)) fail(node, fmt::format("input {} is not a value", i));
      if (!defined_[index(id)]) fail(node, fmt::format("input {} ({}) used before its definition", i, graph_[id].name));
      if (stale(id)) fail(node, fmt::format("input {} ({}) was overwritten in place", i, graph_[id].name));
    }
  }

  void types(const Node& node) const {
    const OpSchema& rule = schema(node.op);
    if (node.attrs.index() != default_attrs(node.op).index()) fail(node, "attributes of another op");
    std::vector<const Type*> in;
    in.reserve(node.inputs.size());
    for (ValueId id : node.inputs) in.push_back(id == ValueId::none ? nullptr : &graph_[id].type);
    std::vector<Type> out(static_cast<size_t>(rule.n_outputs));
    const std::string wrong = rule.infer({in, node.attrs, out});
    if (!wrong.empty()) fail(node, wrong);
    if (node.outputs.size() != out.size())
      fail(node, fmt::format("{} outputs, expected {}", node.outputs.size(), out.size()));
    precision(node);
    for (size_t i = 0; i < out.size(); ++i) {
      if (!valid(node.outputs[i])) fail(node, fmt::format("output {} is not a value", i));
      const Type& type = graph_[node.outputs[i]].type;
      if (is_16_bit(type.dtype) && ((rule.narrow >> i) & 1u)) out[i].dtype = type.dtype;
      if (type.shape != out[i].shape || type.dtype != out[i].dtype)
        fail(node, fmt::format("output {}, expected {} {}, got {} {}", i, dtype_name(out[i].dtype), out[i].shape.text(),
                               dtype_name(type.dtype), type.shape.text()));
    }
  }

  // 16-bit values are operands of nodes of the same precision, and nothing else.
  void precision(const Node& node) const {
    if (is_narrow(node) && !is_16_bit(node.precision))
      fail(node, fmt::format("precision {}, expected f32, bf16 or f16", dtype_name(node.precision)));
    const uint32_t operands = operands_of(node);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == ValueId::none) continue;
      const Dtype dtype = graph_[node.inputs[i]].type.dtype;
      const Dtype expected = i < 32 && ((operands >> i) & 1u) ? node.precision : Dtype::f32;
      if (is_16_bit(dtype) && dtype != expected)
        fail(node, fmt::format("input {}, expected {}, got {}", i, dtype_name(expected), dtype_name(dtype)));
    }
    if (node.op == Op::cast && graph_[node.outputs[0]].type.dtype != node.precision)
      fail(node, fmt::format("output 0, expected {}, got {}", dtype_name(node.precision),
                             dtype_name(graph_[node.outputs[0]].type.dtype)));
  }

  // Weights are all row-major before the layout pass and all panels after it; a mixture is wrong.
  void layouts(const Node& node) const {
    const OpSchema& rule = schema(node.op);
    const Layout* weight = nullptr;
    const auto check = [&](ValueId id, bool panel, const char* side, size_t i) {
      const Layout& layout = graph_[id].type.layout;
      if (!panel && !rule.same_layout && layout.kind == LayoutKind::panel)
        fail(node, fmt::format("{} {} in layout {}, expected row_major", side, i, layout.text()));
      if (!panel) return;
      if (weight != nullptr && layout != *weight)
        fail(node, fmt::format("{} {} in layout {}, expected {}", side, i, layout.text(), weight->text()));
      weight = &layout;
    };
    const Shape& shape = graph_[node.outputs.front()].type.shape;
    const auto shared = [&](ValueId id, uint32_t bits, size_t i) {
      return (i < 32 && ((bits >> i) & 1u) != 0) || (rule.same_layout && graph_[id].type.shape == shape);
    };
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (node.inputs[i] != ValueId::none) check(node.inputs[i], shared(node.inputs[i], rule.panel_in, i), "input", i);
    for (size_t i = 0; i < node.outputs.size(); ++i)
      check(node.outputs[i], shared(node.outputs[i], rule.panel_out, i), "output", i);
  }

  void aliasing(const Node& node) const {
    const OpSchema& rule = schema(node.op);
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const Value& value = graph_[node.outputs[o]];
      bool allowed = value.storage_of == ValueId::none;
      for (const InPlace& pair : rule.in_place) {
        if (pair.output != static_cast<int8_t>(o)) continue;
        const auto input = static_cast<size_t>(pair.input);
        const bool lies_there = input < node.inputs.size() && value.storage_of == node.inputs[input];
        if (lies_there && value.storage_of != ValueId::none) allowed = true;
        if (pair.kind == InPlace::must && !lies_there)
          fail(node, fmt::format("output {} must lie on input {}", o, input));
      }
      if (!allowed) fail(node, fmt::format("output {} may not lie on {}", o, graph_[value.storage_of].name));
      if (value.storage_of != ValueId::none && graph_[graph_.root(value.storage_of)].kind == ValueKind::input)
        fail(node, fmt::format("output {} overwrites an input of the program", o));
    }
  }

  void define(const Node& node) {
    const OpSchema& rule = schema(node.op);
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const ValueId id = node.outputs[o];
      if (defined_[index(id)]) fail(node, fmt::format("output {} ({}) defined twice", o, graph_[id].name));
      defined_[index(id)] = true;
      const size_t root = index(graph_.root(id));
      bool view = false;
      for (const InPlace& pair : rule.in_place)
        view = view || (pair.output == static_cast<int8_t>(o) && pair.kind == InPlace::view);
      if (!view && root != index(id)) ++version_[root];
      seen_version_[index(id)] = version_[root];
    }
  }

  const Graph& graph_;
  std::vector<bool> defined_;
  std::vector<int32_t> seen_version_;  // of a value: the version of its root when it was made
  std::vector<int32_t> version_;       // of a root: how often it was written through another value
};

}  // namespace

void verify(const Graph& graph) { Verifier(graph).run(); }

}  // namespace lamina

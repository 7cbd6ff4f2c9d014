#include "graph/graph.h"

#include <unordered_set>

#include "base/error.h"
#include "graph/schema.h"

namespace lamina {

std::string_view tensor_class_name(TensorClass tensor_class) {
  switch (tensor_class) {
    case TensorClass::parameters: return "parameters";
    case TensorClass::gradients: return "gradients";
    case TensorClass::optimizer: return "optimizer";
    case TensorClass::activations: return "activations";
    case TensorClass::workspace: return "workspace";
    case TensorClass::io: return "io";
  }
  return "unknown";
}

ValueId Graph::declare(ValueKind kind, std::string value_name, Type type, TensorClass tensor_class) {
  LAMINA_CHECK(kind != ValueKind::computed, "computed value {} needs a node", value_name);
  values.push_back({std::move(value_name), type, kind, tensor_class, ValueId::none});
  return static_cast<ValueId>(values.size() - 1);
}

std::vector<ValueId> Graph::add(Op op, std::string node_name, std::vector<ValueId> inputs, Attrs attrs,
                                TensorClass tensor_class) {
  const OpSchema& rule = schema(op);
  std::vector<const Type*> types;
  types.reserve(inputs.size());
  for (ValueId id : inputs) types.push_back(id == ValueId::none ? nullptr : &(*this)[id].type);
  std::vector<Type> out(static_cast<size_t>(rule.n_outputs));
  const std::string wrong = rule.infer({types, attrs, out});
  LAMINA_CHECK(wrong.empty(), "node {} ({}): {}", node_name, op_name(op), wrong);

  Node node{NodeId{next_node++}, op, node_name, std::move(inputs), {}, std::move(attrs)};
  for (size_t i = 0; i < out.size(); ++i) {
    // The node's number keeps names unique without a search.
    std::string value_name = fmt::format("{}:{}", node_name, static_cast<int>(node.id));
    if (i > 0) value_name += fmt::format(".{}", i);
    values.push_back({std::move(value_name), out[i], ValueKind::computed, tensor_class, ValueId::none});
    node.outputs.push_back(static_cast<ValueId>(values.size() - 1));
  }
  for (const InPlace& pair : rule.in_place)
    if (pair.kind != InPlace::may)
      (*this)[node.outputs[static_cast<size_t>(pair.output)]].storage_of = node.inputs[static_cast<size_t>(pair.input)];
  nodes.push_back(std::move(node));
  return nodes.back().outputs;
}

ValueId Graph::add1(Op op, std::string node_name, std::vector<ValueId> inputs, Attrs attrs, TensorClass tensor_class) {
  if (std::holds_alternative<NoAttrs>(attrs)) attrs = default_attrs(op);
  return add(op, std::move(node_name), std::move(inputs), std::move(attrs), tensor_class).front();
}

ValueId Graph::root(ValueId id) const {
  while ((*this)[id].storage_of != ValueId::none) id = (*this)[id].storage_of;
  return id;
}

ValueId Graph::find(std::string_view value_name) const {
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i].name == value_name) return static_cast<ValueId>(i);
  return ValueId::none;
}

Uses::Uses(const Graph& graph) : producer(graph.values.size(), -1), readers(graph.values.size()) {
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    for (ValueId id : node.inputs)
      if (id != ValueId::none) readers[static_cast<size_t>(id)].push_back(static_cast<int32_t>(n));
    for (ValueId id : node.outputs) producer[static_cast<size_t>(id)] = static_cast<int32_t>(n);
  }
}

}  // namespace lamina

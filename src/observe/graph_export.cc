#include "observe/graph_export.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "graph/text.h"

namespace lamina {
namespace {

using Json = nlohmann::json;

const char* kind_name(ValueKind kind) {
  switch (kind) {
    case ValueKind::computed: return "computed";
    case ValueKind::input: return "input";
    case ValueKind::persistent: return "persistent";
  }
  return "unknown";
}

std::string type_text(const Type& type) {
  std::string out = fmt::format("{}[{}]", dtype_name(type.dtype), type.shape.text());
  if (type.layout.kind != LayoutKind::row_major) out += " " + type.layout.text();
  return out;
}

Json shape_json(const Shape& shape) {
  Json out = Json::array();
  for (int i = 0; i < shape.rank; ++i) out.push_back(shape[i]);
  return out;
}

Json attrs_json(const Attrs& attrs) {
  Json out = Json::object();
  std::visit(
      [&](const auto& own) {
        for_each_field(own, [&](const char* name, const auto& field) {
          if constexpr (std::is_same_v<std::remove_cvref_t<decltype(field)>, Shape>)
            out[name] = shape_json(field);
          else
            out[name] = field;
        });
      },
      attrs);
  return out;
}

Json names_json(const Graph& graph, const std::vector<ValueId>& ids) {
  Json out = Json::array();
  for (ValueId id : ids) out.push_back(id == ValueId::none ? Json(nullptr) : Json(graph[id].name));
  return out;
}

// Values that a node makes or reads, or that the graph gives out.
std::vector<bool> used_values(const Graph& graph) {
  std::vector<bool> used(graph.values.size(), false);
  const auto mark = [&](const std::vector<ValueId>& ids) {
    for (ValueId id : ids)
      if (id != ValueId::none) used[static_cast<size_t>(id)] = true;
  };
  for (const Node& node : graph.nodes) mark(node.inputs), mark(node.outputs);
  mark(graph.outputs);
  return used;
}

}  // namespace

std::string graph_dot(const Graph& graph) {
  const Uses uses(graph);
  const std::vector<bool> used = used_values(graph);
  std::string out = fmt::format("digraph \"{}\" {{\n  rankdir=TB;\n  node [fontname=\"sans-serif\"];\n", graph.name);
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const Value& value = graph.values[i];
    if (!used[i] || value.kind == ValueKind::computed) continue;
    out += fmt::format("  v{} [shape={}, label=\"{}\\n{}\"];\n", i,
                       value.kind == ValueKind::input ? "ellipse" : "cylinder", value.name, type_text(value.type));
  }
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    out += fmt::format("  n{} [shape=box, label=\"{}\\n{}\"];\n", n, node.name, op_name(node.op));
    for (ValueId id : node.inputs) {
      if (id == ValueId::none) continue;
      const int32_t producer = uses.producer_of(id);
      if (producer >= 0)
        out += fmt::format("  n{} -> n{} [label=\"{}\"];\n", producer, n, type_text(graph[id].type));
      else
        out += fmt::format("  v{} -> n{};\n", static_cast<int32_t>(id), n);
    }
  }
  return out + "}\n";
}

Json graph_json(const Graph& graph) {
  const std::vector<bool> used = used_values(graph);
  Json values = Json::array(), nodes = Json::array();
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const Value& value = graph.values[i];
    if (!used[i]) continue;
    values.push_back(
        {{"name", value.name},
         {"dtype", dtype_name(value.type.dtype)},
         {"shape", shape_json(value.type.shape)},
         {"layout", value.type.layout.text()},
         {"kind", kind_name(value.kind)},
         {"class", tensor_class_name(value.tensor_class)},
         {"storage_of", value.storage_of == ValueId::none ? Json(nullptr) : Json(graph[value.storage_of].name)}});
  }
  for (const Node& node : graph.nodes)
    nodes.push_back({{"id", static_cast<int32_t>(node.id)},
                     {"op", op_name(node.op)},
                     {"name", node.name},
                     {"inputs", names_json(graph, node.inputs)},
                     {"outputs", names_json(graph, node.outputs)},
                     {"attrs", attrs_json(node.attrs)}});
  return {{"name", graph.name}, {"values", values}, {"nodes", nodes}, {"outputs", names_json(graph, graph.outputs)}};
}

}  // namespace lamina

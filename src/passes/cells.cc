#include "passes/cells.h"

#include <algorithm>

#include "base/error.h"
#include "graph/schema.h"

namespace lamina {

CellBuilder::CellBuilder(Graph& graph)
    : graph_(graph),
      uses_(graph),
      outputs_(graph.values.size(), false),
      gone_(graph.nodes.size(), false),
      before_(graph.nodes.size()) {
  for (ValueId id : graph.outputs) outputs_[static_cast<size_t>(id)] = true;
}

Node* CellBuilder::producer(ValueId value, Op op) {
  const int32_t n = value == ValueId::none ? -1 : uses_.producer_of(value);
  if (n < 0 || gone_[static_cast<size_t>(n)]) return nullptr;
  Node& node = graph_.nodes[static_cast<size_t>(n)];
  return node.op == op ? &node : nullptr;
}

std::vector<Node*> CellBuilder::readers(ValueId value) {
  std::vector<Node*> out;
  for (int32_t n : uses_.readers_of(value)) {
    Node* node = &graph_.nodes[static_cast<size_t>(n)];
    if (!gone_[static_cast<size_t>(n)] && (out.empty() || out.back() != node)) out.push_back(node);
  }
  return out;
}

Node* CellBuilder::only_reader(ValueId value) {
  if (is_output(value) || graph_[value].storage_of != ValueId::none) return nullptr;
  const std::vector<Node*> all = readers(value);
  return all.size() == 1 ? all[0] : nullptr;
}

Node* CellBuilder::only_reader(ValueId value, Op op) {
  Node* reader = only_reader(value);
  return reader != nullptr && reader->op == op ? reader : nullptr;
}

bool CellBuilder::fits(size_t at, const std::vector<const Node*>& parts, const Node& made) const {
  const auto is_part = [&](int32_t n) {
    return std::any_of(parts.begin(), parts.end(),
                       [&](const Node* part) { return static_cast<int32_t>(index(part)) == n; });
  };
  for (ValueId id : made.inputs) {
    const int32_t producer = id == ValueId::none ? -1 : uses_.producer_of(id);
    if (producer >= static_cast<int32_t>(at) || is_part(producer)) return false;
  }
  for (ValueId id : made.outputs)
    for (int32_t reader : uses_.readers_of(id))
      if (reader < static_cast<int32_t>(at) && !is_part(reader) && !gone_[static_cast<size_t>(reader)]) return false;
  return true;
}

bool CellBuilder::take_precision(const std::vector<const Node*>& parts, Node& made) {
  const Node* first = nullptr;
  for (const Node* part : parts) {
    if (schema(part->op).operands == 0) continue;
    if (first != nullptr && part->precision != first->precision) return false;
    first = part;
  }
  if (first != nullptr) made.precision = first->precision;
  return true;
}

bool CellBuilder::replace(const Node* at, const std::vector<const Node*>& parts, Node made) {
  const size_t place = index(at);
  if (!fits(place, parts, made) || !take_precision(parts, made)) return false;
  for (const Node* part : parts) gone_[index(part)] = true;
  gone_[place] = false;
  for (ValueId id : graph_.nodes[place].inputs)
    if (id != ValueId::none) std::erase(uses_.readers[static_cast<size_t>(id)], static_cast<int32_t>(place));
  made.id = static_cast<NodeId>(graph_.next_node++);
  for (ValueId id : made.outputs) uses_.producer[static_cast<size_t>(id)] = static_cast<int32_t>(place);
  for (ValueId id : made.inputs) {
    if (id == ValueId::none) continue;
    std::vector<int32_t>& list = uses_.readers[static_cast<size_t>(id)];
    if (std::find(list.begin(), list.end(), static_cast<int32_t>(place)) == list.end())
      list.push_back(static_cast<int32_t>(place));
  }
  graph_.nodes[place] = std::move(made);
  changed_ = true;
  return true;
}

ValueId CellBuilder::workspace(const std::string& name, const Shape& shape) {
  std::string unique =
      fmt::format("{}:{}", name, graph_.values.size());  // a layer that is made again has the same name
  graph_.values.push_back({std::move(unique), {shape, Dtype::f32, {}}, ValueKind::computed, TensorClass::workspace});
  uses_.producer.push_back(-1);
  uses_.readers.emplace_back();
  outputs_.push_back(false);
  return static_cast<ValueId>(graph_.values.size() - 1);
}

bool CellBuilder::hoist(const Node* node, const Node* to) {
  for (ValueId id : node->inputs)
    if (id != ValueId::none && graph_[id].kind == ValueKind::computed) return false;
  const size_t from = index(node), place = index(to);
  if (from < place) return true;
  for (ValueId id : node->outputs) uses_.producer[static_cast<size_t>(id)] = -1;  // there before everything
  before_[place].push_back(*node);
  gone_[from] = true;
  changed_ = true;
  return true;
}

std::string common_name(const std::string& a, const std::string& b) {
  size_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
  while (n > 0 && a[n - 1] == '.') --n;
  return a.substr(0, n);
}

bool CellBuilder::finish() {
  if (!changed_) return false;
  std::vector<Node> kept;
  kept.reserve(graph_.nodes.size());
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    for (Node& node : before_[n]) kept.push_back(std::move(node));
    if (!gone_[n]) kept.push_back(std::move(graph_.nodes[n]));
  }
  graph_.nodes = std::move(kept);
  return true;
}

}  // namespace lamina

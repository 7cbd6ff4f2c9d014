// What the passes that form layer cells share: looking along values for a pattern, and putting one node in the place of
// several. They run after differentiation, so a value that only forward nodes read is one that backward does not need.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"

namespace lamina {

class CellBuilder {
 public:
  explicit CellBuilder(Graph& graph);

  // Null where there is none, it was replaced before, or it is another op.
  Node* producer(ValueId value, Op op);
  // All nodes that read the value and were not replaced.
  std::vector<Node*> readers(ValueId value);
  // The one node that reads the value, where it is of this op; null where others do or an output of the graph is it.
  Node* only_reader(ValueId value, Op op);
  Node* only_reader(ValueId value);
  bool is_output(ValueId value) const { return outputs_[static_cast<size_t>(value)]; }

  // `made` takes the place of the node `at`, and `parts` (which hold `at`) go. False, and nothing happens, where an
  // input of `made` is not there yet at that place, one of its outputs is read before, or the parts have operands of
  // different precision; `made` gets theirs.
  bool replace(const Node* at, const std::vector<const Node*>& parts, Node made);
  // A value for what one node keeps to itself while it runs.
  ValueId workspace(const std::string& name, const Shape& shape);
  // Moves a node that reads only what is there from the start before the node `to`.
  bool hoist(const Node* node, const Node* to);

  // Removes what was replaced. True where anything was.
  bool finish();

 private:
  size_t index(const Node* node) const { return static_cast<size_t>(node - graph_.nodes.data()); }
  static bool take_precision(const std::vector<const Node*>& parts, Node& made);
  bool fits(size_t at, const std::vector<const Node*>& parts, const Node& made) const;

  Graph& graph_;
  Uses uses_;
  std::vector<bool> outputs_;              // values
  std::vector<bool> gone_;                 // nodes
  std::vector<std::vector<Node>> before_;  // nodes that were moved before each node
  bool changed_ = false;
};

// What both names begin with: "layer.3.attention".
std::string common_name(const std::string& a, const std::string& b);

// The input of a node, none where it is absent.
inline ValueId input_of(const Node& node, size_t i) { return i < node.inputs.size() ? node.inputs[i] : ValueId::none; }

}  // namespace lamina

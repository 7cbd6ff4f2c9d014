// The graph: what is computed, in single assignment. A plain value; ids are indices and stay valid through all passes
// (a removed value stays behind unused). The order of `nodes` is the order of execution.
//
//   value   persistent  lives in the session across programs and steps (parameters, moments, caches), bound by name
//           input       written by the caller before a program runs
//           computed    the output of one node
//
// A value may occupy the storage of another (`storage_of`): a view (reshape) or an op that works in place. The chain
// ends at its root. A write through the chain makes all older values of that root unreadable; the verifier checks it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/layout.h"
#include "base/op.h"
#include "base/shape.h"

namespace lamina {

enum class ValueId : int32_t { none = -1 };
enum class NodeId : int32_t {};

enum class ValueKind : uint8_t { computed, input, persistent };

// What memory is spent on, for reports.
enum class TensorClass : uint8_t { parameters, gradients, optimizer, activations, workspace, io };
std::string_view tensor_class_name(TensorClass tensor_class);

struct Type {
  Shape shape;
  Dtype dtype = Dtype::f32;
  Layout layout;
  bool operator==(const Type&) const = default;
};

struct Value {
  std::string name;  // unique within the graph
  Type type;
  ValueKind kind = ValueKind::computed;
  TensorClass tensor_class = TensorClass::activations;
  ValueId storage_of = ValueId::none;
};

struct Node {
  NodeId id{};
  Op op{};
  std::string name;
  std::vector<ValueId> inputs;  // ValueId::none: an optional input that is absent
  std::vector<ValueId> outputs;
  Attrs attrs;
  Dtype precision = Dtype::f32;  // what operands of products are rounded to: f32, bf16 or f16
};

struct Graph {
  std::string name;
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<ValueId> outputs;  // must hold their value when the program ends
  int32_t next_node = 0;

  const Value& operator[](ValueId id) const { return values[static_cast<size_t>(id)]; }
  Value& operator[](ValueId id) { return values[static_cast<size_t>(id)]; }

  // Declares an input or persistent value.
  ValueId declare(ValueKind kind, std::string name, Type type, TensorClass tensor_class);
  // Appends a node; shapes and types of its outputs come from the op's schema. Aborts on a violated shape rule: callers
  // build from a validated configuration. Outputs are named `name`, `name.1`, … (made unique by a suffix).
  std::vector<ValueId> add(Op op, std::string name, std::vector<ValueId> inputs, Attrs attrs, TensorClass tensor_class);
  // The same for ops of one output with default attributes.
  ValueId add1(Op op, std::string name, std::vector<ValueId> inputs, Attrs attrs = NoAttrs{},
               TensorClass tensor_class = TensorClass::activations);

  ValueId root(ValueId id) const;                   // end of the storage_of chain
  ValueId find(std::string_view value_name) const;  // none where there is no such value; linear
};

// For each value, the index of the node that makes it (-1: none) and of the nodes that read it, in order. A snapshot.
struct Uses {
  explicit Uses(const Graph& graph);
  std::vector<int32_t> producer;
  std::vector<std::vector<int32_t>> readers;
  int32_t producer_of(ValueId id) const { return producer[static_cast<size_t>(id)]; }
  const std::vector<int32_t>& readers_of(ValueId id) const { return readers[static_cast<size_t>(id)]; }
};

// Throws Error(invalid) that names the node or value, the rule, expected and got: unknown ids, wrong number of inputs,
// a shape, dtype or layout that differs from the schema's, use before definition, double definition, double names,
// aliasing that the schema does not allow, a read of storage that was overwritten.
void verify(const Graph& graph);

}  // namespace lamina

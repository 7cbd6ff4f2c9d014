// What an op means to the compiler: its shape rule, its gradient rule, which layouts it takes and which outputs may lie
// on which inputs. One `const OpSchema schema_<op>` per row of ops.def, defined in graph/ops; a missing one fails to
// link.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace lamina {

struct InPlace {
  int8_t output;
  int8_t input;
  enum Kind : uint8_t {
    may,   // the kernel allows it, a pass decides
    must,  // the op is defined so: an update of persistent storage
    view,  // the same elements, nothing runs
  } kind;
};

struct InferCall {
  std::span<const Type* const> in;  // null: absent
  const Attrs& attrs;
  std::vector<Type>& out;  // sized by the caller to the schema's number of outputs

  const Shape& shape(size_t i) const { return in[i]->shape; }
  bool has(size_t i) const { return i < in.size() && in[i] != nullptr; }
};

// Emits backward nodes. `dout[i]` is the gradient of output i, none where nothing flows; sets `din[i]` for each input
// that `needs[i]`. Contributions to one value are summed by the caller.
struct GradientCall {
  Graph& graph;
  const Node& node;  // a copy: the graph's vector grows while rules run
  std::span<const ValueId> dout;
  std::span<const bool> needs;
  std::span<ValueId> din;

  ValueId in(size_t i) const { return i < node.inputs.size() ? node.inputs[i] : ValueId::none; }
  ValueId out(size_t i) const { return node.outputs[i]; }
};

// What most of an op's work is: its kernels come to different parts of the machine's peak.
enum class WorkKind : uint8_t { memory, gemm, attention, elementwise };

struct WorkCall {
  std::span<const Type> in;  // rank 0 and row-major where an optional input is absent
  std::span<const Type> out;
  const Attrs& attrs;

  const Shape& shape(size_t i) const { return in[i].shape; }
};

// Operations in fp32, a multiply-add counted as two: what the kernels execute. Of elementwise work they are operations'
// worth of time: an exponential counts for what it takes.
struct OpWork {
  WorkKind kind = WorkKind::memory;
  double (*operations)(const WorkCall&) = nullptr;  // null: few beside the bytes that it reads and writes
};

struct OpSchema {
  int32_t min_inputs = 0;
  int32_t max_inputs = 0;  // -1: any number
  int32_t n_outputs = 1;
  uint32_t optional = 0;  // bit i: input i may be none
  uint32_t panel_in = 0;  // bit i: input i is a weight, in panel layout once layouts are set
  uint32_t panel_out = 0;
  uint32_t operands = 0;     // bit i: input i is rounded to the node's precision, and may be stored in it
  uint32_t narrow = 0;       // bit i: output i may be stored in 16 bits
  bool same_layout = false;  // elementwise over storage: every operand of the first output's shape shares its layout
  bool kernel = true;        // false: folded or a view before kernels are chosen
  // Empty where the operands are right; else what is wrong, "expected …, got …".
  std::string (*infer)(const InferCall&) = nullptr;
  void (*gradient)(GradientCall&) = nullptr;  // null: no gradient flows through
  std::vector<InPlace> in_place = {};
  OpWork work = {};
};

const OpSchema& schema(Op op);

// The inputs of a node that it rounds to its precision: the schema's, without x where a layernorm stands before the
// product (its output is rounded then).
uint32_t operands_of(const Node& node);
// The products of a node take 16-bit operands.
inline bool is_narrow(const Node& node) { return node.precision != Dtype::f32; }

// "" or "<what>, expected <a>, got <b>": shared by the shape rules.
std::string expect_shape(const char* what, const Shape& expected, const Shape& got);
std::string expect_rank(const char* what, int rank, const Shape& got);
// rng (2) and sample (B) in the inputs `rng` and rng + 1: what dropout is keyed by.
std::string expect_dropout_keys(const InferCall& call, size_t rng, int64_t B);
// The shape without its last dimension.
Shape leading(const Shape& shape);
// The same leading dimensions with another last one.
Shape with_last(const Shape& shape, int64_t last);
// Operations of an op that does so many on each element of its first output.
template <int kEach>
double operations_per_element(const WorkCall& call) {
  return kEach * static_cast<double>(call.out[0].shape.elements());
}

}  // namespace lamina

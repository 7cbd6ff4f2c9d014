#include "graph/work.h"

#include "graph/lifetime.h"
#include "graph/schema.h"

namespace lamina {
namespace {

double bytes_of(std::span<const WorkOperand> operands, size_t i) {
  if (i >= operands.size() || operands[i].type.shape.rank == 0) return 0.0;
  const Type& type = operands[i].type;
  return static_cast<double>(storage_elements(type.shape, type.layout) * dtype_bytes(type.dtype));
}

double operations_of(Op op, const Attrs& attrs, std::span<const WorkOperand> in, std::span<const WorkOperand> out) {
  const OpWork& work = schema(op).work;
  if (work.operations == nullptr) return 0.0;
  const auto types = [](std::span<const WorkOperand> operands) {
    std::vector<Type> list;
    for (const WorkOperand& operand : operands) list.push_back(operand.type);
    return list;
  };
  const std::vector<Type> in_types = types(in), out_types = types(out);
  return work.operations({in_types, out_types, attrs});
}

// The sums of tokens with equal ids go to rows of the table; where the result does not lie on what it is added to, all
// of the table is written.
void count_table_gradient(std::span<const WorkOperand> in, std::span<const WorkOperand> out, Work& work) {
  const bool in_place = bytes_of(in, 2) > 0.0 && in[2].storage >= 0 && in[2].storage == out[0].storage;
  work.read = bytes_of(in, 0) + bytes_of(in, 1) + (in_place ? bytes_of(in, 0) : bytes_of(in, 2));
  work.written = in_place ? bytes_of(in, 0) : bytes_of(out, 0);
}

// Each chunk of rows reads the weight, and once more for dx, writes and reads its logits, and reads and writes dW.
void count_head(bool gradients, std::span<const WorkOperand> in, std::span<const WorkOperand> out, Work& work) {
  const int64_t whole = (in[0].type.shape.rows() + kHeadRows - 1) / kHeadRows;
  const auto chunks = static_cast<double>(whole);
  const double weight = bytes_of(in, 1), logits = bytes_of(out, out.size() - 1);
  work.read += (chunks - 1.0) * weight + chunks * logits;
  work.written += (chunks - 1.0) * logits;
  if (!gradients) return;
  work.read += chunks * (weight + 2.0 * logits) + (chunks - 1.0) * weight;
  work.written += chunks * logits + (chunks - 1.0) * weight;
}

}  // namespace

Work work_of(Op op, const Attrs& attrs, std::span<const WorkOperand> in, std::span<const WorkOperand> out) {
  Work work{.operations = operations_of(op, attrs, in, out)};
  for (size_t i = 0; i < in.size(); ++i) work.read += bytes_of(in, i);
  for (size_t i = 0; i < out.size(); ++i) work.written += bytes_of(out, i);
  switch (op) {
    case Op::embedding:
    case Op::select_rows: work.read = bytes_of(in, 1) + bytes_of(out, 0); break;
    case Op::embedding_sum: work.read = bytes_of(in, 1) + bytes_of(in, 3) + 2.0 * bytes_of(out, 0); break;
    case Op::embedding_bwd: count_table_gradient(in, out, work); break;
    case Op::attention_cached: work.written = bytes_of(out, 0) + bytes_of(in, 1) + bytes_of(in, 2); break;
    case Op::zero: work.read = 0.0; break;
    case Op::head_loss:
    case Op::head: count_head(op == Op::head, in, out, work); break;
    default: break;
  }
  return work;
}

Work work_of(const Graph& graph, const Node& node) {
  const auto operands = [&](const std::vector<ValueId>& list) {
    std::vector<WorkOperand> out;
    for (ValueId id : list) {
      out.emplace_back();
      if (id != ValueId::none) out.back() = {graph[id].type, static_cast<int32_t>(graph.root(id))};
    }
    return out;
  };
  return work_of(node.op, node.attrs, operands(node.inputs), operands(node.outputs));
}

}  // namespace lamina

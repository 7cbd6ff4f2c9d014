#include "plan/cost.h"

#include <algorithm>

#include "graph/lifetime.h"
#include "graph/schema.h"

namespace lamina {
namespace {

// The part of the peak that kernels of a kind come to in a step, rounded. Of elementwise ones it is a unit: their
// counts of operations were fitted to it.
double efficiency(WorkKind kind) {
  switch (kind) {
    case WorkKind::gemm: return 0.82;
    case WorkKind::attention: return 0.52;
    case WorkKind::elementwise: return 0.5;
    case WorkKind::memory: break;
  }
  return 1.0;
}

// What one node or step computes, and on what.
struct Work {
  Op op{};
  const Attrs& attrs;
  std::vector<Type> in, out;  // rank 0 where an optional input is absent
};

Work work_of(const Plan& plan, const PlanStep& step) {
  const auto types = [&](const std::vector<int32_t>& list) {
    std::vector<Type> out;
    for (int32_t index : list) {
      out.emplace_back();
      if (index < 0) continue;
      const PlanTensor& tensor = plan.tensors[static_cast<size_t>(index)];
      out.back() = {tensor.shape, tensor.dtype, tensor.layout};
    }
    return out;
  };
  return {step.op, step.attrs, types(step.in), types(step.out)};
}

Work work_of(const Graph& graph, const Node& node) {
  const auto types = [&](const std::vector<ValueId>& list) {
    std::vector<Type> out;
    for (ValueId id : list) out.push_back(id == ValueId::none ? Type{} : graph[id].type);
    return out;
  };
  return {node.op, node.attrs, types(node.inputs), types(node.outputs)};
}

double operations_of(const Work& w) {
  const OpWork& work = schema(w.op).work;
  return work.operations == nullptr ? 0.0 : work.operations({w.in, w.out, w.attrs});
}

double bytes_of(const Type& type) { return type.shape.rank == 0 ? 0.0 : static_cast<double>(storage_bytes(type)); }

bool is_table(Op op, size_t input) {
  return (op == Op::embedding && input == 0) || (op == Op::embedding_sum && (input == 0 || input == 2));
}

// Every operand once. Of a table that rows are looked up in, as many bytes as the rows have.
double bytes_of(const Work& w) {
  double out_bytes = 0.0, bytes = 0.0;
  for (const Type& type : w.out) out_bytes += bytes_of(type);
  for (size_t i = 0; i < w.in.size(); ++i) {
    const double own = bytes_of(w.in[i]);
    bytes += is_table(w.op, i) ? std::min(own, out_bytes) : own;
  }
  return bytes + out_bytes;
}

double seconds(const Work& w, const Rates& rates) {
  const double operations = operations_of(w) / (rates.flops_per_s * efficiency(schema(w.op).work.kind));
  return std::max(operations, bytes_of(w) / rates.bytes_per_s);
}

}  // namespace

Rates typical_rates(Isa isa) {
  switch (isa) {
    case Isa::avx512: return {200e9, 30e9};
    case Isa::avx2: return {100e9, 15e9};
    default: return {20e9, 20e9};
  }
}

double step_seconds(const Plan& plan, const PlanStep& step, const Rates& rates) {
  return seconds(work_of(plan, step), rates);
}

double node_seconds(const Graph& graph, const Node& node, const Rates& rates) {
  return schema(node.op).kernel ? seconds(work_of(graph, node), rates) : 0.0;
}

double program_seconds(const Plan& plan, const PlanProgram& program, const Rates& rates) {
  double total = 0.0;
  for (const PlanStep& step : program.steps) total += step_seconds(plan, step, rates);
  return total;
}

Amounts program_amounts(const Plan& plan, const PlanProgram& program) {
  Amounts total;
  for (const PlanStep& step : program.steps) {
    const Work work = work_of(plan, step);
    total.operations += operations_of(work);
    total.bytes += bytes_of(work);
  }
  return total;
}

}  // namespace lamina

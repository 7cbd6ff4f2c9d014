#include "plan/cost.h"

#include <algorithm>

#include "graph/schema.h"
#include "kernels/kernel.h"

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

double seconds(Op op, const Work& work, const Rates& rates, double speed = 1.0) {
  const double operations = work.operations / (rates.flops_per_s * speed * efficiency(schema(op).work.kind));
  return std::max(operations, work.bytes() / rates.bytes_per_s);
}

}  // namespace

Rates typical_rates(Isa isa) {
  switch (isa) {
    case Isa::avx512: return {.flops_per_s = 200e9, .bytes_per_s = 30e9};
    case Isa::avx2: return {.flops_per_s = 100e9, .bytes_per_s = 15e9};
    default: return {.flops_per_s = 20e9, .bytes_per_s = 20e9};
  }
}

Work work_of(const Plan& plan, const PlanStep& step) {
  const auto operands = [&](const std::vector<int32_t>& tensors) {
    std::vector<WorkOperand> out;
    for (int32_t t : tensors) {
      out.emplace_back();
      if (t < 0) continue;
      const PlanTensor& tensor = plan.tensors[static_cast<size_t>(t)];
      out.back() = {{tensor.shape, tensor.dtype, tensor.layout}, tensor.storage};
    }
    return out;
  };
  return work_of(step.op, step.attrs, operands(step.in), operands(step.out));
}

Work work_of(const Plan& plan, const PlanProgram& program) {
  Work total;
  for (const PlanStep& step : program.steps) {
    const Work work = work_of(plan, step);
    total.operations += work.operations;
    total.read += work.read;
    total.written += work.written;
  }
  return total;
}

double node_seconds(const Graph& graph, const Node& node, const Rates& rates) {
  return schema(node.op).kernel ? seconds(node.op, work_of(graph, node), rates) : 0.0;
}

double program_seconds(const Plan& plan, const PlanProgram& program, const Rates& rates) {
  double total = 0.0;
  for (const PlanStep& step : program.steps) {
    const bool narrow = table_of(*find_kernel_by_id(step.kernel)).arithmetic != Arithmetic::f32;
    total += seconds(step.op, work_of(plan, step), rates, narrow ? rates.narrow : 1.0);
  }
  return total;
}

}  // namespace lamina

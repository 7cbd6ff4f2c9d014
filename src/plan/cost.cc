#include "plan/cost.h"

#include <algorithm>

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

Type type_of(const Plan& plan, int32_t index) {
  if (index < 0) return {};
  const PlanTensor& tensor = plan.tensors[static_cast<size_t>(index)];
  return {tensor.shape, tensor.dtype, tensor.layout};
}

double operations_of(const Plan& plan, const PlanStep& step) {
  const OpWork& work = schema(step.op).work;
  if (work.operations == nullptr) return 0.0;
  std::vector<Type> in, out;
  for (int32_t index : step.in) in.push_back(type_of(plan, index));
  for (int32_t index : step.out) out.push_back(type_of(plan, index));
  return work.operations({in, out, step.attrs});
}

// Every operand once. Of a table that rows are looked up in, as many bytes as the rows have.
double bytes_of(const Plan& plan, const PlanStep& step) {
  double out_bytes = 0.0, bytes = 0.0;
  for (int32_t index : step.out) out_bytes += static_cast<double>(plan.tensors[static_cast<size_t>(index)].bytes);
  for (size_t i = 0; i < step.in.size(); ++i) {
    if (step.in[i] < 0) continue;
    const double own = static_cast<double>(plan.tensors[static_cast<size_t>(step.in[i])].bytes);
    bytes += step.op == Op::embedding && i == 0 ? std::min(own, out_bytes) : own;
  }
  return bytes + out_bytes;
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
  const double operations = operations_of(plan, step) / (rates.flops_per_s * efficiency(schema(step.op).work.kind));
  return std::max(operations, bytes_of(plan, step) / rates.bytes_per_s);
}

double program_seconds(const Plan& plan, const PlanProgram& program, const Rates& rates) {
  double total = 0.0;
  for (const PlanStep& step : program.steps) total += step_seconds(plan, step, rates);
  return total;
}

Amounts program_amounts(const Plan& plan, const PlanProgram& program) {
  Amounts total;
  for (const PlanStep& step : program.steps) {
    total.operations += operations_of(plan, step);
    total.bytes += bytes_of(plan, step);
  }
  return total;
}

}  // namespace lamina

#include "plan/work.h"

namespace lamina {
namespace {

std::vector<WorkOperand> operands(const Plan& plan, const std::vector<int32_t>& tensors) {
  std::vector<WorkOperand> out;
  for (int32_t t : tensors) {
    if (t < 0) {
      out.emplace_back();
      continue;
    }
    const PlanTensor& tensor = plan.tensors[static_cast<size_t>(t)];
    out.push_back(
        {tensor.shape, storage_elements(tensor.shape, tensor.layout) * dtype_bytes(tensor.dtype), tensor.storage});
  }
  return out;
}

}  // namespace

Work work_of(const Plan& plan, const PlanStep& step) {
  return work_of(step.op, operands(plan, step.in), operands(plan, step.out));
}

Work work_of(const Plan& plan, const PlanProgram& program) {
  Work total;
  for (const PlanStep& step : program.steps) {
    const Work work = work_of(plan, step);
    total.flops += work.flops;
    total.read += work.read;
    total.written += work.written;
  }
  return total;
}

}  // namespace lamina

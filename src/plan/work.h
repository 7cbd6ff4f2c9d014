// What a plan has to do: the operations and bytes of its steps (kernels/work.h).
#pragma once

#include "kernels/work.h"
#include "plan/plan.h"

namespace lamina {

Work work_of(const Plan& plan, const PlanStep& step);
Work work_of(const Plan& plan, const PlanProgram& program);  // all of its steps

}  // namespace lamina

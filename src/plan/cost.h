// What a plan costs in time, before it runs: each step takes at least as long as its operations at the part of the peak
// that kernels of its kind reach, and as its bytes at the speed of memory. It does not measure: rates are handed in.
#pragma once

#include "graph/work.h"
#include "plan/plan.h"

namespace lamina {

struct Rates {
  double flops_per_s = 0.0;  // fp32 multiply-adds, all threads together
  double narrow = 1.0;       // what products in another arithmetic than fp32 come to, over that
  double bytes_per_s = 0.0;  // of memory that is read and written back, all threads together
};

// Typical of a processor of this rung. Only the ratio of the two matters where plans are compared, and a fixed one
// makes the choice the same on every machine.
Rates typical_rates(Isa isa);

Work work_of(const Plan& plan, const PlanStep& step);
Work work_of(const Plan& plan, const PlanProgram& program);  // all of its steps
double node_seconds(const Graph& graph, const Node& node, const Rates& rates);
double program_seconds(const Plan& plan, const PlanProgram& program, const Rates& rates);

}  // namespace lamina

// From graphs to a plan: kernels are chosen, regions laid out, transient storage placed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/graph.h"
#include "kernels/kernel.h"
#include "plan/plan.h"

namespace lamina {

// Placement as a problem of its own: intervals of time with a size, offsets wanted so that none that overlap in time
// overlap in space.
struct Interval {
  int32_t first = 0;
  int32_t last = 0;  // inclusive
  int64_t bytes = 0;
};
struct Placement {
  std::vector<int64_t> offsets;
  int64_t height = 0;
};
// Best of several greedy orders; stops at the lower bound. A bounded search where they stay away from it.
Placement place(std::span<const Interval> intervals);

// Graphs that have passed whole_passes for this ISA. Tensors with equal names in the persistent and io regions are one
// tensor; the graphs must agree on their types. Throws Error(unsupported) naming the op where the ISA has no kernel.
Plan make_plan(std::span<const Graph> graphs, Isa isa, const Arithmetics& arithmetics = {});

}  // namespace lamina

// How much an op has to do, from its operands alone: what times are predicted from and compared with. No rate is known
// here.
#pragma once

#include <span>

#include "graph/graph.h"

namespace lamina {

struct WorkOperand {
  Type type;             // rank 0: an optional operand that is absent
  int32_t storage = -1;  // an input and an output of equal numbers lie on one another; -1: on nothing
};

struct Work {
  double operations = 0.0;  // as the op's schema counts them
  // Every operand once: what caches cannot save where a tensor is larger than they are. Of a table that is looked up
  // only the rows that are.
  double read = 0.0;
  double written = 0.0;

  double bytes() const { return read + written; }
};

Work work_of(Op op, const Attrs& attrs, std::span<const WorkOperand> in, std::span<const WorkOperand> out);
Work work_of(const Graph& graph, const Node& node);

}  // namespace lamina

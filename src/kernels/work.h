// How much an op has to do, from the shapes of its operands alone: what times are compared with. No time is predicted
// here and no kernel is known: the count is the same for every rung.
#pragma once

#include <cstdint>
#include <span>

#include "base/op.h"
#include "base/shape.h"

namespace lamina {

struct WorkOperand {
  Shape shape;
  int64_t bytes = 0;     // of its storage; 0: an optional operand that is absent
  int32_t storage = -1;  // an input and an output of equal numbers lie on one another; -1: on nothing
};

struct Work {
  // Multiplications, additions and the like of the op's formula; exp, tanh and roots count as one. Attention counts its
  // products over the causal half of the scores.
  double flops = 0.0;
  // Every operand once: what caches cannot save where a tensor is larger than they are. Of a table that is looked up
  // only the rows that are.
  double read = 0.0;
  double written = 0.0;

  double bytes() const { return read + written; }
};

Work work_of(Op op, std::span<const WorkOperand> in, std::span<const WorkOperand> out);

}  // namespace lamina

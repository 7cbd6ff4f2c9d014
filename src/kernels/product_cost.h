// What products with 16-bit operands cost on this machine, measured now.
#pragma once

#include "kernels/kernel.h"

namespace lamina {

// The time of a product of 256 x 768 x 768 with operands of `precision` (fp32 in memory, so that they are rounded on
// the way) over that of the same product in fp32, one thread: the least of some runs of each, in turn.
double product_cost(Isa isa, Arithmetic arithmetic, Dtype precision);

}  // namespace lamina

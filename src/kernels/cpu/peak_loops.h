// The loops behind kernels/peak.h, once per ISA. Each gives a value that depends on all of its work, so that no
// compiler can leave any of it out.
#pragma once

#include <cstdint>

#include "kernels/kernel.h"

namespace lamina {

struct PeakLoops {
  float (*multiply_add)(int64_t iterations) noexcept;
  double flops_per_iteration;
};

struct MemoryLoops {
  // count: a multiple of 1024.
  float (*read)(const float* data, int64_t count) noexcept;
  void (*update)(float* data, int64_t count) noexcept;  // each element from itself
};

const PeakLoops& peak_loops(Isa isa, Arithmetic arithmetic);  // of a table that exists
const MemoryLoops& memory_loops(Isa isa);

}  // namespace lamina

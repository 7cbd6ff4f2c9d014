// The loops behind kernels/peak.h, once per ISA. Each gives a value that depends on all of its work, so that no
// compiler can leave any of it out.
#pragma once

#include <cstdint>

#include "base/cpu.h"

namespace lamina {

struct PeakLoops {
  float (*multiply_add)(int64_t iterations) noexcept;
  double flops_per_iteration;
  // count: a multiple of 1024.
  float (*read)(const float* data, int64_t count) noexcept;
  void (*update)(float* data, int64_t count) noexcept;  // each element from itself
};

const PeakLoops& peak_loops(Isa isa);

}  // namespace lamina

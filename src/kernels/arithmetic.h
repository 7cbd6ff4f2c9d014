// Which arithmetic this processor computes products with 16-bit operands in. The bits of CPUID say what exists, not
// what is fast: an Emerald Rapids core runs vdpbf16ps at half its rate of fp32 multiply-adds, a Zen 4 core at twice.
#pragma once

#include <vector>

#include "kernels/kernel.h"

namespace lamina {

// Products that this build has kernels for and this processor can run. On the portable rung bf16dot and f16chunk are
// emulated, for comparison only.
bool cpu_has(Isa isa, Arithmetic arithmetic);

// All tables that this processor can run, those in f32 first.
std::vector<const KernelTable*> available_tables();

}  // namespace lamina

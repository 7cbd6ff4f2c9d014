// Which arithmetic this processor computes products with 16-bit operands in. The bits of CPUID say what exists, not
// what is fast: an Emerald Rapids core runs vdpbf16ps at half its rate of fp32 multiply-adds, a Zen 4 core at twice. So
// a fixed table by features and family chooses, and a measurement of some milliseconds overrules it only where it is
// far off, so that the choice is the same in every run.
#pragma once

#include <string>
#include <vector>

#include "kernels/kernel.h"

namespace lamina {

// The processor has the instructions of a table of this build.
bool has_instructions(Isa isa, Arithmetic arithmetic);
// It can run the table: with its instructions or, on the portable rung, emulated, which is for comparison only.
bool cpu_has(Isa isa, Arithmetic arithmetic);
// All tables that it can run, those in f32 first.
std::vector<const KernelTable*> available_tables();

// The kernel of an op in an arithmetic, or where that has none for it, in f32. Null where the rung has none at all.
const Kernel* find_kernel(Isa isa, Arithmetic arithmetic, Op op);

struct ArithmeticChoice {
  Arithmetic arithmetic = Arithmetic::f32;
  std::string why;  // for people: "AVX512-FP16"
};

// What the choice looks at.
struct ProductSpeeds {
  bool bf16dot = false, f16chunk = false;  // there are instructions
  bool fast_bf16 = false;                  // known to be faster than fp32
  // Measured, of multiply-adds in registers; 0 where not.
  double f32_gflops = 0.0, bf16dot_gflops = 0.0, f16chunk_gflops = 0.0;
};
constexpr double kFarOff = 1.5;  // times as fast as what the table chose: real ratios are 0.5 against 2

// `own_products`: only products in the type of `precision` will do, or fp32.
ArithmeticChoice choose_arithmetic(const ProductSpeeds& speeds, Dtype precision, bool own_products);
// What products of operands in `precision` may be computed in on this processor, f32 first.
std::vector<Arithmetic> possible_arithmetics(Isa isa, Dtype precision, bool own_products);
// For this processor, measured now where there is a choice.
ArithmeticChoice choose_arithmetic(Isa isa, Dtype precision, bool own_products);

}  // namespace lamina

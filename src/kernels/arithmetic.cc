#include "kernels/arithmetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "kernels/cpu/peak_loops.h"

namespace lamina {
namespace {

constexpr int64_t kIterations = 5000;  // some 20 to 50 µs
constexpr int kWindows = 20;

// Gflop/s of one thread, of the best of some short windows.
double rate(Isa isa, Arithmetic arithmetic) {
  if (!has_instructions(isa, arithmetic)) return 0.0;
  const PeakLoops& loops = peak_loops(isa, arithmetic);
  using Clock = std::chrono::steady_clock;
  double best = HUGE_VAL;
  for (int i = 0; i < kWindows; ++i) {
    const Clock::time_point start = Clock::now();
    loops.multiply_add(kIterations);
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return loops.flops_per_iteration * static_cast<double>(kIterations) / best * 1e-9;
}

double rate_of(const ProductSpeeds& s, Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::f32: return s.f32_gflops;
    case Arithmetic::bf16dot: return s.bf16dot_gflops;
    case Arithmetic::f16chunk: return s.f16chunk_gflops;
  }
  return 0.0;
}

// What a product in `precision` may be computed in here, f32 first.
std::vector<Arithmetic> candidates(const ProductSpeeds& s, Dtype precision, bool own_products) {
  std::vector<Arithmetic> out{Arithmetic::f32};
  if (precision == Dtype::f32) return out;
  if (s.bf16dot && precision == Dtype::bf16) out.push_back(Arithmetic::bf16dot);
  // Beside fp16's own error that of fp16 sums would count; beside bf16's it does not.
  if (s.f16chunk && precision == Dtype::bf16 && !own_products) out.push_back(Arithmetic::f16chunk);
  return out;
}

ArithmeticChoice from_table(const ProductSpeeds& s, Dtype precision, const std::vector<Arithmetic>& possible) {
  if (precision == Dtype::f32) return {Arithmetic::f32, "operands are fp32"};
  const auto can = [&](Arithmetic a) { return std::find(possible.begin(), possible.end(), a) != possible.end(); };
  if (can(Arithmetic::f16chunk)) return {Arithmetic::f16chunk, "AVX512-FP16, twice the rate of fp32"};
  if (!can(Arithmetic::bf16dot)) return {Arithmetic::f32, "no faster products of 16-bit numbers on this CPU"};
  if (s.fast_bf16) return {Arithmetic::bf16dot, "AVX512_BF16, twice the rate of fp32 on this family of CPUs"};
  return {Arithmetic::f32, "AVX512_BF16 has half the rate of fp32 on this family of CPUs"};
}

}  // namespace

bool has_instructions(Isa isa, Arithmetic arithmetic) {
  if (!cpu_has(isa) || kernel_table(isa, arithmetic) == nullptr) return false;
  if (arithmetic == Arithmetic::f32) return true;
  return isa != Isa::portable && (arithmetic == Arithmetic::bf16dot ? cpu_has_bf16() : cpu_has_fp16());
}

namespace {

ProductSpeeds instructions_of(Isa isa) {
  return {.bf16dot = has_instructions(isa, Arithmetic::bf16dot),
          .f16chunk = has_instructions(isa, Arithmetic::f16chunk),
          .fast_bf16 = cpu_has_fast_bf16()};
}

}  // namespace

bool cpu_has(Isa isa, Arithmetic arithmetic) {
  return has_instructions(isa, arithmetic) || (isa == Isa::portable && kernel_table(isa, arithmetic) != nullptr);
}

std::vector<const KernelTable*> available_tables() {
  std::vector<const KernelTable*> tables;
  for (Arithmetic arithmetic : {Arithmetic::f32, Arithmetic::bf16dot, Arithmetic::f16chunk})
    for (Isa isa : available_isas())
      if (cpu_has(isa, arithmetic)) tables.push_back(kernel_table(isa, arithmetic));
  return tables;
}

const Kernel* find_kernel(Isa isa, Arithmetic arithmetic, Op op) {
  const KernelTable* table = kernel_table(isa, arithmetic);
  const Kernel* kernel = table == nullptr ? nullptr : find_kernel(*table, op);
  return kernel == nullptr ? find_kernel(kernel_table(isa), op) : kernel;
}

ArithmeticChoice choose_arithmetic(const ProductSpeeds& speeds, Dtype precision, bool own_products) {
  const std::vector<Arithmetic> possible = candidates(speeds, precision, own_products);
  ArithmeticChoice chosen = from_table(speeds, precision, possible);
  const Arithmetic fastest = *std::max_element(possible.begin(), possible.end(), [&](Arithmetic a, Arithmetic b) {
    return rate_of(speeds, a) < rate_of(speeds, b);
  });
  const double known = rate_of(speeds, chosen.arithmetic), best = rate_of(speeds, fastest);
  if (known <= 0.0 || best <= kFarOff * known) return chosen;
  return {fastest, fmt::format("measured at {:.2f} times the rate of {}, which the table of CPUs names", best / known,
                               arithmetic_name(chosen.arithmetic))};
}

std::vector<Arithmetic> possible_arithmetics(Isa isa, Dtype precision, bool own_products) {
  return candidates(instructions_of(isa), precision, own_products);
}

ArithmeticChoice choose_arithmetic(Isa isa, Dtype precision, bool own_products) {
  ProductSpeeds speeds = instructions_of(isa);
  if (candidates(speeds, precision, own_products).size() > 1) {
    speeds.f32_gflops = rate(isa, Arithmetic::f32);
    speeds.bf16dot_gflops = rate(isa, Arithmetic::bf16dot);
    speeds.f16chunk_gflops = rate(isa, Arithmetic::f16chunk);
  }
  return choose_arithmetic(speeds, precision, own_products);
}

}  // namespace lamina

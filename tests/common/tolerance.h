// The bound of an fp32 result, computed from the inputs: 2 * sqrt(K) * u * mag for the sums, `ulps` * u * mag for what
// is no sum, one rounding of the output, and the smallest normal number where results are flushed to zero. mag is the
// sum of absolute terms (kernels/ref/mag.h). A result without terms must be exact.
#pragma once

#include <cmath>

#include "base/half.h"
#include "kernels/ref/mag.h"

namespace lamina::testing {

constexpr double kUnitRoundoff = 0x1.0p-24;

inline double tolerance(const ref::Mag& exact, double terms, double ulps) {
  if (exact.mag == 0.0) return 0.0;
  return (2.0 * std::sqrt(terms) + ulps) * kUnitRoundoff * exact.mag + kUnitRoundoff * std::abs(exact.value) +
         0x1.0p-126;
}

// |got - exact| in units of the tolerance: above 1 is wrong. Infinities and NaN must be the same. An output stored in
// 16 bits may be what any number within the tolerance rounds to.
inline double excess(double got, const ref::Mag& exact, double terms, double ulps, Dtype stored = Dtype::f32) {
  if (std::isnan(exact.value)) return std::isnan(got) ? 0.0 : HUGE_VAL;
  if (got == exact.value) return 0.0;
  const double bound = tolerance(exact, terms, ulps);
  if (is_16_bit(stored)) {
    const double low = round_to(exact.value - bound, stored), high = round_to(exact.value + bound, stored);
    return got >= low && got <= high ? 0.0 : HUGE_VAL;
  }
  if (bound == 0.0 || std::isnan(got)) return HUGE_VAL;
  return std::abs(got - exact.value) / bound;
}

}  // namespace lamina::testing

// The bound of an fp32 result, computed from the inputs: 2 * sqrt(K) * u * mag for the sums, `ulps` * u * mag for what
// is no sum, one rounding of the output, and the smallest normal number where results are flushed to zero. mag is the
// sum of absolute terms (kernels/ref/mag.h). A result without terms must be exact.
#pragma once

#include <algorithm>
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
// `more` is allowed besides.
inline double excess(double got, const ref::Mag& exact, double terms, double ulps, Dtype stored = Dtype::f32,
                     double more = 0.0) {
  if (std::isnan(exact.value)) return std::isnan(got) ? 0.0 : HUGE_VAL;
  if (got == exact.value) return 0.0;
  const double bound = tolerance(exact, terms, ulps) + more;
  if (is_16_bit(stored)) {
    const double low = round_to(exact.value - bound, stored), high = round_to(exact.value + bound, stored);
    return got >= low && got <= high ? 0.0 : HUGE_VAL;
  }
  if (bound == 0.0 || std::isnan(got)) return HUGE_VAL;
  return std::abs(got - exact.value) / bound;
}

// What a sum may be off by besides, where one factor of each of its terms is rounded to bf16 before it is multiplied
// (arithmetic bf16dot: probabilities of attention and gradients of scores).
constexpr double kBf16Roundoff = 0x1.0p-8;
inline double rounded_factor_error(const ref::Mag& exact) { return kBf16Roundoff * exact.mag; }

// What sums of products in fp16 may be off by besides (arithmetic f16chunk), `chunk` of them at a time. `lost`: what
// scaling loses, where the largest magnitudes of both operands are scaled to 8 and more: operands below 2^-14 have the
// unit 2^-24, and so have sums.
constexpr double kHalfRoundoff = 0x1.0p-11;
inline double half_chunk_error(const ref::Mag& exact, double terms, double chunk) {
  return 2.0 * std::sqrt(std::min(terms, chunk)) * kHalfRoundoff * exact.mag;
}
inline double half_chunk_lost(double sum_a, double sum_b, double scale_a, double scale_b, double terms) {
  return 0x1.0p-25 * (sum_a / scale_b + sum_b / scale_a + terms / (scale_a * scale_b));
}

}  // namespace lamina::testing

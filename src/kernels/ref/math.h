// What the reference kernels need of a scalar besides + - * /: the same names for all four scalar types, access to the
// inputs and attributes of a call, and the keyed decision of dropout.
#pragma once

#include <cmath>
#include <complex>
#include <numbers>

#include "base/half.h"
#include "base/rng.h"
#include "kernels/ref/mag.h"
#include "kernels/ref/ref.h"

namespace lamina::ref {

using std::erf;
using std::exp;
using std::log;
using std::sqrt;
using std::tanh;

// First order in the imaginary part, which is all that a complex step of 1e-50 needs.
inline std::complex<double> erf(const std::complex<double>& x) {
  const double slope = 2.0 / std::sqrt(std::numbers::pi) * std::exp(-x.real() * x.real());
  return {std::erf(x.real()), x.imag() * slope};
}

// Comparisons look at the real part, so that a complex step takes the branch of the point it starts from.
inline double real_part(float x) { return x; }
inline double real_part(double x) { return x; }
inline double real_part(const std::complex<double>& x) { return x.real(); }
inline double real_part(const Mag& x) { return x.value; }

// A complex step goes through unrounded: it is a derivative.
inline std::complex<double> round_to(const std::complex<double>& x, Dtype dtype) {
  return {lamina::round_to(x.real(), dtype), x.imag()};
}
// Where the float evaluation may have come out on the other side of a tie, its result is a whole unit away.
inline Mag round_to(const Mag& x, Dtype dtype) {
  if (dtype == Dtype::f32) return x;
  constexpr double kSums = 0x1.0p-16;  // 256 units of roundoff: what sums of terms may be off by
  const double low = lamina::round_to(x.value - kSums * x.mag, dtype);
  const double high = lamina::round_to(x.value + kSums * x.mag, dtype);
  const double rounded = lamina::round_to(x.value, dtype);
  return {rounded, std::abs(rounded) + (high - low) * 0x1.0p24};
}
using lamina::round_to;

template <typename S>
void round_values(RefTensor<S>& t, Dtype dtype) {
  if (dtype == Dtype::f32) return;
  for (S& x : t.values) x = round_to(x, dtype);
}

template <typename A, typename S>
const A& attrs_of(const RefCall<S>& call) {
  return *static_cast<const A*>(call.attrs);
}

// Null where input i is absent.
template <typename S>
const RefTensor<S>* optional_input(const RefCall<S>& call, size_t i) {
  return i < call.in.size() ? call.in[i] : nullptr;
}

// Adds the optional input i to output o, element by element.
template <typename S>
void add_optional(const RefCall<S>& call, size_t i, size_t o) {
  const RefTensor<S>* acc = optional_input(call, i);
  if (acc == nullptr) return;
  for (size_t e = 0; e < acc->values.size(); ++e) call.out[o]->values[e] += acc->values[e];
}

// What one element is multiplied by: 0 where it is dropped, 1 / (1 - p) where it survives.
inline double dropout_factor(uint64_t key, int64_t element, double p) {
  if (p >= 1.0) return 0.0;
  const bool dropped = dropout_bits(key, static_cast<uint32_t>(element)) < dropout_threshold(p);
  return dropped ? 0.0 : 1.0 / (1.0 - p);
}

// rng = {seed, step}; sample[b] is the number of the sample in the whole run.
template <typename S>
uint64_t dropout_key_of(const RefTensor<S>& rng, const RefTensor<S>& sample, int64_t b, int64_t site) {
  return dropout_key(static_cast<uint64_t>(rng.ints[0]), static_cast<uint64_t>(rng.ints[1]),
                     static_cast<uint64_t>(sample.ints[static_cast<size_t>(b)]), static_cast<uint64_t>(site));
}

}  // namespace lamina::ref

// A number together with the sum of absolute terms behind it: `mag` is the expression that made `value`, evaluated on
// absolute values. Rounding errors of a float evaluation stay below a small multiple of u * mag, so tests compute their
// tolerances from it. Not an interval: it bounds no error by itself.
#pragma once

#include <cmath>
#include <numbers>

namespace lamina::ref {

struct Mag {
  double value = 0.0;
  double mag = 0.0;

  Mag() = default;
  explicit Mag(double v) : value(v), mag(std::abs(v)) {}
  Mag(double v, double m) : value(v), mag(m) {}

  Mag& operator+=(const Mag& b) {
    value += b.value;
    mag += b.mag;
    return *this;
  }
  Mag& operator-=(const Mag& b) {
    value -= b.value;
    mag += b.mag;
    return *this;
  }
  Mag& operator*=(const Mag& b) {
    value *= b.value;
    mag *= b.mag;
    return *this;
  }
  // |a/b| for the dividend's terms, and |d(a/b)/db| * mag(b) for the divisor's.
  Mag& operator/=(const Mag& b) {
    const double divisor = std::abs(b.value);
    mag = mag / divisor + std::abs(value) * b.mag / (divisor * divisor);
    value /= b.value;
    return *this;
  }
};

inline Mag operator+(Mag a, const Mag& b) { return a += b; }
inline Mag operator-(Mag a, const Mag& b) { return a -= b; }
inline Mag operator*(Mag a, const Mag& b) { return a *= b; }
inline Mag operator/(Mag a, const Mag& b) { return a /= b; }
inline Mag operator-(const Mag& a) { return {-a.value, a.mag}; }

// f(x): |f(x)| + |f'(x)| * mag(x).
inline Mag exp(const Mag& x) {
  const double y = std::exp(x.value);
  return {y, y == 0.0 ? 0.0 : y + y * x.mag};
}

inline Mag log(const Mag& x) {
  const double y = std::log(x.value);
  return {y, std::abs(y) + x.mag / std::abs(x.value)};
}

inline Mag tanh(const Mag& x) {
  const double y = std::tanh(x.value);
  return {y, std::abs(y) + (1.0 - y * y) * x.mag};
}

inline Mag erf(const Mag& x) {
  const double y = std::erf(x.value);
  return {y, std::abs(y) + 2.0 / std::sqrt(std::numbers::pi) * std::exp(-x.value * x.value) * x.mag};
}

inline Mag sqrt(const Mag& x) {
  const double y = std::sqrt(x.value);
  return {y, y == 0.0 ? std::sqrt(x.mag) : y + 0.5 * x.mag / y};
}

}  // namespace lamina::ref

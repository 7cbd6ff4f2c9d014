#include "base/rng.h"

#include <cmath>
#include <numbers>

namespace lamina {

uint64_t Rng::below(uint64_t bound) {
  const uint64_t reject_below = -bound % bound;  // 2^64 mod bound: rejecting it removes the bias
  uint64_t value = next();
  while (value < reject_below) value = next();
  return value % bound;
}

// Box–Muller, one value per pair of draws, so that the stream position stays simple.
double Rng::normal() {
  const double u = 1.0 - uniform();  // (0, 1]
  const double v = uniform();
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

}  // namespace lamina

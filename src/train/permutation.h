// A random order of n things as a function: no table, so that memory does not grow with the data. A Feistel network
// permutes the numbers of some even number of bits; those that are not below n are sent through it again, which leaves
// a permutation of those that are. Deterministic, not cryptographic.
#pragma once

#include <cstdint>

#include "base/rng.h"

namespace lamina {

class Permutation {
 public:
  // n > 0 and below 2^62.
  Permutation(uint64_t n, uint64_t key) : n_(n), key_(key) {
    while ((uint64_t{1} << (2 * half_)) < n) ++half_;
  }

  uint64_t operator()(uint64_t i) const {
    do i = permute(i);
    while (i >= n_);
    return i;
  }

 private:
  static constexpr uint64_t kRounds = 8;

  uint64_t permute(uint64_t i) const {
    const uint64_t mask = (uint64_t{1} << half_) - 1;
    uint64_t left = i >> half_, right = i & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const uint64_t mixed = left ^ (hash_combine(hash_combine(key_, round), right) & mask);
      left = right;
      right = mixed;
    }
    return (left << half_) | right;
  }

  uint64_t n_;
  uint64_t key_;
  int half_ = 4;  // bits; with fewer, small n would know only few orders
};

}  // namespace lamina

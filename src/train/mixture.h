// Which source each row of a run comes from, as a function: no table and no state, so that any row of any step can be
// asked for alone. A source with the share p of all weights gets, of the first k rows, p·k of them to within one for
// each source before it in the list: an even spread, whose phase depends on the seed.
//
//   shares 1/2, 1/4, 1/4      row     0 1 2 3 4 5 6 7
//                             source  0 1 0 2 0 1 0 2      (one of the phases)
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "base/rng.h"

namespace lamina {

class Mixture {
 public:
  // `weights` are positive; their sum is what they are shares of.
  Mixture(std::span<const double> weights, uint64_t seed) {
    std::vector<double> rest(weights.begin(), weights.end());  // of this source and those after it
    for (size_t s = rest.size(); s-- > 1;) rest[s - 1] += rest[s];
    for (size_t s = 0; s + 1 < weights.size(); ++s) {
      const double share = weights[s] / rest[s];
      shares_.push_back(std::clamp<uint64_t>(static_cast<uint64_t>(std::llround(share * kOne)), 1, kMost));
      phases_.push_back(hash_combine(mix64(seed), s) & kMost);
    }
  }

  struct Draw {
    size_t source;
    int64_t index;  // among the rows of this source: 0, 1, 2, …
  };

  // Each source in turn takes its share of the rows that those before it have left.
  Draw operator()(int64_t row) const {
    for (size_t s = 0; s < shares_.size(); ++s) {
      const int64_t taken = taken_of(s, row);
      if (taken_of(s, row + 1) > taken) return {s, taken};
      row -= taken;
    }
    return {shares_.size(), row};
  }

 private:
  static constexpr double kOne = 4294967296.0;
  static constexpr uint64_t kMost = UINT32_MAX;

  // floor(rows · share + phase) in units of 2^-32, without overflow for any number of rows.
  int64_t taken_of(size_t s, int64_t rows) const {
    const auto all = static_cast<uint64_t>(rows);
    return static_cast<int64_t>((all >> 32) * shares_[s] + (((all & kMost) * shares_[s] + phases_[s]) >> 32));
  }

  std::vector<uint64_t> shares_, phases_;  // of all sources but the last
};

}  // namespace lamina

// From logits to one id: temperature, top_k, top_p, and a draw that is keyed. It keeps no state between draws, so that
// a row's ids depend on its logits, its seed and its positions, never on the rows beside it or on their order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lamina {

// The filters act in this order: temperature, top_k, top_p (on what top_k left, its sum taken as 1).
struct SamplingOptions {
  double temperature = 1.0;  // 0: the best id, whatever the filters
  int64_t top_k = 0;         // the k best ids; 0: all; above the vocabulary: all
  double top_p = 1.0;        // the fewest of the best ids whose sum is at least top_p, at least one; 1: all
  bool operator==(const SamplingOptions&) const = default;
};

// Throws Error(usage) that names the option and its value.
void validate(const SamplingOptions& options);

class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options);  // throws as validate() does

  // `position` is that of the new id in its row. Equal logits: the lower id counts as better. Throws Error(invalid)
  // where the logits are no numbers.
  int32_t sample(std::span<const float> logits, uint64_t seed, uint64_t position);

 private:
  void keep_best(std::span<const float> logits);
  void keep_likely(std::span<const float> logits);
  int32_t draw(uint64_t seed, uint64_t position) const;

  SamplingOptions options_;
  std::vector<double> weights_;  // of all ids, not normalised; the best has 1
  std::vector<int32_t> kept_;    // ids, rising when a draw is made
};

// The id of the largest logit, the lowest of equals. Throws Error(invalid) for NaN, +inf, or nothing finite.
int32_t best_id(std::span<const float> logits);

// log softmax(logits)[id], in double.
double log_probability(std::span<const float> logits, int32_t id);

}  // namespace lamina

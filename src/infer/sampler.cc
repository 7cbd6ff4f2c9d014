#include "infer/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/rng.h"

namespace lamina {
namespace {

// Whether an id is worse than another.
auto worse(std::span<const float> logits) {
  return [logits](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x < y || (x == y && a > b);
  };
}

}  // namespace

void validate(const SamplingOptions& options) {
  if (!(options.temperature >= 0.0) || std::isinf(options.temperature))
    throw_error(ErrorCode::usage,
                "bad option: temperature, expected 0 (always the best id) or a positive number, got {}",
                options.temperature);
  if (options.top_k < 0)
    throw_error(ErrorCode::usage, "bad option: top_k, expected 0 (all ids) or a positive number, got {}",
                options.top_k);
  if (!(options.top_p >= 0.0 && options.top_p <= 1.0))
    throw_error(ErrorCode::usage, "bad option: top_p, expected a number from 0 to 1 (all ids), got {}", options.top_p);
}

int32_t best_id(std::span<const float> logits) {
  int32_t best = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const float x = logits[i];
    if (std::isnan(x) || x == HUGE_VALF)
      throw_error(ErrorCode::invalid, "the model's logits are not finite: id {}, expected a number, got {}", i, x);
    if (x > logits[static_cast<size_t>(best)]) best = static_cast<int32_t>(i);
  }
  if (logits.empty() || !std::isfinite(logits[static_cast<size_t>(best)]))
    throw_error(ErrorCode::invalid, "the model's logits are not finite: expected a number among {}, got none",
                logits.size());
  return best;
}

double log_probability(std::span<const float> logits, int32_t id) {
  const double top = logits[static_cast<size_t>(best_id(logits))];
  double sum = 0.0;
  for (float x : logits) sum += std::exp(static_cast<double>(x) - top);
  return static_cast<double>(logits[static_cast<size_t>(id)]) - top - std::log(sum);
}

Sampler::Sampler(const SamplingOptions& options) : options_(options) { validate(options_); }

void Sampler::keep_best(std::span<const float> logits) {
  if (options_.top_k == 0 || options_.top_k >= static_cast<int64_t>(kept_.size())) return;
  const auto end = kept_.begin() + options_.top_k;
  std::nth_element(kept_.begin(), end, kept_.end(), [&](int32_t a, int32_t b) { return worse(logits)(b, a); });
  kept_.erase(end, kept_.end());
}

// A heap gives up the best ids one by one: the cost is that of the few that are kept, not of sorting a vocabulary.
void Sampler::keep_likely(std::span<const float> logits) {
  if (options_.top_p == 1.0) return;
  double total = 0.0;
  for (int32_t id : kept_) total += weights_[static_cast<size_t>(id)];
  std::make_heap(kept_.begin(), kept_.end(), worse(logits));
  auto heap_end = kept_.end();
  double sum = 0.0;
  do {
    std::pop_heap(kept_.begin(), heap_end, worse(logits));
    --heap_end;
    sum += weights_[static_cast<size_t>(*heap_end)];
  } while (sum < options_.top_p * total && heap_end != kept_.begin());
  kept_.erase(kept_.begin(), heap_end);
}

int32_t Sampler::draw(uint64_t seed, uint64_t position) const {
  double total = 0.0;
  for (int32_t id : kept_) total += weights_[static_cast<size_t>(id)];
  const double target = static_cast<double>(hash_combine(mix64(seed), position) >> 11) * 0x1.0p-53 * total;
  double sum = 0.0;
  int32_t chosen = kept_.front();
  for (int32_t id : kept_) {
    const double weight = weights_[static_cast<size_t>(id)];
    if (weight == 0.0) continue;
    chosen = id;
    sum += weight;
    if (sum > target) break;
  }
  return chosen;
}

int32_t Sampler::sample(std::span<const float> logits, uint64_t seed, uint64_t position) {
  const int32_t best = best_id(logits);
  if (options_.temperature == 0.0) return best;
  const double top = logits[static_cast<size_t>(best)];
  weights_.resize(logits.size());
  kept_.resize(logits.size());
  // The difference first: it is 0 for the best, so that no temperature makes a NaN.
  for (size_t i = 0; i < logits.size(); ++i)
    weights_[i] = std::exp((static_cast<double>(logits[i]) - top) / options_.temperature);
  std::iota(kept_.begin(), kept_.end(), 0);
  keep_best(logits);
  keep_likely(logits);
  std::sort(kept_.begin(), kept_.end());
  return draw(seed, position);
}

}  // namespace lamina

// One row of logits: its log-sum-exp and its gradient. The row is read from memory once: it goes by in chunks that stay
// in the first-level cache, with a running maximum to which the sum of exponentials so far is rescaled.
#pragma once

#include "kernels/cpu/args.h"

namespace lamina::LAMINA_ISA_NAMESPACE {

constexpr int64_t kLogitsChunk = 2048;

LAMINA_INLINE float max_lanes(const float* x, int64_t n) {
  Vec top[2] = {broadcast(-__builtin_inff()), broadcast(-__builtin_inff())};
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    top[0] = max(top[0], load(x + i));
    top[1] = max(top[1], load(x + i + kLanes));
  }
  for (; i + kLanes <= n; i += kLanes) top[0] = max(top[0], load(x + i));
  if (i < n) top[1] = max(top[1], select(first_lanes(n - i), load_n(x + i, n - i), top[1]));
  return horizontal_max(max(top[0], top[1]));
}

// log(sum(e^x)) of V values. A chunk of -inf only adds nothing; NaN or +inf gives NaN.
LAMINA_INLINE float log_sum_exp(const float* x, int64_t V) {
  float top = -__builtin_inff();
  double sum = 0.0;
  for (int64_t first = 0; first < V; first += kLogitsChunk) {
    const float* chunk = x + first;
    const int64_t n = smaller(kLogitsChunk, V - first);
    const float here = max_lanes(chunk, n);
    if (here == -__builtin_inff()) continue;
    if (here > top) {
      sum *= __builtin_exp(static_cast<double>(top) - static_cast<double>(here));
      top = here;
    }
    const Vec shift = broadcast(top);
    sum += static_cast<double>(
        sum_lanes(n, [=](int64_t i, auto lanes) { return lanes.keep(exp(sub(lanes.load(chunk + i), shift))); }));
  }
  return static_cast<float>(static_cast<double>(top) + __builtin_log(sum));
}

// (softmax - onehot) * dloss; may lie on the logits.
LAMINA_INLINE void backward_row(const float* row, int64_t target, float lse, float dloss, float* dlogits, int64_t V) {
  const Vec shift = broadcast(lse);
  const Vec scale = broadcast(dloss);
  const float at_target = row[target];
  for_lanes(0, V,
            [=](int64_t v, auto lanes) { lanes.store(dlogits + v, mul(exp(sub(lanes.load(row + v), shift)), scale)); });
  float p[kLanes];
  store(p, exp(sub(broadcast(at_target), shift)));
  dlogits[target] = (p[0] - 1.0f) * dloss;
}

// What cross_entropy gives of a row: the loss and the lse.
LAMINA_INLINE FloatPair row_loss(const float* row, int32_t target, int64_t V) {
  if (target < 0) return {0.0f, 0.0f};
  const float lse = log_sum_exp(row, V);
  return {lse - row[target], lse};
}

LAMINA_INLINE void row_gradient(const float* row, int32_t target, float lse, float dloss, float* dlogits, int64_t V) {
  if (target >= 0) return backward_row(row, target, lse, dloss, dlogits, V);
  for_lanes(0, V, [=](int64_t v, auto lanes) { lanes.store(dlogits + v, zero()); });
}

}  // namespace lamina::LAMINA_ISA_NAMESPACE

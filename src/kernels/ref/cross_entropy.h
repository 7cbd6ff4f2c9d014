// cross_entropy and its backward. A target below 0 is not predicted: its loss, its lse and its row of the gradient are
// exactly 0, whatever the logits are.
#pragma once

#include "kernels/ref/math.h"

namespace lamina::ref {

// log(sum(exp(x))) of n values, n > 0.
template <typename S>
S log_sum_exp(const S* x, int64_t n) {
  S top = x[0];
  for (int64_t i = 1; i < n; ++i)
    if (real_part(x[i]) > real_part(top)) top = x[i];
  S sum = S(0.0);
  for (int64_t i = 0; i < n; ++i) sum += exp(x[i] - top);
  return top + log(sum);
}

template <typename S>
void cross_entropy(const RefCall<S>& call) {
  const RefTensor<S>& logits = *call.in[0];
  const RefTensor<S>& targets = *call.in[1];
  const int64_t V = logits.shape.last();
  for (size_t r = 0; r < targets.ints.size(); ++r) {
    const bool ignored = targets.ints[r] < 0;
    const S* row = logits.values.data() + static_cast<int64_t>(r) * V;
    const S lse = ignored ? S(0.0) : log_sum_exp(row, V);
    call.out[0]->values[r] = ignored ? S(0.0) : lse - row[targets.ints[r]];
    call.out[1]->values[r] = lse;
  }
}

template <typename S>
void cross_entropy_bwd(const RefCall<S>& call) {
  const RefTensor<S>& logits = *call.in[0];
  const RefTensor<S>& targets = *call.in[1];
  const int64_t V = logits.shape.last();
  for (size_t r = 0; r < targets.ints.size(); ++r) {
    S* dlogits = call.out[0]->values.data() + static_cast<int64_t>(r) * V;
    for (int64_t v = 0; v < V; ++v) {
      if (targets.ints[r] < 0) {
        dlogits[v] = S(0.0);
        continue;
      }
      S p = exp(logits.values[r * static_cast<size_t>(V) + static_cast<size_t>(v)] - call.in[2]->values[r]);
      if (v == targets.ints[r]) p -= S(1.0);
      dlogits[v] = p * call.in[3]->values[r];
    }
  }
}

}  // namespace lamina::ref

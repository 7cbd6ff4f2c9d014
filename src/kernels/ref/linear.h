// linear and its three backward ops, as the plain triple loop: each sum in the order of its terms, the loops in the
// order of memory, so that whole models can be checked.
#pragma once

#include "kernels/ref/math.h"

namespace lamina::ref {

template <typename S>
void add_scaled(const S& factor, const S* x, int64_t n, S* y) {
  for (int64_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

template <typename S>
void linear(const RefCall<S>& call) {
  const RefTensor<S>& x = *call.in[0];
  const RefTensor<S>& weight = *call.in[1];
  const RefTensor<S>* bias = optional_input(call, 2);
  const int64_t K = weight.shape[0];
  const int64_t N = weight.shape[1];
  for (int64_t m = 0; m < x.shape.rows(); ++m) {
    S* y = call.out[0]->values.data() + m * N;
    for (int64_t k = 0; k < K; ++k)
      add_scaled(x.values[static_cast<size_t>(m * K + k)], weight.values.data() + k * N, N, y);
    for (int64_t n = 0; bias != nullptr && n < N; ++n) y[n] += bias->values[static_cast<size_t>(n)];
  }
  add_optional(call, 3, 0);
}

template <typename S>
void linear_bwd_input(const RefCall<S>& call) {
  const RefTensor<S>& dy = *call.in[0];
  const RefTensor<S>& weight = *call.in[1];
  const int64_t K = weight.shape[0];
  const int64_t N = weight.shape[1];
  for (int64_t m = 0; m < dy.shape.rows(); ++m)
    for (int64_t k = 0; k < K; ++k) {
      S sum = S(0.0);
      for (int64_t n = 0; n < N; ++n)
        sum += dy.values[static_cast<size_t>(m * N + n)] * weight.values[static_cast<size_t>(k * N + n)];
      call.out[0]->values[static_cast<size_t>(m * K + k)] = sum;
    }
  add_optional(call, 2, 0);
}

template <typename S>
void linear_bwd_weight(const RefCall<S>& call) {
  const RefTensor<S>& x = *call.in[0];
  const RefTensor<S>& dy = *call.in[1];
  const int64_t K = x.shape.last();
  const int64_t N = dy.shape.last();
  for (int64_t k = 0; k < K; ++k)
    for (int64_t m = 0; m < x.shape.rows(); ++m)
      add_scaled(x.values[static_cast<size_t>(m * K + k)], dy.values.data() + m * N, N,
                 call.out[0]->values.data() + k * N);
  add_optional(call, 2, 0);
}

template <typename S>
void linear_bwd_bias(const RefCall<S>& call) {
  const RefTensor<S>& dy = *call.in[0];
  const int64_t N = dy.shape.last();
  for (int64_t m = 0; m < dy.shape.rows(); ++m)
    for (int64_t n = 0; n < N; ++n)
      call.out[0]->values[static_cast<size_t>(n)] += dy.values[static_cast<size_t>(m * N + n)];
  add_optional(call, 1, 0);
}

}  // namespace lamina::ref

// linear and its three backward ops, as the plain triple loop.
#pragma once

#include "kernels/ref/math.h"

namespace lamina::ref {

template <typename S>
void linear(const RefCall<S>& call) {
  const RefTensor<S>& x = *call.in[0];
  const RefTensor<S>& weight = *call.in[1];
  const RefTensor<S>* bias = optional_input(call, 2);
  const int64_t K = weight.shape[0];
  const int64_t N = weight.shape[1];
  for (int64_t m = 0; m < x.shape.rows(); ++m)
    for (int64_t n = 0; n < N; ++n) {
      S sum = S(0.0);
      for (int64_t k = 0; k < K; ++k)
        sum += x.values[static_cast<size_t>(m * K + k)] * weight.values[static_cast<size_t>(k * N + n)];
      if (bias != nullptr) sum += bias->values[static_cast<size_t>(n)];
      call.out[0]->values[static_cast<size_t>(m * N + n)] = sum;
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
    for (int64_t n = 0; n < N; ++n) {
      S sum = S(0.0);
      for (int64_t m = 0; m < x.shape.rows(); ++m)
        sum += x.values[static_cast<size_t>(m * K + k)] * dy.values[static_cast<size_t>(m * N + n)];
      call.out[0]->values[static_cast<size_t>(k * N + n)] = sum;
    }
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

// gelu and gelu_bwd in both forms.
#pragma once

#include "kernels/ref/math.h"

namespace lamina::ref {

constexpr double kGeluCubic = 0.044715;
inline const double kGeluScale = std::sqrt(2.0 / std::numbers::pi);

template <typename S>
S gelu_tanh(const S& x) {
  const S u = S(kGeluScale) * (x + S(kGeluCubic) * x * x * x);
  return S(0.5) * x * (S(1.0) + tanh(u));
}

template <typename S>
S gelu_exact(const S& x) {
  return S(0.5) * x * (S(1.0) + erf(x / S(std::numbers::sqrt2)));
}

template <typename S>
S gelu_tanh_slope(const S& x) {
  const S t = tanh(S(kGeluScale) * (x + S(kGeluCubic) * x * x * x));
  const S du = S(kGeluScale) * (S(1.0) + S(3.0 * kGeluCubic) * x * x);
  return S(0.5) * (S(1.0) + t) + S(0.5) * x * (S(1.0) - t * t) * du;
}

template <typename S>
S gelu_exact_slope(const S& x) {
  const S density = exp(S(-0.5) * x * x) / S(std::sqrt(2.0 * std::numbers::pi));
  return S(0.5) * (S(1.0) + erf(x / S(std::numbers::sqrt2))) + x * density;
}

template <typename S>
void gelu(const RefCall<S>& call) {
  const bool tanh_form = attrs_of<GeluAttrs>(call).tanh;
  for (size_t i = 0; i < call.out[0]->values.size(); ++i) {
    const S& x = call.in[0]->values[i];
    call.out[0]->values[i] = tanh_form ? gelu_tanh(x) : gelu_exact(x);
  }
}

template <typename S>
void gelu_bwd(const RefCall<S>& call) {
  const bool tanh_form = attrs_of<GeluAttrs>(call).tanh;
  for (size_t i = 0; i < call.out[0]->values.size(); ++i) {
    const S& dy = call.in[0]->values[i];
    const S& x = call.in[1]->values[i];
    call.out[0]->values[i] = dy * (tanh_form ? gelu_tanh_slope(x) : gelu_exact_slope(x));
  }
}

}  // namespace lamina::ref

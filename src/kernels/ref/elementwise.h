// cast, add, mul, scale, dropout, expand, zero: every output element looks at one element of each input.
#pragma once

#include "kernels/ref/math.h"

namespace lamina::ref {

// Rounded like the inputs of every op: by the caller.
template <typename S>
void cast(const RefCall<S>& call) {
  call.out[0]->values = call.in[0]->values;
}

template <typename S>
void add(const RefCall<S>& call) {
  for (size_t i = 0; i < call.out[0]->values.size(); ++i)
    call.out[0]->values[i] = call.in[0]->values[i] + call.in[1]->values[i];
}

template <typename S>
void mul(const RefCall<S>& call) {
  for (size_t i = 0; i < call.out[0]->values.size(); ++i)
    call.out[0]->values[i] = call.in[0]->values[i] * call.in[1]->values[i];
}

template <typename S>
void scale(const RefCall<S>& call) {
  const S factor = S(attrs_of<ScaleAttrs>(call).factor);
  for (size_t i = 0; i < call.out[0]->values.size(); ++i) call.out[0]->values[i] = factor * call.in[0]->values[i];
}

// Element t*C + c of sample b. A dropped element is 0 whatever stood there, NaN included.
template <typename S>
void dropout(const RefCall<S>& call) {
  const auto& a = attrs_of<DropoutAttrs>(call);
  const RefTensor<S>& x = *call.in[0];
  if (!a.training) {
    call.out[0]->values = x.values;
    return;
  }
  const int64_t B = x.shape[0];
  const int64_t TC = x.shape[1] * x.shape[2];
  for (int64_t b = 0; b < B; ++b) {
    const uint64_t key = dropout_key_of(*call.in[1], *call.in[2], b, a.site);
    for (int64_t e = 0; e < TC; ++e) {
      const size_t i = static_cast<size_t>(b * TC + e);
      const double factor = dropout_factor(key, e, a.p);
      call.out[0]->values[i] = factor == 0.0 ? S(0.0) : S(factor) * x.values[i];
    }
  }
}

template <typename S>
void expand(const RefCall<S>& call) {
  const S value = call.in[0]->values[0] * call.in[1]->values[0];
  for (S& y : call.out[0]->values) y = value;
}

template <typename S>
void zero(const RefCall<S>& call) {
  for (S& y : call.out[0]->values) y = S(0.0);
}

}  // namespace lamina::ref

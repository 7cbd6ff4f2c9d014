// layernorm and its two backward ops. mean and rstd are outputs so that backward need not recompute them; they carry no
// gradient of their own.
#pragma once

#include "kernels/ref/math.h"

namespace lamina::ref {

template <typename S>
void layernorm(const RefCall<S>& call) {
  const RefTensor<S>& x = *call.in[0];
  const S* weight = call.in[1]->values.data();
  const S* bias = call.in[2]->values.data();
  const int64_t C = x.shape.last();
  const S eps = S(attrs_of<LayerNormAttrs>(call).eps);
  for (int64_t r = 0; r < x.shape.rows(); ++r) {
    const S* row = x.values.data() + r * C;
    S* y = call.out[0]->values.data() + r * C;
    S mean = S(0.0);
    for (int64_t c = 0; c < C; ++c) mean += row[c];
    mean /= S(static_cast<double>(C));
    S variance = S(0.0);
    for (int64_t c = 0; c < C; ++c) variance += (row[c] - mean) * (row[c] - mean);
    variance /= S(static_cast<double>(C));
    const S rstd = S(1.0) / sqrt(variance + eps);
    for (int64_t c = 0; c < C; ++c) y[c] = (row[c] - mean) * rstd * weight[c] + bias[c];
    call.out[1]->values[static_cast<size_t>(r)] = mean;
    call.out[2]->values[static_cast<size_t>(r)] = rstd;
  }
}

// dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), g = dy * weight.
template <typename S>
void layernorm_bwd_input(const RefCall<S>& call) {
  const RefTensor<S>& x = *call.in[1];
  const S* weight = call.in[2]->values.data();
  const int64_t C = x.shape.last();
  const S count = S(static_cast<double>(C));
  for (int64_t r = 0; r < x.shape.rows(); ++r) {
    const S* dy = call.in[0]->values.data() + r * C;
    const S* row = x.values.data() + r * C;
    S* dx = call.out[0]->values.data() + r * C;
    const S mean = call.in[3]->values[static_cast<size_t>(r)];
    const S rstd = call.in[4]->values[static_cast<size_t>(r)];
    S sum_g = S(0.0);
    S sum_gx = S(0.0);
    for (int64_t c = 0; c < C; ++c) {
      const S g = dy[c] * weight[c];
      sum_g += g;
      sum_gx += g * ((row[c] - mean) * rstd);
    }
    for (int64_t c = 0; c < C; ++c) {
      const S xhat = (row[c] - mean) * rstd;
      dx[c] = rstd * (dy[c] * weight[c] - sum_g / count - xhat * sum_gx / count);
    }
  }
  add_optional(call, 5, 0);
}

template <typename S>
void layernorm_bwd_params(const RefCall<S>& call) {
  const RefTensor<S>& x = *call.in[1];
  const int64_t C = x.shape.last();
  S* dweight = call.out[0]->values.data();
  S* dbias = call.out[1]->values.data();
  for (int64_t r = 0; r < x.shape.rows(); ++r) {
    const S* dy = call.in[0]->values.data() + r * C;
    const S* row = x.values.data() + r * C;
    const S mean = call.in[2]->values[static_cast<size_t>(r)];
    const S rstd = call.in[3]->values[static_cast<size_t>(r)];
    for (int64_t c = 0; c < C; ++c) {
      dweight[c] += dy[c] * ((row[c] - mean) * rstd);
      dbias[c] += dy[c];
    }
  }
  add_optional(call, 4, 0);
  add_optional(call, 5, 1);
}

}  // namespace lamina::ref

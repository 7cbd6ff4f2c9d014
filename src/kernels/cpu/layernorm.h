// One row of layernorm. The mean of the first pass is corrected by the mean of what it leaves, and the variance is that
// of the remainder, so that a mean far above the deviation costs no digits.
#pragma once

#include "kernels/cpu/args.h"

namespace lamina::LAMINA_ISA_NAMESPACE {

struct LayerNormRow {
  float mean, rstd;
};

LAMINA_INLINE LayerNormRow normalize(const float* x, const float* weight, const float* bias, float* y, int64_t C,
                                     float eps) {
  const float count = static_cast<float>(C);
  const float rough = sum_lanes(C, [=](int64_t c, auto lanes) { return lanes.load(x + c); }) / count;
  const Vec center = broadcast(rough);
  const FloatPair rest = sum_pairs(C, [=](int64_t c, auto lanes) {
    const Vec d = lanes.keep(sub(lanes.load(x + c), center));
    return VecPair{d, mul(d, d)};
  });
  const float shift = rest.a / count;
  const float variance = rest.b / count - shift * shift;
  const float rstd = 1.0f / __builtin_sqrtf((variance < 0.0f ? 0.0f : variance) + eps);
  const Vec remainder = broadcast(shift);
  const Vec scale = broadcast(rstd);
  for_lanes(0, C, [=](int64_t c, auto lanes) {
    const Vec xhat = mul(sub(sub(lanes.load(x + c), center), remainder), scale);
    lanes.store(y + c, fma(xhat, lanes.load(weight + c), lanes.load(bias + c)));
  });
  return {rough + shift, rstd};
}

}  // namespace lamina::LAMINA_ISA_NAMESPACE

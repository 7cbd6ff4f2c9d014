// The two forms of GELU and their slopes, lane by lane. The tanh form is computed as x * s with s = 1 / (1 + e^-2u),
// which is the same number and keeps relative accuracy where x is negative.
#pragma once

#include "kernels/cpu/args.h"

namespace lamina::LAMINA_ISA_NAMESPACE {

// -2u = x * (kGeluLinear + kGeluCubic * x^2), u = sqrt(2/pi) * (x + 0.044715 x^3).
constexpr float kGeluLinear = -1.5957691216057308f;
constexpr float kGeluCubic = -0.07135481282553166f;

LAMINA_INLINE Vec gelu_tanh(Vec x) {
  const Vec e = exp(mul(x, fma(mul(x, x), broadcast(kGeluCubic), broadcast(kGeluLinear))));
  return div(x, add(broadcast(1.0f), e));
}

LAMINA_INLINE Vec gelu_exact(Vec x) {
  const Vec half = mul(x, broadcast(0.5f));
  return fma(half, erf(mul(x, broadcast(0.70710678118654752f))), half);
}

// s + x * s * (1 - s) * 2u'. From |x| = 10 on the slope is 0 or 1 in fp32; beyond, powers of x would overflow.
LAMINA_INLINE Vec gelu_tanh_slope(Vec x) {
  x = at_most(at_least(x, -10.0f), 10.0f);
  const Vec square = mul(x, x);
  const Vec e = exp(mul(x, fma(square, broadcast(kGeluCubic), broadcast(kGeluLinear))));
  const Vec s = div(broadcast(1.0f), add(broadcast(1.0f), e));
  const Vec du = fma(square, broadcast(-3.0f * kGeluCubic), broadcast(-kGeluLinear));
  return fma(mul(mul(s, s), e), mul(x, du), s);
}

LAMINA_INLINE Vec gelu_exact_slope(Vec x) {
  x = at_most(at_least(x, -15.0f), 15.0f);
  const Vec half = broadcast(0.5f);
  const Vec below = fma(half, erf(mul(x, broadcast(0.70710678118654752f))), half);
  const Vec density = mul(exp(mul(mul(x, x), broadcast(-0.5f))), broadcast(0.39894228040143268f));
  return fma(x, density, below);
}

// y = gelu(x) of n elements.
LAMINA_INLINE void gelu_row(const float* x, bool tanh, float* y, int64_t n) {
  if (tanh)
    for_lanes(0, n, [=](int64_t i, auto lanes) { lanes.store(y + i, gelu_tanh(lanes.load(x + i))); });
  else
    for_lanes(0, n, [=](int64_t i, auto lanes) { lanes.store(y + i, gelu_exact(lanes.load(x + i))); });
}

// dx = dy * gelu'(x); dx may be dy.
LAMINA_INLINE void gelu_slope_row(const float* dy, const float* x, bool tanh, float* dx, int64_t n) {
  if (tanh) {
    for_lanes(0, n, [=](int64_t i, auto lanes) {
      lanes.store(dx + i, mul(lanes.load(dy + i), gelu_tanh_slope(lanes.load(x + i))));
    });
  } else {
    for_lanes(0, n, [=](int64_t i, auto lanes) {
      lanes.store(dx + i, mul(lanes.load(dy + i), gelu_exact_slope(lanes.load(x + i))));
    });
  }
}

}  // namespace lamina::LAMINA_ISA_NAMESPACE

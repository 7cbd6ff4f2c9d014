// gelu and gelu_bwd. The tanh form is computed as x * s with s = 1 / (1 + e^-2u), which is the same number and keeps
// relative accuracy where x is negative.
#include "kernels/cpu/args.h"

namespace lamina::LAMINA_ISA_NAMESPACE {
namespace {

// -2u = x * (kLinear + kCubic * x^2), u = sqrt(2/pi) * (x + 0.044715 x^3).
constexpr float kLinear = -1.5957691216057308f;
constexpr float kCubic = -0.07135481282553166f;

LAMINA_INLINE Vec gelu_tanh(Vec x) {
  const Vec e = exp(mul(x, fma(mul(x, x), broadcast(kCubic), broadcast(kLinear))));
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
  const Vec e = exp(mul(x, fma(square, broadcast(kCubic), broadcast(kLinear))));
  const Vec s = div(broadcast(1.0f), add(broadcast(1.0f), e));
  const Vec du = fma(square, broadcast(-3.0f * kCubic), broadcast(-kLinear));
  return fma(mul(mul(s, s), e), mul(x, du), s);
}

LAMINA_INLINE Vec gelu_exact_slope(Vec x) {
  x = at_most(at_least(x, -15.0f), 15.0f);
  const Vec half = broadcast(0.5f);
  const Vec below = fma(half, erf(mul(x, broadcast(0.70710678118654752f))), half);
  const Vec density = mul(exp(mul(mul(x, x), broadcast(-0.5f))), broadcast(0.39894228040143268f));
  return fma(x, density, below);
}

LAMINA_FLATTEN void run_gelu(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  const float* x = input(args, 0);
  float* y = output(args, 0);
  const int64_t last = smaller(end * kTaskElements, storage_count(args.out[0]));
  if (attrs_of<GeluAttrs>(args).tanh) {
    for_lanes(begin * kTaskElements, last,
              [=](int64_t i, auto lanes) { lanes.store(y + i, gelu_tanh(lanes.load(x + i))); });
  } else {
    for_lanes(begin * kTaskElements, last,
              [=](int64_t i, auto lanes) { lanes.store(y + i, gelu_exact(lanes.load(x + i))); });
  }
}

LAMINA_FLATTEN void run_gelu_bwd(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  const float* dy = input(args, 0);
  const float* x = input(args, 1);
  float* dx = output(args, 0);
  const int64_t last = smaller(end * kTaskElements, storage_count(args.out[0]));
  if (attrs_of<GeluAttrs>(args).tanh) {
    for_lanes(begin * kTaskElements, last, [=](int64_t i, auto lanes) {
      lanes.store(dx + i, mul(lanes.load(dy + i), gelu_tanh_slope(lanes.load(x + i))));
    });
  } else {
    for_lanes(begin * kTaskElements, last, [=](int64_t i, auto lanes) {
      lanes.store(dx + i, mul(lanes.load(dy + i), gelu_exact_slope(lanes.load(x + i))));
    });
  }
}

}  // namespace

LAMINA_KERNEL_F32(gelu, element_tasks);
LAMINA_KERNEL_F32(gelu_bwd, element_tasks);

}  // namespace lamina::LAMINA_ISA_NAMESPACE

// One step of AdamW on a vector of elements, for the kernels that update weights: equal bits wherever it runs.
#pragma once

#include "kernels/cpu/args.h"

namespace lamina::LAMINA_ISA_NAMESPACE {

struct AdamWFactors {
  Vec grad, decay, beta1, rest1, beta2, rest2, root, eps, step;
};

LAMINA_INLINE AdamWFactors adamw_factors(const AdamWAttrs& a, const float* hyper, float factor) {
  return {broadcast(factor),
          broadcast(static_cast<float>(static_cast<double>(hyper[0]) * a.weight_decay)),
          broadcast(static_cast<float>(a.beta1)),
          broadcast(static_cast<float>(1.0 - a.beta1)),
          broadcast(static_cast<float>(a.beta2)),
          broadcast(static_cast<float>(1.0 - a.beta2)),
          broadcast(1.0f / hyper[2]),
          broadcast(static_cast<float>(a.eps)),
          broadcast(hyper[1])};
}

struct AdamWState {
  Vec param, m, v;
};

// An element whose m is 0 moves by its decay only, so the padding of panels stays zero whatever eps is.
LAMINA_INLINE AdamWState adamw_step(const AdamWFactors& f, AdamWState s, Vec grad) {
  grad = mul(grad, f.grad);
  s.param = fnma(f.decay, s.param, s.param);
  s.m = fma(f.rest1, grad, mul(f.beta1, s.m));
  s.v = fma(mul(f.rest2, grad), grad, mul(f.beta2, s.v));
  const Vec move = div(mul(f.step, s.m), fma(sqrt(s.v), f.root, f.eps));
  s.param = select(equal(s.m, zero()), s.param, sub(s.param, move));
  return s;
}

}  // namespace lamina::LAMINA_ISA_NAMESPACE

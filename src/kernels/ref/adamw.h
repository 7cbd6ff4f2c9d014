// adamw: one step of AdamW, decay first and decoupled.
#pragma once

#include "kernels/ref/math.h"

namespace lamina::ref {

// hyper = {lr, lr / (1 - beta1^t), sqrt(1 - beta2^t)}. Where m is 0 only the decay moves an element, also with eps = 0.
template <typename S>
void adamw(const RefCall<S>& call) {
  const auto& a = attrs_of<AdamWAttrs>(call);
  const S lr = call.in[4]->values[0];
  const S step_size = call.in[4]->values[1];
  const S root_correction = call.in[4]->values[2];
  const RefTensor<S>* given = optional_input(call, 5);
  const S factor = given == nullptr ? S(1.0) : given->values[0];
  const bool skip = !std::isfinite(real_part(factor));
  for (size_t i = 0; i < call.out[0]->values.size(); ++i) {
    S param = call.in[0]->values[i];
    S m = call.in[1]->values[i];
    S v = call.in[2]->values[i];
    if (!skip) {
      const S grad = call.in[3]->values[i] * factor;
      param -= lr * S(a.weight_decay) * param;
      m = S(a.beta1) * m + S(1.0 - a.beta1) * grad;
      v = S(a.beta2) * v + S(1.0 - a.beta2) * grad * grad;
      if (real_part(m) != 0.0) param -= step_size * m / (sqrt(v) / root_correction + S(a.eps));
    }
    call.out[0]->values[i] = param;
    call.out[1]->values[i] = m;
    call.out[2]->values[i] = v;
  }
}

}  // namespace lamina::ref

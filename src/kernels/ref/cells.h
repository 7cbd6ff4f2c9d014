// Parts of layer cells: each is the composition that it replaced, call by call.
#pragma once

#include "kernels/ref/adamw.h"
#include "kernels/ref/cross_entropy.h"
#include "kernels/ref/elementwise.h"
#include "kernels/ref/embedding.h"
#include "kernels/ref/gelu.h"
#include "kernels/ref/layernorm.h"
#include "kernels/ref/linear.h"

namespace lamina::ref {

template <typename S>
RefTensor<S> zeros(const Shape& shape) {
  return {shape, std::vector<S>(static_cast<size_t>(shape.elements()), S(0.0)), {}};
}

inline Shape product_shape(const Shape& x, int64_t last) {
  Shape shape = x;
  shape[shape.rank - 1] = last;
  return shape;
}

template <typename S>
void embedding_sum(const RefCall<S>& call) {
  RefTensor<S> sum = *call.out[0], position = *call.out[0];
  embedding<S>({{call.in[0], call.in[1]}, {&sum}, nullptr});
  embedding<S>({{call.in[2], call.in[3]}, {&position}, nullptr});
  for (size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += position.values[i];
  dropout<S>({{&sum, optional_input(call, 4), optional_input(call, 5)}, {call.out[0]}, call.attrs});
}

// x, or layernorm(x) where its weight is given, its statistics into the outputs `mean` and mean + 1.
template <typename S>
RefTensor<S> normalized(const RefCall<S>& call, size_t mean, double eps) {
  RefTensor<S> h = *call.in[0];
  if (call.in[1] == nullptr) return h;
  const LayerNormAttrs attrs{eps};
  layernorm<S>({{call.in[0], call.in[1], call.in[2]}, {&h, call.out[mean], call.out[mean + 1]}, &attrs});
  round_values(h, call.precision);
  return h;
}

template <typename S>
void linear_qkv(const RefCall<S>& call) {
  const RefTensor<S> h = normalized(call, 3, attrs_of<LayerNormAttrs>(call).eps);
  for (size_t i = 0; i < 3; ++i) linear<S>({{&h, call.in[3 + 2 * i], call.in[4 + 2 * i]}, {call.out[i]}, nullptr});
}

template <typename S>
void linear_gelu(const RefCall<S>& call) {
  const auto& a = attrs_of<LinearGeluAttrs>(call);
  const RefTensor<S> h = normalized(call, 2, a.eps);
  RefTensor<S> pre = zeros<S>(call.out[0]->shape);
  linear<S>({{&h, call.in[3], call.in[4]}, {&pre}, nullptr});
  round_values(pre, call.precision);
  const GeluAttrs form{a.tanh};
  gelu<S>({{&pre}, {call.out[0]}, &form});
  if (a.keep) call.out[1]->values = pre.values;
}

template <typename S>
void linear_dropout(const RefCall<S>& call) {
  RefTensor<S> product = zeros<S>(call.out[0]->shape);
  linear<S>({{call.in[0], call.in[1], call.in[2]}, {&product}, nullptr});
  dropout<S>({{&product, call.in[4], call.in[5]}, {call.out[0]}, call.attrs});
  add_optional(call, 3, 0);
}

template <typename S>
void layernorm_bwd(const RefCall<S>& call) {
  const RefTensor<S>* const* in = call.in.data();
  layernorm_bwd_input<S>({{in[0], in[1], in[2], in[3], in[4], optional_input(call, 5)}, {call.out[0]}, nullptr});
  layernorm_bwd_params<S>({{in[0], in[1], in[3], in[4], optional_input(call, 6), optional_input(call, 7)},
                           {call.out[1], call.out[2]},
                           nullptr});
}

template <typename S>
void linear_bwd_gelu(const RefCall<S>& call) {
  RefTensor<S> dy = zeros<S>(call.out[0]->shape);
  linear_bwd_input<S>({{call.in[0], call.in[1]}, {&dy}, nullptr});
  gelu_bwd<S>({{&dy, call.in[2]}, {call.out[0]}, call.attrs});
}

// W and bias of dy in input 1 + i, accumulators in `acc` and acc + 1.
template <typename S>
void params(const RefCall<S>& call, size_t i, size_t acc) {
  linear_bwd_weight<S>({{call.in[0], call.in[1 + i], optional_input(call, acc)}, {call.out[2 * i]}, nullptr});
  linear_bwd_bias<S>({{call.in[1 + i], optional_input(call, acc + 1)}, {call.out[2 * i + 1]}, nullptr});
}

template <typename S>
void linear_bwd_params(const RefCall<S>& call) {
  params(call, 0, 2);
}

template <typename S>
void qkv_bwd_params(const RefCall<S>& call) {
  for (size_t i = 0; i < 3; ++i) params(call, i, 4 + 2 * i);
}

// The gradients of W and bias of each product, the squares of the first, and its update.
template <typename S>
void bwd_update(const RefCall<S>& call, size_t targets) {
  const RefTensor<S>* hyper = call.in[1 + targets];
  for (size_t t = 0; t < targets; ++t) {
    const RefTensor<S>* const* in = call.in.data() + 2 + targets + 3 * t;
    RefTensor<S>* const* out = call.out.data() + 5 * t;
    RefTensor<S> grad = zeros<S>(out[0]->shape);
    linear_bwd_weight<S>({{call.in[0], call.in[1 + t]}, {&grad}, nullptr});
    linear_bwd_bias<S>({{call.in[1 + t]}, {out[4]}, nullptr});
    const auto columns = static_cast<size_t>(grad.shape[1]), block = static_cast<size_t>(kSquareColumns);
    for (size_t i = 0; i < grad.values.size(); ++i)
      out[3]->values[i / columns * ((columns + block - 1) / block) + i % columns / block] +=
          grad.values[i] * grad.values[i];
    adamw<S>({{in[0], in[1], in[2], &grad, hyper}, {out[0], out[1], out[2]}, call.attrs});
  }
}

template <typename S>
void linear_bwd_update(const RefCall<S>& call) {
  bwd_update(call, 1);
}

template <typename S>
void qkv_bwd_update(const RefCall<S>& call) {
  bwd_update(call, 3);
}

template <typename S>
void qkv_bwd_input(const RefCall<S>& call) {
  RefTensor<S> sum = zeros<S>(call.out[0]->shape);
  for (size_t i = 0; i < 3; ++i) {
    RefTensor<S> next = zeros<S>(sum.shape);
    linear_bwd_input<S>({{call.in[i], call.in[3 + i], &sum}, {&next}, nullptr});
    sum = std::move(next);
  }
  call.out[0]->values = std::move(sum.values);
  add_optional(call, 6, 0);
}

// The logits of all rows at once; the workspace is left alone.
template <typename S>
RefTensor<S> head_logits(const RefCall<S>& call, RefTensor<S>& lse) {
  RefTensor<S> logits = zeros<S>(product_shape(call.in[0]->shape, call.in[1]->shape[1]));
  lse = zeros<S>(call.out[0]->shape);
  linear<S>({{call.in[0], call.in[1]}, {&logits}, nullptr});
  cross_entropy<S>({{&logits, call.in[2]}, {call.out[0], &lse}, nullptr});
  return logits;
}

template <typename S>
void head_loss(const RefCall<S>& call) {
  RefTensor<S> lse;
  head_logits(call, lse);
}

template <typename S>
void head(const RefCall<S>& call) {
  RefTensor<S> lse;
  const RefTensor<S> logits = head_logits(call, lse);
  RefTensor<S> dlogits = zeros<S>(logits.shape);
  cross_entropy_bwd<S>({{&logits, call.in[2], &lse, call.in[3]}, {&dlogits}, nullptr});
  round_values(dlogits, call.precision);
  linear_bwd_input<S>({{&dlogits, call.in[1], optional_input(call, 4)}, {call.out[1]}, nullptr});
  linear_bwd_weight<S>({{call.in[0], &dlogits, optional_input(call, 5)}, {call.out[2]}, nullptr});
}

}  // namespace lamina::ref

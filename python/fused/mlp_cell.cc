#include "cells.h"
#include "parts.h"

namespace lamina::fused {
namespace {

constexpr int64_t kResidualSite = 2;  // of dropout: the attention cell of the layer has the same seed and other sites

struct Problem {
  int64_t M, C, I;
  double eps;
  GeluAttrs gelu;
  DropoutAttrs residual;

  Shape rows() const { return {M, C}; }
  Shape inner() const { return {M, I}; }
  Shape vector() const { return {C}; }
};

// x (M, C) in input `x`, fc's weight (C, I) in input `fc`.
Problem problem_of(const Call& call, int x, int fc, int settings) {
  const Shape rows = call.shape(x, 2), weight = call.shape(fc, 2);
  const double* set = call.doubles(settings, {4});
  if (rows[0] > kMostElements / weight[1]) throw Refused{Code::shape};
  if (set[1] != 0.0 && set[1] != 1.0) throw Refused{Code::setting};
  return {rows[0],         rows[1],
          weight[1],       norm_epsilon(set[0]),
          {set[1] == 1.0}, {.p = dropout_share(set[2], set[3]), .site = kResidualSite, .training = true}};
}

struct Kept {
  TensorArg pre, mean, rstd;
};

Kept kept_of(const Problem& p, const Call& call, int i) {
  const int64_t inner = p.inner().elements();
  auto* at = static_cast<float*>(call.floats(i, {inner + 2 * p.M}).data);
  return {
      {at, p.inner(), {}, Dtype::f32}, {at + inner, {p.M}, {}, Dtype::f32}, {at + inner + p.M, {p.M}, {}, Dtype::f32}};
}

}  // namespace

void mlp_forward(const Call& call, Engine& engine) {
  const Problem p = problem_of(call, 0, 3, 8);
  const Kept kept = kept_of(p, call, 10);
  const TensorArg x = call.floats(0, p.rows()), y = call.floats(9, p.rows());
  const TensorArg gamma = call.floats(1, p.vector()), beta = call.floats(2, p.vector());
  const TensorArg fc = call.floats(3, {p.C, p.I}), fc_bias = call.floats(4, {p.I});
  const TensorArg proj = call.floats(5, {p.I, p.C}), proj_bias = call.floats(6, p.vector());
  const Keys keys = keys_of(call, 7, 1, engine);
  const LinearGeluAttrs attrs{.eps = p.eps, .tanh = p.gelu.tanh, .keep = true};
  const TensorArg inner = engine.tensor(p.inner());
  engine.run(Op::linear_gelu, {x, gamma, beta, engine.pack(fc), fc_bias}, {inner, kept.pre, kept.mean, kept.rstd},
             &attrs);
  project(engine, inner, proj, proj_bias, x, p.residual, keys, y);
}

void mlp_backward(const Call& call, Engine& engine) {
  const Problem p = problem_of(call, 1, 4, 8);
  const Kept kept = kept_of(p, call, 6);
  const TensorArg dy = call.floats(0, p.rows()), x = call.floats(1, p.rows()), dx = call.floats(9, p.rows());
  const Norm norm{call.floats(2, p.vector()), call.floats(3, p.vector()), p.eps};
  const Shape fc_shape{p.C, p.I}, proj_shape{p.I, p.C};
  const TensorArg fc = call.floats(4, fc_shape), proj = call.floats(5, proj_shape);
  const TensorArg dgamma = call.floats(10, p.vector()), dbeta = call.floats(11, p.vector());
  const TensorArg dfc = call.floats(12, fc_shape), dfc_bias = call.floats(13, {p.I});
  const TensorArg dproj = call.floats(14, proj_shape), dproj_bias = call.floats(15, p.vector());
  const Keys keys = keys_of(call, 7, 1, engine);

  const TensorArg dsum = before_dropout(engine, dy, p.residual, keys);
  const TensorArg inner = engine.tensor(p.inner()), proj_panels = engine.panel(proj_shape);
  engine.run(Op::gelu, {kept.pre}, {inner}, &p.gelu);
  engine.run(Op::linear_bwd_params, {inner, dsum}, {proj_panels, dproj_bias}, &kNoAttrs);
  engine.unpack(proj_panels, dproj);
  const TensorArg dpre = engine.tensor(p.inner());
  engine.run(Op::linear_bwd_gelu, {dsum, engine.pack(proj), kept.pre}, {dpre}, &p.gelu);

  const TensorArg fc_panels = engine.panel(fc_shape), dh = engine.tensor(p.rows());
  engine.run(Op::linear_bwd_params, {normalized(engine, x, norm), dpre}, {fc_panels, dfc_bias}, &kNoAttrs);
  engine.unpack(fc_panels, dfc);
  engine.run(Op::linear_bwd_input, {dpre, engine.pack(fc)}, {dh}, &kNoAttrs);
  norm_backward(engine, dh, dy, x, norm, kept.mean, kept.rstd, {dx, dgamma, dbeta});
}

}  // namespace lamina::fused

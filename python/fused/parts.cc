#include "parts.h"

#include <cmath>

namespace lamina::fused {

double dropout_share(double share, double training) {
  if (!(share >= 0.0 && share <= 1.0) || (training != 0.0 && training != 1.0)) throw Refused{Code::setting};
  return training == 1.0 ? share : 0.0;
}

double norm_epsilon(double eps) {
  if (!(std::isfinite(eps) && eps >= 0.0)) throw Refused{Code::setting};
  return eps;
}

Keys keys_of(const Call& call, int seed, int64_t B, Engine& engine) {
  const int32_t* words = call.ints(seed, {2});
  const Keys keys{engine.tensor({2}, Dtype::i64), engine.tensor({B}, Dtype::i64)};
  for (int i = 0; i < 2; ++i) static_cast<int64_t*>(keys.rng.data)[i] = words[i];
  for (int64_t b = 0; b < B; ++b) static_cast<int64_t*>(keys.sample.data)[b] = b;
  return keys;
}

namespace {

// (1, M, C): dropout counts within a sample.
TensorArg one_sample(const TensorArg& t) {
  TensorArg whole = t;
  whole.shape = {1, t.shape.rows(), t.shape.last()};
  return whole;
}

}  // namespace

void project(Engine& engine, const TensorArg& x, const TensorArg& weight, const TensorArg& bias,
             const TensorArg& residual, const DropoutAttrs& dropout, const Keys& keys, const TensorArg& y) {
  const TensorArg panels = engine.pack(weight);
  if (dropout.p == 0.0) return engine.run(Op::linear, {x, panels, bias, residual}, {y}, &kNoAttrs);
  engine.run(Op::linear_dropout, {one_sample(x), panels, bias, one_sample(residual), keys.rng, keys.sample},
             {one_sample(y)}, &dropout);
}

TensorArg before_dropout(Engine& engine, const TensorArg& dy, const DropoutAttrs& dropout, const Keys& keys) {
  if (dropout.p == 0.0) return dy;
  const TensorArg dx = engine.tensor(dy.shape);
  engine.run(Op::dropout, {one_sample(dy), keys.rng, keys.sample}, {one_sample(dx)}, &dropout);
  return dx;
}

TensorArg normalized(Engine& engine, const TensorArg& x, const Norm& norm) {
  const Shape rows{x.shape.rows()};
  const TensorArg h = engine.tensor(x.shape);
  const LayerNormAttrs attrs{norm.eps};
  engine.run(Op::layernorm, {x, norm.weight, norm.bias}, {h, engine.tensor(rows), engine.tensor(rows)}, &attrs);
  return h;
}

void norm_backward(Engine& engine, const TensorArg& dh, const TensorArg& dy, const TensorArg& x, const Norm& norm,
                   const TensorArg& mean, const TensorArg& rstd, const NormGradients& to) {
  const Shape sums{(x.shape.rows() + kNormRows - 1) / kNormRows, 2 * x.shape.last()};
  engine.run(Op::layernorm_bwd, {dh, x, norm.weight, mean, rstd, dy}, {to.x, to.weight, to.bias, engine.tensor(sums)},
             &kNoAttrs);
}

}  // namespace lamina::fused

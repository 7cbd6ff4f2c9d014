// What both cells need: settings as kernels take them, dropout's keys, and the end of the backward side.
#pragma once

#include "call.h"
#include "engine.h"

namespace lamina::fused {

constexpr NoAttrs kNoAttrs;

// A share that is dropped, from 0 to 1; 0 outside of training.
double dropout_share(double share, double training);
double norm_epsilon(double eps);

// What every dropout decision of a call is keyed with.
struct Keys {
  TensorArg rng, sample;  // (2), (B), i64
};
Keys keys_of(const Call& call, int seed, int64_t B, Engine& engine);

// residual + dropout(x W + bias), all rows as one sample.
void project(Engine& engine, const TensorArg& x, const TensorArg& weight, const TensorArg& bias,
             const TensorArg& residual, const DropoutAttrs& dropout, const Keys& keys, const TensorArg& y);
// dy behind the dropout of the projection.
TensorArg before_dropout(Engine& engine, const TensorArg& dy, const DropoutAttrs& dropout, const Keys& keys);

struct Norm {
  TensorArg weight, bias;
  double eps;
};
// layernorm(x), made again.
TensorArg normalized(Engine& engine, const TensorArg& x, const Norm& norm);

struct NormGradients {
  TensorArg x, weight, bias;
};
// From dh, what is behind the layernorm, and dy, what goes past the cell.
void norm_backward(Engine& engine, const TensorArg& dh, const TensorArg& dy, const TensorArg& x, const Norm& norm,
                   const TensorArg& mean, const TensorArg& rstd, const NormGradients& to);

}  // namespace lamina::fused

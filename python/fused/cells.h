// The two layer cells, each way: the kernels that the compiler's cells are made of, one after the other, on what one
// call of a custom operator brings. C = heads · D channels, M = B · T rows, I the width inside the MLP.
//
//                        attention cell                                   MLP cell
//   inputs    0   x (M, C)                                     x (M, C)
//             1   gamma, beta (C)                              gamma, beta (C)
//             3   W (C, C), bias (C) of q, k, v and proj       W (C, I), bias (I) of fc, W (I, C), bias (C) of proj
//            11   hidden (B or 1, 1, T, T), bool           7   seed (2)
//            12   seed (2), int32                          8   settings (4): epsilon, 1 for the tanh form of GELU,
//            13   settings (heads, 5), float64: scale,         dropout of the residual, 1 in training
//                 epsilon, dropout of probabilities and
//                 of the residual, 1 in training
//   outputs       y (M, C), kept, key_begin (B, T), int32      y (M, C), kept
//
//   backward  0   dy, x, gamma, beta                           dy, x, gamma, beta
//   inputs    4   W of q, k, v and proj                        W of fc and proj
//             8   kept, key_begin, seed, settings          6   kept, seed, settings
//   outputs       dx, then as the inputs from 1 to 10          dx, then as the inputs from 1 to 6
//
// `kept` is one row of floats: q, k, v, attention's result (M, C) each, log of the sums (B, heads, T), mean, rstd (M);
// or what GELU took (M, I), mean, rstd (M). LayerNorm's result and GELU's are made again. Shapes of outputs follow from
// those of inputs alone, since PyNative keeps them by name and input shapes for the whole process: hence a row of
// settings for each head, of which the first is read.
#pragma once

#include "call.h"
#include "engine.h"

namespace lamina::fused {

constexpr int kAttentionForward = 17, kAttentionBackward = 23, kMlpForward = 11, kMlpBackward = 16;  // arguments

void attention_forward(const Call& call, Engine& engine);
void attention_backward(const Call& call, Engine& engine);
void mlp_forward(const Call& call, Engine& engine);
void mlp_backward(const Call& call, Engine& engine);

}  // namespace lamina::fused

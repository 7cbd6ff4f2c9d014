// weighted_sum, square_sum, norm, clip_factor: from a tensor to a few numbers.
#pragma once

#include <limits>

#include "kernels/ref/math.h"

namespace lamina::ref {

template <typename S>
void weighted_sum(const RefCall<S>& call) {
  S sum = S(0.0);
  for (const S& x : call.in[0]->values) sum += x;
  call.out[0]->values[0] = sum * call.in[1]->values[0];
}

// Blocks are cut in row-major order here and in the order of memory in a kernel: only the total is comparable.
template <typename S>
void square_sum(const RefCall<S>& call) {
  const std::vector<S>& x = call.in[0]->values;
  for (size_t i = 0; i < x.size(); ++i) call.out[0]->values[i / kSquareSumBlock] += x[i] * x[i];
}

template <typename S>
void norm(const RefCall<S>& call) {
  S total = S(0.0);
  for (const RefTensor<S>* sums : call.in)
    for (const S& sum : sums->values) total += sum;
  call.out[0]->values[0] = sqrt(total);
}

template <typename S>
void clip_factor(const RefCall<S>& call) {
  const double max_norm = attrs_of<ClipAttrs>(call).max_norm;
  const S norm = call.in[0]->values[0];
  const RefTensor<S>* given = optional_input(call, 2);
  const S scale = given == nullptr ? S(1.0) : given->values[0];
  S factor = S(1.0);
  if (max_norm > 0.0) {
    const S wanted = S(max_norm) / (norm / scale + S(1e-6));
    if (real_part(wanted) < 1.0) factor = wanted;
  }
  factor /= scale;
  const bool finite = std::isfinite(real_part(norm)) && std::isfinite(real_part(call.in[1]->values[0]));
  if (!finite) factor = S(std::numeric_limits<double>::quiet_NaN());
  call.out[0]->values[0] = factor;
}

}  // namespace lamina::ref

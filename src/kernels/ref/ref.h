// The truth: what each op computes, as plain loops over a scalar type S, row-major whatever the layout. S is float,
// double, std::complex<double> (complex-step derivatives) or Mag (sums of absolute terms, for computed tolerances).
// One header per op in this folder defines `template <typename S> void <op>(const RefCall<S>&)` in lamina::ref.
#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "base/op.h"
#include "base/shape.h"

namespace lamina::ref {

// `values` for floating tensors, `ints` for ids, positions, keys of random numbers.
template <typename S>
struct RefTensor {
  Shape shape;
  std::vector<S> values;
  std::vector<int64_t> ints;
};

template <typename S>
struct RefCall {
  std::vector<const RefTensor<S>*> in;  // null: an optional input that is absent
  std::vector<RefTensor<S>*> out;       // shaped and sized by the caller, all zero
  const void* attrs = nullptr;          // the op's own attribute struct
  // Of values that a fused op hands from one of its parts to the next. Inputs come rounded, outputs leave unrounded:
  // their caller sees to both.
  Dtype precision = Dtype::f32;
};

// Runs one op. Aborts for `branch` and `reshape`, which compute nothing.
template <typename S>
void run(Op op, const RefCall<S>& call);

}  // namespace lamina::ref

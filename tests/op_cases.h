// One table of cases for all ops: what the loops over kernels, gradients and whole programs are tested with. A case
// says which op, with which attributes, on operands of which shape, layout and range; values come from a seeded stream.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/op.h"
#include "kernels/ref/ref.h"

namespace lamina::testing {

struct Operand {
  enum class Kind : uint8_t { absent, real, i32, i64 } kind = Kind::absent;
  Shape shape;
  double low = 0.0;  // real: uniform in [low, high); integers: in [low, high], both ends taken where two or more fit
  double high = 0.0;
  bool panel = false;        // a matrix that lies in panels of the kernel table's nr columns
  bool workspace = false;    // an output whose values mean nothing
  Dtype dtype = Dtype::f32;  // of real numbers in memory
};

using Inputs = std::vector<ref::RefTensor<double>>;  // an absent operand has an empty tensor of rank 0

struct OpCase {
  Op op{};
  std::string name = {};
  Attrs attrs = {};
  std::vector<Operand> in = {};
  std::vector<Operand> out = {};
  double terms = 1.0;  // K: how many terms are added up for one element of an output
  // What else the bound allows, in units of u * mag: the roundings of a chain of operations that is no sum, and the
  // error of exp (1 ulp), tanh and erf (2).
  double ulps = 0.0;
  std::vector<std::pair<int, int>> in_place = {};  // an output that may lie on this input
  bool only_total = false;                         // the sum over the first output counts, not its elements
  // Sets the inputs that belong to others (a mean to its x, an lse to its logits); null where there are none.
  void (*complete)(Inputs& in, const Attrs& attrs) = nullptr;
  Dtype precision = Dtype::f32;
};

const std::vector<OpCase>& op_cases();

// The values of a case: floats, but for what `complete` computed in double.
Inputs make_inputs(const OpCase& c);
void round_to_float(Inputs& in);
// What a kernel makes of its inputs first: the operands of its products rounded to the case's precision.
void round_operands(const OpCase& c, Inputs& in);

// Evaluates the reference in S on inputs that are cast to S.
template <typename S>
std::vector<ref::RefTensor<S>> run_reference(const OpCase& c, const Inputs& in);

}  // namespace lamina::testing

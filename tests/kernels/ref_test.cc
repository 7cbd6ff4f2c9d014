// The reference is its own witness: each backward op equals the derivative of its forward op, taken by a complex step
// of 1e-50, which has no truncation error. Over the cases of the backward ops in the common table.
#include <gtest/gtest.h>

#include <algorithm>
#include <complex>
#include <functional>

#include "base/rng.h"
#include "common/tolerance.h"
#include "op_cases.h"

namespace lamina::testing {
namespace {

using Complex = std::complex<double>;
using Real = ref::RefTensor<double>;

constexpr double kStep = 1e-50;
constexpr double kNothing = 1e-100;  // a slope that double rounds to 0 in one form and not in the other

// output o of the backward op, less its accumulator, is the gradient of forward input i.
struct Slot {
  size_t output, input;
  int acc = -1;
};

// How the case of a backward op describes its forward op: where the forward inputs come from, which input is the
// gradient that flows in, and what the outputs are gradients of.
struct Derivative {
  Op backward, forward;
  std::function<Inputs(const OpCase&, const Inputs&)> inputs;
  size_t dy;
  std::vector<Slot> slots;
};

Real filled(const Shape& shape, double value) {
  return {shape, std::vector<double>(static_cast<size_t>(shape.elements()), value), {}};
}

Shape with_last(Shape shape, int64_t last) {
  shape[shape.rank - 1] = last;
  return shape;
}

using C = const OpCase&;
using I = const Inputs&;

// The value of an input in which the forward op is linear does not matter: zeros.
std::vector<Derivative> elementwise_derivatives() {
  return {
      {Op::mul,
       Op::mul,
       [](C, I in) {
         return Inputs{filled(in[0].shape, 0.0), in[1]};
       },
       0,
       {{0, 0}}},
      {Op::scale, Op::scale, [](C, I in) { return Inputs{filled(in[0].shape, 0.0)}; }, 0, {{0, 0}}},
      {Op::dropout,
       Op::dropout,
       [](C, I in) {
         return Inputs{filled(in[0].shape, 0.0), in[1], in[2]};
       },
       0,
       {{0, 0}}},
      {Op::expand,
       Op::weighted_sum,
       [](C c, I in) {
         return Inputs{filled(c.out[0].shape, 0.0), in[1]};
       },
       0,
       {{0, 0}}},
      {Op::embedding_bwd,
       Op::embedding,
       [](C c, I in) {
         return Inputs{filled(c.out[0].shape, 0.0), in[1]};
       },
       0,
       {{0, 0, 2}}},
  };
}

std::vector<Derivative> layer_derivatives() {
  return {
      {Op::layernorm_bwd_input,
       Op::layernorm,
       [](C, I in) {
         return Inputs{in[1], in[2], filled(in[2].shape, 0.0)};
       },
       0,
       {{0, 0, 5}}},
      {Op::layernorm_bwd_params,
       Op::layernorm,
       [](C c, I in) {
         return Inputs{in[1], filled(c.out[0].shape, 1.0), filled(c.out[0].shape, 0.0)};
       },
       0,
       {{0, 1, 4}, {1, 2, 5}}},
      {Op::linear_bwd_input,
       Op::linear,
       [](C c, I in) {
         return Inputs{filled(c.out[0].shape, 0.0), in[1], Real{}, Real{}};
       },
       0,
       {{0, 0, 2}}},
      {Op::linear_bwd_weight,
       Op::linear,
       [](C c, I in) {
         return Inputs{in[0], filled(c.out[0].shape, 0.0), Real{}, Real{}};
       },
       1,
       {{0, 1, 2}}},
      {Op::linear_bwd_bias,
       Op::linear,
       [](C c, I in) {
         return Inputs{filled(with_last(in[0].shape, 1), 0.0), filled({1, in[0].shape.last()}, 0.0),
                       filled(c.out[0].shape, 0.0), Real{}};
       },
       0,
       {{0, 2, 1}}},
      {Op::attention_bwd,
       Op::attention,
       [](C, I in) { return Inputs{in[1], in[2], in[3], in[6], in[7], in[8]}; },
       0,
       {{0, 0}, {1, 1}, {2, 2}}},
      {Op::cross_entropy_bwd,
       Op::cross_entropy,
       [](C, I in) {
         return Inputs{in[0], in[1]};
       },
       3,
       {{0, 0}}},
  };
}

// These are compositions of the others.
constexpr std::string_view kOfCells[] = {"layernorm_bwd",  "linear_bwd_gelu",   "linear_bwd_params", "qkv_bwd_input",
                                         "qkv_bwd_params", "linear_bwd_update", "qkv_bwd_update"};

// What needs no row: x_bwd takes dy and the inputs of x, and gives the gradient of the first of them.
std::vector<Derivative> plain_derivatives(const std::vector<Derivative>& others) {
  std::vector<Derivative> out;
  for (int b = 0; b < kOpCount; ++b) {
    const Op backward = static_cast<Op>(b);
    const auto same = [&](const Derivative& d) { return d.backward == backward; };
    if (std::any_of(others.begin(), others.end(), same) || std::ranges::count(kOfCells, op_name(backward)) > 0)
      continue;
    for (int f = 0; f < kOpCount; ++f) {
      const Op forward = static_cast<Op>(f);
      if (std::string(op_name(forward)) + "_bwd" != op_name(backward)) continue;
      out.push_back({backward, forward, [](C, I in) { return Inputs(in.begin() + 1, in.end()); }, 0, {{0, 0}}});
    }
  }
  return out;
}

const std::vector<Derivative>& derivatives() {
  static const std::vector<Derivative> all = [] {
    std::vector<Derivative> out = elementwise_derivatives();
    for (Derivative& derivative : layer_derivatives()) out.push_back(std::move(derivative));
    for (Derivative& derivative : plain_derivatives(out)) out.push_back(std::move(derivative));
    return out;
  }();
  return all;
}

const void* forward_attrs(const OpCase& c) {
  static const LayerNormAttrs layernorm;
  if (c.op == Op::layernorm_bwd_input || c.op == Op::layernorm_bwd_params) return &layernorm;
  return std::visit([](const auto& a) { return static_cast<const void*>(&a); }, c.attrs);
}

// The outputs of the forward op, shaped like what the case says of them.
std::vector<Shape> forward_outputs(const OpCase& c, const Derivative& d, const Inputs& in) {
  const Shape y = c.in[d.dy].shape;
  switch (d.forward) {
    case Op::layernorm: return {y, {in[0].shape.rows()}, {in[0].shape.rows()}};
    case Op::attention: return {y, c.in[5].shape};
    case Op::cross_entropy: return {y, y};
    default: return {y};
  }
}

// d(sum of dy * y)/dx along `direction` of forward input `input`.
double complex_step(const OpCase& c, const Derivative& d, const Inputs& forward, const Real& dy, size_t input,
                    const std::vector<double>& direction) {
  std::vector<ref::RefTensor<Complex>> in;
  for (const Real& t : forward) in.push_back({t.shape, {t.values.begin(), t.values.end()}, t.ints});
  for (size_t e = 0; e < direction.size(); ++e) in[input].values[e] += Complex(0.0, kStep * direction[e]);
  std::vector<ref::RefTensor<Complex>> out;
  for (const Shape& shape : forward_outputs(c, d, forward))
    out.push_back({shape, std::vector<Complex>(static_cast<size_t>(shape.elements())), {}});
  ref::RefCall<Complex> call;
  for (const auto& t : in) call.in.push_back(t.shape.rank == 0 ? nullptr : &t);
  for (auto& t : out) call.out.push_back(&t);
  call.attrs = forward_attrs(c);
  ref::run(d.forward, call);
  double sum = 0.0;
  for (size_t e = 0; e < dy.values.size(); ++e) sum += dy.values[e] * out[0].values[e].imag() / kStep;
  return sum;
}

std::vector<double> gradient_of(const std::vector<Real>& out, const Inputs& in, const Slot& slot) {
  std::vector<double> gradient = out[slot.output].values;
  if (slot.acc < 0) return gradient;
  const std::vector<double>& acc = in[static_cast<size_t>(slot.acc)].values;
  for (size_t e = 0; e < acc.size(); ++e) gradient[e] -= acc[e];
  return gradient;
}

// A random direction moves all elements at once; single ones are tried for a place to look.
void expect_gradient(const OpCase& c, const Derivative& d, const Inputs& in, const Slot& slot,
                     const std::vector<double>& gradient) {
  const Inputs forward = d.inputs(c, in);
  const Real& dy = in[d.dy];
  Rng rng(gradient.size());
  double largest = 0.0;
  double along = 0.0;
  double terms = 0.0;
  std::vector<double> direction(gradient.size());
  for (size_t e = 0; e < gradient.size(); ++e) {
    direction[e] = 2.0 * rng.uniform() - 1.0;
    along += direction[e] * gradient[e];
    terms += std::abs(direction[e] * gradient[e]);
    largest = std::max(largest, std::abs(gradient[e]));
  }
  EXPECT_NEAR(complex_step(c, d, forward, dy, slot.input, direction), along, 1e-9 * terms + kNothing)
      << "output " << slot.output;
  for (int i = 0; i < 3; ++i) {
    const size_t e = rng.below(gradient.size());
    std::vector<double> unit(gradient.size(), 0.0);
    unit[e] = 1.0;
    EXPECT_NEAR(complex_step(c, d, forward, dy, slot.input, unit), gradient[e], 1e-9 * largest + kNothing)
        << "output " << slot.output << "[" << e << "]";
  }
}

class Reference : public ::testing::TestWithParam<size_t> {};

TEST_P(Reference, BackwardIsTheDerivativeOfForward) {
  const Derivative& d = derivatives()[GetParam()];
  int tried = 0;
  for (const OpCase& c : op_cases()) {
    if (c.op != d.backward || c.precision != Dtype::f32) continue;  // rounding has no derivative
    SCOPED_TRACE(c.name);
    const Inputs in = make_inputs(c);
    const std::vector<Real> out = run_reference<double>(c, in);
    for (const Slot& slot : d.slots) expect_gradient(c, d, in, slot, gradient_of(out, in, slot));
    ++tried;
  }
  EXPECT_GT(tried, 0);
}

INSTANTIATE_TEST_SUITE_P(All, Reference, ::testing::Range(size_t{0}, derivatives().size()),
                         [](const auto& info) { return std::string(op_name(derivatives()[info.param].backward)); });

TEST(Reference, HasADerivativeForEveryBackwardOp) {
  for (int i = 0; i < kOpCount; ++i) {
    const std::string_view name = op_name(static_cast<Op>(i));
    if (name.find("_bwd") == std::string_view::npos || std::ranges::count(kOfCells, name) > 0) continue;
    const bool found = std::any_of(derivatives().begin(), derivatives().end(),
                                   [&](const Derivative& d) { return op_name(d.backward) == name; });
    EXPECT_TRUE(found) << name;
  }
}

// The reference in float, plain loops in the order they are written, keeps the bound that the kernels are held to.
TEST(Reference, InFloatKeepsTheBound) {
  for (const OpCase& c : op_cases()) {
    if (c.only_total) continue;  // nothing to compare element by element
    SCOPED_TRACE(c.name);
    Inputs in = make_inputs(c);
    round_to_float(in);
    const auto got = run_reference<float>(c, in);
    const auto exact = run_reference<ref::Mag>(c, in);
    for (size_t o = 0; o < got.size(); ++o) {
      double worst = 0.0;
      for (size_t e = 0; e < got[o].values.size(); ++e)
        worst = std::max(worst, excess(got[o].values[e], exact[o].values[e], c.terms, c.ulps));
      EXPECT_LE(worst, 1.0) << "output " << o;
    }
  }
}

}  // namespace
}  // namespace lamina::testing

// Single numbers and properties that the comparison with the reference cannot show: known values, statistics of
// dropout, what NaN and infinity do, means far from zero, chains of the optimizer's kernels. On every ISA of this
// processor.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/rng.h"
#include "common/isas.h"
#include "kernel_runner.h"

namespace lamina::testing {
namespace {

using Floats = std::vector<float>;
using Tensor = ref::RefTensor<double>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor reals(Shape shape, std::vector<double> values) { return {shape, std::move(values), {}}; }
Tensor reals(std::vector<double> values) { return reals({static_cast<int64_t>(values.size())}, values); }
Tensor integers(std::vector<int64_t> values) {
  const Shape shape{static_cast<int64_t>(values.size())};
  return {shape, {}, std::move(values)};
}

class KernelValues : public ::testing::TestWithParam<Isa> {
 protected:
  // Integers are i64 for dropout (its rng and samples) and i32 elsewhere, as ops.def says.
  std::vector<Floats> run(Op op, const Attrs& attrs, const Inputs& in, const std::vector<Shape>& out,
                          bool panel = false) {
    OpCase c{.op = op, .attrs = attrs};
    for (const Tensor& t : in) {
      const auto kind = t.ints.empty()      ? Operand::Kind::real
                        : op == Op::dropout ? Operand::Kind::i64
                                            : Operand::Kind::i32;
      c.in.push_back({.kind = kind, .shape = t.shape, .panel = panel && t.shape.rank == 2});
    }
    for (const Shape& shape : out) c.out.push_back({.kind = Operand::Kind::real, .shape = shape, .panel = panel});
    const KernelTable& table = kernel_table(GetParam());
    KernelRunner runner(*find_kernel(table, op), c, in, table.nr);
    const std::vector<GuardedBuffer> memory = runner.run(whole, {});
    std::vector<Floats> values;
    for (size_t o = 0; o < memory.size(); ++o) values.push_back(from_storage(c.out[o], memory[o], table.nr));
    return values;
  }
};

TEST_P(KernelValues, GeluHasItsTwoForms) {
  const auto at = [&](bool tanh, double x) {
    return static_cast<double>(run(Op::gelu, GeluAttrs{tanh}, {reals({x})}, {{1}})[0][0]);
  };
  EXPECT_NEAR(at(false, 1.0), 0.8413447, 1e-7);
  EXPECT_NEAR(at(true, 1.0), 0.8411920, 1e-7);
  for (double x : {2.69894, -2.69894}) EXPECT_NEAR(std::abs(at(true, x) - at(false, x)), 4.732e-4, 2e-7);
}

TEST_P(KernelValues, GeluEndsInLinesAndKeepsNan) {
  for (bool tanh : {false, true}) {
    const Floats y = run(Op::gelu, GeluAttrs{tanh}, {reals({100.0, -100.0, 1e30, -1e30, kInfinity, kNan})}, {{6}})[0];
    EXPECT_EQ(y[0], 100.0f);
    EXPECT_EQ(y[1], 0.0f);
    EXPECT_EQ(y[2], 1e30f);
    EXPECT_EQ(y[3], 0.0f);
    EXPECT_EQ(y[4], HUGE_VALF);
    EXPECT_TRUE(std::isnan(y[5]));
    const Floats slope =
        run(Op::gelu_bwd, GeluAttrs{tanh},
            {reals({1.0, 1.0, 1.0, 1.0, kNan, 1.0}), reals({100.0, -100.0, 1e30, -1e30, 0.0, kNan})}, {{6}})[0];
    for (int i = 0; i < 4; ++i) EXPECT_NEAR(slope[static_cast<size_t>(i)], i % 2 == 0 ? 1.0f : 0.0f, 1e-30f) << i;
    EXPECT_TRUE(std::isnan(slope[4]));
    EXPECT_TRUE(std::isnan(slope[5]));
  }
}

TEST_P(KernelValues, DropoutKeepsItsShare) {
  const Shape shape{1, 1000, 1000};
  const Inputs in{reals(shape, std::vector<double>(1000000, 1.0)), integers({7, 3}), integers({11})};
  const Floats y = run(Op::dropout, DropoutAttrs{0.1, 2, true}, in, {shape})[0];
  int64_t kept = 0;
  for (float v : y) {
    kept += v != 0.0f;
    ASSERT_TRUE(v == 0.0f || v == static_cast<float>(1.0 / 0.9)) << v;
  }
  EXPECT_NEAR(static_cast<double>(kept) / 1e6, 0.9, 0.002);
}

TEST_P(KernelValues, DropoutDependsOnEachPartOfItsKey) {
  const Shape shape{2, 4, 25};
  const Tensor ones = reals(shape, std::vector<double>(200, 1.0));
  const auto masks = [&](int64_t seed, int64_t step, std::vector<int64_t> samples, int64_t site) {
    return run(Op::dropout, DropoutAttrs{0.5, site, true}, {ones, integers({seed, step}), integers(samples)},
               {shape})[0];
  };
  const Floats base = masks(1, 2, {3, 4}, 5);
  EXPECT_EQ(masks(1, 2, {3, 4}, 5), base);
  EXPECT_NE(masks(9, 2, {3, 4}, 5), base);
  EXPECT_NE(masks(1, 9, {3, 4}, 5), base);
  EXPECT_NE(masks(1, 2, {3, 4}, 9), base);
  // A sample keeps its mask wherever it stands in the batch.
  const Floats swapped = masks(1, 2, {4, 3}, 5);
  EXPECT_TRUE(std::equal(base.begin(), base.begin() + 100, swapped.begin() + 100));
  EXPECT_TRUE(std::equal(base.begin() + 100, base.end(), swapped.begin()));
}

TEST_P(KernelValues, DropoutRemovesNanExactly) {
  const Shape shape{1, 1, 100};
  const Inputs in{reals(shape, std::vector<double>(100, kNan)), integers({7, 3}), integers({11})};
  const Floats half = run(Op::dropout, DropoutAttrs{0.5, 0, true}, in, {shape})[0];
  const Floats none = run(Op::dropout, DropoutAttrs{1.0, 0, true}, in, {shape})[0];
  EXPECT_TRUE(std::any_of(half.begin(), half.end(), [](float v) { return v == 0.0f; }));
  EXPECT_TRUE(std::any_of(half.begin(), half.end(), [](float v) { return std::isnan(v); }));
  for (float v : none) EXPECT_EQ(v, 0.0f);
}

// The deviation is 1 and the mean 10,000: fp32 holds each x to 5e-4, and no more may be lost. The reference in double
// on the same floats is the truth; what is allowed is a few roundings of x - mean.
TEST_P(KernelValues, LayerNormKeepsItsDigitsFarFromZero) {
  const int64_t C = 771;
  OpCase c{.op = Op::layernorm, .attrs = LayerNormAttrs{}};
  Inputs in{reals({1, C}, {}), reals({C}, std::vector<double>(C, 1.0)), reals({C}, std::vector<double>(C, 0.0))};
  Rng rng(5);
  for (int64_t i = 0; i < C; ++i) in[0].values.push_back(static_cast<float>(10000.0 + rng.normal()));
  for (const Tensor& t : in) c.in.push_back({.kind = Operand::Kind::real, .shape = t.shape});
  for (const Shape& shape : {Shape{1, C}, Shape{1}, Shape{1}})
    c.out.push_back({.kind = Operand::Kind::real, .shape = shape});
  const auto exact = run_reference<double>(c, in);
  const auto got = run(Op::layernorm, LayerNormAttrs{}, in, {{1, C}, {1}, {1}});
  for (size_t i = 0; i < static_cast<size_t>(C); ++i) ASSERT_NEAR(got[0][i], exact[0].values[i], 2e-6) << i;
  EXPECT_NEAR(got[1][0], exact[1].values[0], 1e-3);  // one unit in the last place of 10,000
  EXPECT_NEAR(got[2][0], exact[2].values[0], 1e-6);
}

TEST_P(KernelValues, LayerNormRowsAreIndependent) {
  std::vector<double> x(3 * 20, 0.0);
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<double>(i));
  const Inputs clean{reals({3, 20}, x), reals({20}, std::vector<double>(20, 1.0)),
                     reals({20}, std::vector<double>(20))};
  const Floats y = run(Op::layernorm, LayerNormAttrs{}, clean, {{3, 20}, {3}, {3}})[0];
  Inputs dirty = clean;
  dirty[0].values[25] = kNan;
  const Floats z = run(Op::layernorm, LayerNormAttrs{}, dirty, {{3, 20}, {3}, {3}})[0];
  for (size_t i = 0; i < y.size(); ++i) {
    if (i / 20 == 1) {
      EXPECT_TRUE(std::isnan(z[i])) << i;
    } else {
      EXPECT_EQ(y[i], z[i]) << i;
    }
  }
}

TEST_P(KernelValues, IgnoredTargetsLetNothingThrough) {
  const int64_t V = 19;
  std::vector<double> logits(3 * V, kNan);
  for (size_t v = 0; v < static_cast<size_t>(V); ++v) logits[static_cast<size_t>(V) + v] = 0.0;
  const Tensor x = reals({3, V}, logits);
  const Tensor targets = integers({-1, 4, -100});
  const auto forward = run(Op::cross_entropy, NoAttrs{}, {x, targets}, {{3}, {3}});
  EXPECT_EQ(forward[0][0], 0.0f);
  EXPECT_NEAR(forward[0][1], std::log(static_cast<double>(V)), 1e-6);
  EXPECT_EQ(forward[0][2], 0.0f);
  const Tensor lse = reals({0.0, static_cast<double>(forward[1][1]), 0.0});
  const Floats dx = run(Op::cross_entropy_bwd, NoAttrs{}, {x, targets, lse, reals({1.0, 1.0, kNan})}, {{3, V}})[0];
  for (size_t v = 0; v < static_cast<size_t>(V); ++v) {
    EXPECT_EQ(dx[v], 0.0f);
    EXPECT_NEAR(dx[static_cast<size_t>(V) + v], 1.0 / static_cast<double>(V) - (v == 4 ? 1.0 : 0.0), 1e-6);
    EXPECT_EQ(dx[2 * static_cast<size_t>(V) + v], 0.0f);
  }
}

TEST_P(KernelValues, CrossEntropyStandsExtremeLogits) {
  const int64_t V = 5000;  // more than one chunk
  for (int64_t top : {0, 2500, 4999}) {
    std::vector<double> logits(static_cast<size_t>(V), -kInfinity);
    logits[static_cast<size_t>(top)] = 3e38;
    const auto out = run(Op::cross_entropy, NoAttrs{}, {reals({1, V}, logits), integers({top})}, {{1}, {1}});
    EXPECT_EQ(out[0][0], 0.0f);
    EXPECT_EQ(out[1][0], 3e38f);
    logits[7] = kNan;
    EXPECT_TRUE(
        std::isnan(run(Op::cross_entropy, NoAttrs{}, {reals({1, V}, logits), integers({top})}, {{1}, {1}})[0][0]));
  }
}

TEST_P(KernelValues, NormsTellFiniteFromNot) {
  const auto factor = [&](double max_norm, double norm, double loss = 1.0) {
    return run(Op::clip_factor, ClipAttrs{max_norm}, {reals({norm}), reals({loss})}, {{1}})[0][0];
  };
  for (double max_norm : {0.0, 1.0}) {
    for (double bad : {kNan, kInfinity, -kInfinity}) {
      EXPECT_TRUE(std::isnan(factor(max_norm, bad)));
      EXPECT_TRUE(std::isnan(factor(max_norm, 0.5, bad)));
    }
    EXPECT_EQ(factor(max_norm, 0.0), 1.0f);
    EXPECT_EQ(factor(max_norm, 0.5), 1.0f);
  }
  EXPECT_EQ(factor(0.0, 1e30), 1.0f);
  EXPECT_EQ(run(Op::clip_factor, ClipAttrs{1.0}, {reals({32.0}), reals({1.0}), reals({64.0})}, {{1}})[0][0], 0x1.0p-6f);
  EXPECT_NEAR(factor(1.0, 2.0), 0.5, 3e-7);
  for (double bad : {kNan, kInfinity, -kInfinity}) {
    std::vector<double> x(3000, 0.0);
    x[2777] = bad;
    const Floats sums = run(Op::square_sum, NoAttrs{}, {reals(x)}, {{1}})[0];
    EXPECT_FALSE(std::isfinite(run(Op::norm, NoAttrs{}, {reals({sums[0]}), reals({1.0})}, {{1}})[0][0]));
  }
}

Inputs adamw_inputs(size_t n, double param, double grad, double factor) {
  return {reals(std::vector<double>(n, param)),
          reals(std::vector<double>(n, 0.0)),
          reals(std::vector<double>(n, 0.0)),
          reals(std::vector<double>(n, grad)),
          reals({0.1, 0.1 / (1.0 - 0.9), std::sqrt(1.0 - 0.999)}),
          reals({factor})};
}

// N15: gradients 1.2 and 1.6 have norm 2; clipped to 1, the first moments are a tenth of 0.6 and 0.8, whatever the
// loss was multiplied by.
TEST_P(KernelValues, ClippingComesAfterTheLossScaleAndBeforeTheMoments) {
  for (double scale : {1.0, 65536.0}) {
    const Tensor grad = reals({1.2 * scale, 1.6 * scale});
    const Floats sums = run(Op::square_sum, NoAttrs{}, {grad}, {{1}})[0];
    const Floats norm = run(Op::norm, NoAttrs{}, {reals({sums[0]})}, {{1}})[0];
    EXPECT_NEAR(norm[0] / scale, 2.0, 4e-7);
    const Floats factor =
        run(Op::clip_factor, ClipAttrs{1.0}, {reals({norm[0]}), reals({1.0}), reals({scale})}, {{1}})[0];
    Inputs in = adamw_inputs(2, 0.0, 0.0, factor[0]);
    in[3] = grad;
    const auto out = run(Op::adamw, AdamWAttrs{}, in, {{2}, {2}, {2}});
    EXPECT_NEAR(out[1][0], 0.06, 0.06 * 2e-6);
    EXPECT_NEAR(out[1][1], 0.08, 0.08 * 2e-6);
    EXPECT_NEAR(out[2][0], 3.6e-4, 3.6e-4 * 2e-6);
    EXPECT_NEAR(out[2][1], 6.4e-4, 6.4e-4 * 2e-6);
  }
}

// N18: steps of 6e-4 from 1 on, where bf16 has a place every 2^-8. Only a master in fp32 gets anywhere.
TEST_P(KernelValues, WeightsMoveByLessThanBf16Holds) {
  Inputs in = adamw_inputs(1, 1.0, 1.0, 1.0);
  for (int t = 1; t <= 100; ++t) {
    in[4] = reals({6e-4, 6e-4 / (1.0 - std::pow(0.9, t)), std::sqrt(1.0 - std::pow(0.999, t))});
    round_to_float(in);
    const auto out = run(Op::adamw, AdamWAttrs{}, in, {{1}, {1}, {1}});
    for (size_t i = 0; i < 3; ++i) in[i] = reals({out[i][0]});
  }
  EXPECT_NEAR(in[0].values[0], 0.94, 1e-5);
  OpCase cast{.op = Op::cast, .attrs = NoAttrs{}, .precision = Dtype::bf16};
  cast.in = cast.out = {{.kind = Operand::Kind::real, .shape = {1}}};
  cast.out[0].dtype = Dtype::bf16;
  const Inputs master{in[0]};
  KernelRunner runner(*find_kernel(kernel_table(GetParam()), Op::cast), cast, master, kernel_table(GetParam()).nr);
  EXPECT_EQ(from_storage(cast.out[0], runner.run(whole, {})[0], 1)[0], 0.94140625f);
}

TEST_P(KernelValues, AdamWWithoutGradientOnlyDecays) {
  for (double eps : {1e-8, 0.0}) {
    const Inputs in = adamw_inputs(20, 0.7, 0.0, 1.0);
    const auto decayed = run(Op::adamw, AdamWAttrs{.eps = eps, .weight_decay = 0.1}, in, {{20}, {20}, {20}});
    const auto kept = run(Op::adamw, AdamWAttrs{.eps = eps}, in, {{20}, {20}, {20}});
    for (size_t i = 0; i < 20; ++i) {
      EXPECT_NEAR(decayed[0][i], 0.7 * 0.99, 1e-7);
      EXPECT_EQ(kept[0][i], 0.7f);
      EXPECT_EQ(kept[1][i], 0.0f);
    }
  }
}

TEST_P(KernelValues, AdamWSkipsAStepThatIsNotFinite) {
  for (double bad : {kNan, kInfinity}) {
    const auto out =
        run(Op::adamw, AdamWAttrs{.weight_decay = 0.1}, adamw_inputs(20, 0.7, 0.3, bad), {{20}, {20}, {20}});
    for (size_t i = 0; i < 20; ++i) {
      EXPECT_EQ(out[0][i], 0.7f);
      EXPECT_EQ(out[1][i], 0.0f);
      EXPECT_EQ(out[2][i], 0.0f);
    }
  }
}

// A weight of 1, gradient 1 at each of 100 steps, lr 6e-4: Adam moves by lr each step.
TEST_P(KernelValues, AdamWMovesByTheLearningRate) {
  Inputs in = adamw_inputs(1, 1.0, 1.0, 1.0);
  for (int t = 1; t <= 100; ++t) {
    in[4] = reals({6e-4, 6e-4 / (1.0 - std::pow(0.9, t)), std::sqrt(1.0 - std::pow(0.999, t))});
    const auto out = run(Op::adamw, AdamWAttrs{}, in, {{1}, {1}, {1}});
    for (size_t i = 0; i < 3; ++i) in[i] = reals({out[i][0]});
  }
  EXPECT_NEAR(in[0].values[0], 0.94, 1e-5);
}

TEST_P(KernelValues, AdamWLeavesPaddingZero) {
  const Shape shape{2, 5};
  const auto matrix = [&](double v) { return reals(shape, std::vector<double>(10, v)); };
  Inputs in = adamw_inputs(1, 0.0, 0.0, 1.0);
  for (size_t i = 0; i < 4; ++i) in[i] = matrix(0.5);
  run(Op::adamw, AdamWAttrs{.eps = 0.0, .weight_decay = 0.1}, in, {shape, shape, shape}, true);  // checks the padding
}

// Many rows of one sign: 64 at most are summed in fp32, so the error is below 64 roundings, where a sequential sum of
// all of them would make thousands.
TEST_P(KernelValues, LongColumnsLoseNothing) {
  const int64_t rows = 100000;
  const Inputs in{reals({rows, 1}, std::vector<double>(static_cast<size_t>(rows), static_cast<double>(0.1f))),
                  reals({rows, 1}, std::vector<double>(static_cast<size_t>(rows), 1.0)),
                  reals({rows}, std::vector<double>(static_cast<size_t>(rows), 0.0)),
                  reals({rows}, std::vector<double>(static_cast<size_t>(rows), 1.0))};
  const auto out = run(Op::layernorm_bwd_params, NoAttrs{}, in, {{1}, {1}});
  const double exact = static_cast<double>(rows) * static_cast<double>(0.1f);
  for (const Floats& sum : out) EXPECT_NEAR(sum[0], exact, exact * 0x1.0p-18);
}

INSTANTIATE_TEST_SUITE_P(Isa, KernelValues, ::testing::ValuesIn(test::tested_isas()),
                         [](const auto& info) { return std::string(isa_name(info.param)); });

}  // namespace
}  // namespace lamina::testing

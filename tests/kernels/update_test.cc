// The ops that update a weight where its gradient is made against the ops apart, on the kernels of every ISA and
// arithmetic: the same bits of W, m, v and the bias's gradient, whatever the cut of the tasks, and squares that are
// those of that gradient. Sizes around the blocks of columns, rows and tokens.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/isas.h"
#include "common/tolerance.h"
#include "graph/schema.h"
#include "kernel_runner.h"
#include "kernels/arithmetic.h"

namespace lamina::testing {
namespace {

using Kind = Operand::Kind;
using Values = std::vector<float>;

struct Size {
  int64_t M, K, N;
};

Operand real(Shape shape, double low = -1.0, double high = 1.0, bool panel = false) {
  return {Kind::real, shape, low, high, panel};
}

ref::RefTensor<double> tensor(const Shape& shape, const Values& values) {
  return {shape, {values.begin(), values.end()}, {}};
}

// One op or three at once, of one size.
class Update {
 public:
  Update(const KernelTable& table, const Size& z, size_t targets, Dtype precision)
      : table_(table), z_(z), targets_(targets), precision_(precision) {
    fused_.op = targets == 1 ? Op::linear_bwd_update : Op::qkv_bwd_update;
    fused_.name = "update";
    fused_.attrs = attrs_;
    fused_.precision = precision;
    const Operand weight = real({z.K, z.N}, -1, 1, true), m = real({z.K, z.N}, -0.1, 0.1, true);
    const Operand v = real({z.K, z.N}, 0.0, 0.01, true), squares = real({z.K, blocks()});
    fused_.in.push_back(real({z.M, z.K}));
    for (size_t t = 0; t < targets; ++t) fused_.in.push_back(real({z.M, z.N}));
    fused_.in.push_back(real({3}, 0.1, 0.9));
    for (size_t t = 0; t < targets; ++t) {
      fused_.in.insert(fused_.in.end(), {weight, m, v});
      fused_.out.insert(fused_.out.end(), {weight, m, v, squares, real({z.N})});
    }
    in_ = make_inputs(fused_);
    round_to_float(in_);
  }

  void expect_composition() {
    const std::vector<Values> fused = run(table_, fused_, in_, whole);
    for (Cut cut : {one_by_one_backwards, three_parts}) EXPECT_EQ(run(table_, fused_, in_, cut), fused);
    const std::vector<Values> gradients = run(table_, params_case(), params_inputs(), whole);
    for (size_t t = 0; t < targets_; ++t) {
      const Values& gradient = gradients[2 * t];
      EXPECT_EQ(fused[5 * t + 4], gradients[2 * t + 1]) << "bias " << t;
      const std::vector<Values> updated =
          run(kernel_table(table_.isa), adamw_case(t), adamw_inputs(t, gradient), whole);
      for (size_t i = 0; i < 3; ++i) EXPECT_EQ(fused[5 * t + i], updated[i]) << "target " << t << ", output " << i;
      expect_squares(fused[5 * t + 3], gradient);
    }
  }

 private:
  int64_t blocks() const { return (z_.N + kSquareColumns - 1) / kSquareColumns; }
  size_t hyper() const { return 1 + targets_; }
  size_t weight(size_t t) const { return hyper() + 1 + 3 * t; }

  static std::vector<Values> run(const KernelTable& table, const OpCase& c, const Inputs& in, Cut cut) {
    const Kernel* kernel = find_kernel(table, c.op);
    const std::vector<GuardedBuffer> out = KernelRunner(*kernel, c, in, table.nr).run(cut, {});
    std::vector<Values> values;
    for (size_t o = 0; o < out.size(); ++o) values.push_back(from_storage(c.out[o], out[o], table.nr));
    return values;
  }

  OpCase params_case() const {
    OpCase c{.op = targets_ == 1 ? Op::linear_bwd_params : Op::qkv_bwd_params, .attrs = NoAttrs{}};
    c.in.assign(fused_.in.begin(), fused_.in.begin() + 1 + static_cast<int64_t>(targets_));
    for (size_t t = 0; t < targets_; ++t) {
      c.in.insert(c.in.end(), 2, Operand{});
      c.out.insert(c.out.end(), {fused_.out[5 * t], fused_.out[5 * t + 4]});
    }
    c.precision = precision_;
    return c;
  }
  Inputs params_inputs() const {
    Inputs in(in_.begin(), in_.begin() + 1 + static_cast<int64_t>(targets_));
    in.resize(in.size() + 2 * targets_);
    return in;
  }
  OpCase adamw_case(size_t t) const {
    const auto first = fused_.in.begin() + static_cast<int64_t>(weight(t));
    OpCase c{.op = Op::adamw, .attrs = attrs_, .in = {first, first + 3}, .out = {first, first + 3}};
    c.in.insert(c.in.end(), {fused_.in[weight(t)], fused_.in[hyper()], Operand{}});
    return c;
  }
  Inputs adamw_inputs(size_t t, const Values& gradient) const {
    const auto first = in_.begin() + static_cast<int64_t>(weight(t));
    Inputs in(first, first + 3);
    in.insert(in.end(), {tensor({z_.K, z_.N}, gradient), in_[hyper()], ref::RefTensor<double>{}});
    return in;
  }

  void expect_squares(const Values& got, const Values& gradient) const {
    for (int64_t k = 0; k < z_.K; ++k)
      for (int64_t b = 0; b < blocks(); ++b) {
        double sum = 0.0;
        for (int64_t n = b * kSquareColumns; n < std::min(z_.N, (b + 1) * kSquareColumns); ++n)
          sum += std::pow(static_cast<double>(gradient[static_cast<size_t>(k * z_.N + n)]), 2);
        EXPECT_LE(excess(static_cast<double>(got[static_cast<size_t>(k * blocks() + b)]), ref::Mag(sum),
                         static_cast<double>(kSquareColumns), 0.0),
                  1.0)
            << "squares of row " << k << ", block " << b;
      }
  }

  const KernelTable& table_;
  Size z_;
  size_t targets_;
  Dtype precision_;
  AdamWAttrs attrs_{.weight_decay = 0.1};
  OpCase fused_;
  Inputs in_;
};

constexpr Size kSizes[] = {{1, 1, 1},    {5, 7, 9},     {17, 191, 15},  {16, 192, 383}, {9, 193, 384},
                           {7, 50, 385}, {255, 13, 48}, {257, 197, 49}, {300, 33, 771}, {3, 1539, 19}};

TEST(Update, HasTheBitsOfTheOpsApart) {
  for (const KernelTable* table : test::tested_tables())
    for (const Size& z : kSizes)
      for (size_t targets : {size_t{1}, size_t{3}}) {
        const Dtype precision = table->arithmetic == Arithmetic::f32 ? Dtype::f32 : Dtype::bf16;
        SCOPED_TRACE(fmt::format("{} {} {}x{}x{}, {} targets", isa_name(table->isa), arithmetic_name(table->arithmetic),
                                 z.M, z.K, z.N, targets));
        Update(*table, z, targets, precision).expect_composition();
      }
}

TEST(Update, RoundsItsOperandsAsTheOpsApart) {
  for (const KernelTable* table : test::tested_tables())
    if (table->arithmetic == Arithmetic::f32) Update(*table, {67, 35, 131}, 3, Dtype::f16).expect_composition();
}

// What is not finite in the gradient is in the squares of its row and block.
TEST(Update, SquaresShowWhatIsNotFinite) {
  const KernelTable& table = kernel_table(select_isa());
  for (float bad : {INFINITY, -INFINITY, std::nanf("")}) {
    OpCase c{.op = Op::linear_bwd_update, .attrs = AdamWAttrs{}};
    const Operand weight = real({3, 400}, 0, 1, true);
    c.in = {real({2, 3}), real({2, 400}), real({3}, 0.1, 0.9), weight, weight, weight};
    c.out = {weight, weight, weight, real({3, 2}), real({400})};
    Inputs in = make_inputs(c);
    round_to_float(in);
    for (double& x : in[0].values) x = 1.0;
    in[1].values[390] = bad;
    const auto out = KernelRunner(*find_kernel(table, c.op), c, in, table.nr).run(whole, {});
    const Values squares = from_storage(c.out[3], out[3], table.nr);
    for (size_t i = 0; i < squares.size(); ++i) EXPECT_EQ(std::isfinite(squares[i]), i % 2 == 0) << i;
  }
}

}  // namespace
}  // namespace lamina::testing

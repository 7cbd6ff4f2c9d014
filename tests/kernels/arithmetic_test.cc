// Products in bf16dot and f16chunk beyond what all kernels are tested for: f16chunk keeps to its own bound where
// numbers of very different size meet, what is not finite comes out so and spoils nothing else, and the emulations give
// the bits of the instructions where a processor has them; and which arithmetic is chosen.
#include "kernels/arithmetic.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "base/rng.h"
#include "common/isas.h"
#include "common/tolerance.h"
#include "kernel_runner.h"
#include "kernels/peak.h"

namespace lamina::testing {
namespace {

// Rows of numbers whose sizes differ by 2^20 within a row and by 2^60 between rows.
ref::RefTensor<double> uneven(const Shape& shape, uint64_t seed) {
  Rng rng(seed);
  ref::RefTensor<double> t{shape, {}, {}};
  for (int64_t r = 0; r < shape[0]; ++r) {
    const int row = static_cast<int>(rng.below(61)) - 30;
    for (int64_t c = 0; c < shape[1]; ++c) {
      const double x = std::ldexp(rng.uniform() * 2.0 - 1.0, row - static_cast<int>(rng.below(20)));
      t.values.push_back(round_to(x, Dtype::bf16));
    }
  }
  return t;
}

// One product as f16chunk sees it: sums over k of a(i, k) * b(k, j), rows i of `a` broadcast.
struct Product {
  Op op;
  int64_t rows, terms, columns;
  int64_t chunk;
  double (*a)(const Inputs& in, int64_t i, int64_t k);
  double (*b)(const Inputs& in, int64_t k, int64_t j);
  bool transposed;  // the output is (columns, rows)
};

double element(const ref::RefTensor<double>& t, int64_t r, int64_t c) {
  return t.values[static_cast<size_t>(r * t.shape[1] + c)];
}

Product forward(int64_t M, int64_t K, int64_t N) {
  return {Op::linear,
          M,
          K,
          N,
          768,
          [](const Inputs& in, int64_t i, int64_t k) { return element(in[0], i, k); },
          [](const Inputs& in, int64_t k, int64_t j) { return element(in[1], k, j); },
          false};
}
Product input_gradient(int64_t M, int64_t K, int64_t N) {
  return {Op::linear_bwd_input,
          K,
          N,
          M,
          384,
          [](const Inputs& in, int64_t i, int64_t k) { return element(in[1], i, k); },
          [](const Inputs& in, int64_t k, int64_t j) { return element(in[0], j, k); },
          true};
}
Product weight_gradient(int64_t M, int64_t K, int64_t N) {
  return {Op::linear_bwd_weight,
          K,
          M,
          N,
          256,
          [](const Inputs& in, int64_t i, int64_t k) { return element(in[0], k, i); },
          [](const Inputs& in, int64_t k, int64_t j) { return element(in[1], k, j); },
          false};
}

double scale_for(double largest) { return largest == 0.0 ? 1.0 : std::ldexp(1.0, 3 - std::ilogb(largest)); }

struct Expected {
  ref::Mag sum;
  double more = 0.0;  // what the bound allows beside that of fp32
};

// The chunk of output (i, j) from k on.
void add_chunk(const Product& p, const Inputs& in, int64_t i, int64_t j, int64_t k, double b_largest, Expected& e) {
  const int64_t end = std::min(p.terms, k + p.chunk);
  double a_largest = 0.0, a_sum = 0.0, b_sum = 0.0;
  ref::Mag sum;
  for (int64_t at = k; at < end; ++at) {
    const double a = p.a(in, i, at), b = p.b(in, at, j);
    a_largest = std::max(a_largest, std::abs(a));
    a_sum += std::abs(a);
    b_sum += std::abs(b);
    sum += ref::Mag(a) * ref::Mag(b);
  }
  const double terms = static_cast<double>(end - k);
  e.sum += sum;
  e.more += half_chunk_error(sum, terms, 128.0) +
            half_chunk_lost(a_sum, b_sum, scale_for(a_largest), scale_for(b_largest), terms);
}

// The largest magnitude of b in the chunk from k on, among the 96 columns that are scaled together with j.
double largest_of_group(const Product& p, const Inputs& in, int64_t j, int64_t k) {
  double largest = 0.0;
  const int64_t first = j / 96 * 96;
  for (int64_t column = first; column < std::min(p.columns, first + 96); ++column)
    for (int64_t at = k; at < std::min(p.terms, k + p.chunk); ++at)
      largest = std::max(largest, std::abs(p.b(in, at, column)));
  return largest;
}

OpCase case_of(const Product& p, const Inputs& in) {
  const auto operand = [](const Shape& shape, bool panel) { return Operand{Operand::Kind::real, shape, 0, 0, panel}; };
  OpCase c;
  c.op = p.op;
  c.precision = Dtype::bf16;
  c.in = {operand(in[0].shape, false), operand(in[1].shape, p.op != Op::linear_bwd_weight)};
  c.out = {operand(p.transposed ? Shape{p.columns, p.rows} : Shape{p.rows, p.columns}, p.op == Op::linear_bwd_weight)};
  return c;
}

std::vector<float> result(const KernelTable& table, const OpCase& c, const Inputs& in) {
  const std::vector<GuardedBuffer> out = KernelRunner(*find_kernel(table, c.op), c, in, table.nr).run(whole, {});
  return from_storage(c.out[0], out[0], table.nr);
}

void expect_f16chunk_bound(const KernelTable& table, const Product& p, const Inputs& in) {
  SCOPED_TRACE(find_kernel(table, p.op)->id);
  const std::vector<float> got = result(table, case_of(p, in), in);
  double worst = 0.0;
  for (int64_t j = 0; j < p.columns; ++j) {
    std::vector<double> largest;
    for (int64_t k = 0; k < p.terms; k += p.chunk) largest.push_back(largest_of_group(p, in, j, k));
    for (int64_t i = 0; i < p.rows; ++i) {
      Expected e;
      for (int64_t k = 0; k < p.terms; k += p.chunk)
        add_chunk(p, in, i, j, k, largest[static_cast<size_t>(k / p.chunk)], e);
      const float y = got[static_cast<size_t>(p.transposed ? j * p.rows + i : i * p.columns + j)];
      worst =
          std::max(worst, excess(static_cast<double>(y), e.sum, static_cast<double>(p.terms), 0.0, Dtype::f32, e.more));
    }
  }
  EXPECT_LE(worst, 1.0);
}

std::vector<const KernelTable*> tables_of(Arithmetic arithmetic) {
  std::vector<const KernelTable*> tables;
  for (const KernelTable* table : test::tested_tables())
    if (table->arithmetic == arithmetic) tables.push_back(table);
  return tables;
}

TEST(F16Chunk, KeepsToItsBoundWhereNumbersDifferInSize) {
  struct Sizes {
    int64_t M, K, N;
  };
  for (const auto& [M, K, N] : {Sizes{9, 800, 101}, {101, 19, 400}, {270, 13, 99}})
    for (const KernelTable* table : tables_of(Arithmetic::f16chunk)) {
      const auto x = uneven({M, K}, 1), w = uneven({K, N}, 2), dy = uneven({M, N}, 3);
      expect_f16chunk_bound(*table, forward(M, K, N), {x, w});
      expect_f16chunk_bound(*table, input_gradient(M, K, N), {dy, w});
      expect_f16chunk_bound(*table, weight_gradient(M, K, N), {x, dy});
    }
}

ref::RefTensor<double> normal(const Shape& shape, double deviation, uint64_t seed) {
  Rng rng(seed);
  ref::RefTensor<double> t{shape, {}, {}};
  for (int64_t i = 0; i < shape.elements(); ++i) t.values.push_back(round_to(deviation * rng.normal(), Dtype::f32));
  return t;
}

// Of a product of fp32 operands, root of the mean square of what is wrong over that of what is right.
double relative_rms(const KernelTable& table, const Product& p, const Inputs& in) {
  const std::vector<float> got = result(table, case_of(p, in), in);
  double wrong = 0.0, right = 0.0;
  for (int64_t i = 0; i < p.rows; ++i)
    for (int64_t j = 0; j < p.columns; ++j) {
      double sum = 0.0;
      for (int64_t k = 0; k < p.terms; ++k) sum += p.a(in, i, k) * p.b(in, k, j);
      const double y = static_cast<double>(got[static_cast<size_t>(p.transposed ? j * p.rows + i : i * p.columns + j)]);
      wrong += (y - sum) * (y - sum);
      right += sum * sum;
    }
  return std::sqrt(wrong / right);
}

// The sums of fp16 lose less than what fp16 keeps of the operands beyond bf16: with numbers as in a GPT-2, K of 124M.
TEST(F16Chunk, IsNoFurtherFromTheTruthThanBf16) {
  for (const auto& [M, K, N] : {std::array<int64_t, 3>{32, 768, 96}, {32, 3072, 48}, {768, 96, 48}}) {
    const auto x = normal({M, K}, 1.0, 1), w = normal({K, N}, 0.02, 2), dy = normal({M, N}, 1e-4, 3);
    const KernelTable &half = *tables_of(Arithmetic::f16chunk)[0], &bf16 = *tables_of(Arithmetic::bf16dot)[0];
    const std::pair<Product, Inputs> products[] = {
        {forward(M, K, N), {x, w}}, {input_gradient(M, K, N), {dy, w}}, {weight_gradient(M, K, N), {x, dy}}};
    for (const auto& [product, in] : products) {
      const double own = relative_rms(half, product, in), other = relative_rms(bf16, product, in);
      EXPECT_LE(own, other) << op_name(product.op) << " over " << product.terms << " terms";
      RecordProperty(fmt::format("{}_{}", op_name(product.op), product.terms),
                     fmt::format("{:.2e} {:.2e}", own, other));
    }
  }
}

// Sums of the largest magnitudes, all of one sign, stay finite.
TEST(F16Chunk, DoesNotOverflowInTheMiddle) {
  for (const KernelTable* table : tables_of(Arithmetic::f16chunk))
    for (double most : {0x1.FEp3, 0x1.FEp-90, 0x1.FEp60}) {
      const auto filled = [](const Shape& shape, double value) {
        return ref::RefTensor<double>{shape, std::vector<double>(static_cast<size_t>(shape.elements()), value), {}};
      };
      const Inputs in = {filled({3, 800}, most), filled({800, 50}, 0x1.FEp3)};
      expect_f16chunk_bound(*table, forward(3, 800, 50), in);
    }
}

TEST(Arithmetics, LetNothingButItsOwnRowOrColumnFeelWhatIsNotFinite) {
  const int64_t M = 11, K = 37, N = 100;
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (Arithmetic arithmetic : {Arithmetic::bf16dot, Arithmetic::f16chunk})
    for (const KernelTable* table : tables_of(arithmetic))
      for (float bad : {inf, -inf, nan}) {
        const Product p = forward(M, K, N);
        Inputs in = {uneven({M, K}, 4), uneven({K, N}, 5)};
        const std::vector<float> before = result(*table, case_of(p, in), in);
        in[0].values[static_cast<size_t>(3 * K + 36)] = static_cast<double>(bad);
        in[1].values[static_cast<size_t>(5 * N + 98)] = static_cast<double>(bad);
        const std::vector<float> got = result(*table, case_of(p, in), in);
        for (int64_t m = 0; m < M; ++m)
          for (int64_t n = 0; n < N; ++n) {
            const size_t at = static_cast<size_t>(m * N + n);
            if (m == 3 || n == 98)
              EXPECT_FALSE(std::isfinite(got[at])) << m << ", " << n;
            else
              EXPECT_EQ(got[at], before[at]) << m << ", " << n;
          }
      }
}

TEST(Arithmetics, GiveZeroOfZeros) {
  for (Arithmetic arithmetic : {Arithmetic::bf16dot, Arithmetic::f16chunk})
    for (const KernelTable* table : tables_of(arithmetic)) {
      Inputs in = {uneven({5, 33}, 6), uneven({33, 40}, 7)};
      for (double& x : in[0].values) x = 0.0;
      for (float y : result(*table, case_of(forward(5, 33, 40), in), in)) EXPECT_EQ(y, 0.0f);
    }
}

Arithmetic chosen(const ProductSpeeds& speeds, Dtype precision, bool own_products = false) {
  return choose_arithmetic(speeds, precision, own_products).arithmetic;
}

TEST(ChooseArithmetic, FollowsTheTableOfCpus) {
  const ProductSpeeds none, zen4{.bf16dot = true, .fast_bf16 = true}, emerald{.bf16dot = true, .f16chunk = true};
  for (Dtype precision : {Dtype::f32, Dtype::bf16, Dtype::f16}) EXPECT_EQ(chosen(none, precision), Arithmetic::f32);
  EXPECT_EQ(chosen(zen4, Dtype::f32), Arithmetic::f32);
  EXPECT_EQ(chosen(zen4, Dtype::bf16), Arithmetic::bf16dot);
  EXPECT_EQ(chosen(zen4, Dtype::f16), Arithmetic::f32);
  EXPECT_EQ(chosen(emerald, Dtype::bf16), Arithmetic::f16chunk);
  EXPECT_EQ(chosen(emerald, Dtype::f16), Arithmetic::f32);
  EXPECT_EQ(chosen(emerald, Dtype::bf16, true), Arithmetic::f32);
}

TEST(ChooseArithmetic, LetsAMeasurementOverruleWhatIsFarOffAndSaysSo) {
  ProductSpeeds speeds{.bf16dot = true, .f32_gflops = 100.0, .bf16dot_gflops = 149.0};
  EXPECT_EQ(chosen(speeds, Dtype::bf16), Arithmetic::f32);
  speeds.bf16dot_gflops = 200.0;
  const ArithmeticChoice overruled = choose_arithmetic(speeds, Dtype::bf16, false);
  EXPECT_EQ(overruled.arithmetic, Arithmetic::bf16dot);
  EXPECT_EQ(overruled.why, "measured at 2.00 times the rate of f32, which the table of CPUs names");
  EXPECT_EQ(chosen(speeds, Dtype::f16), Arithmetic::f32);  // never in another type
  speeds = {.bf16dot = true, .fast_bf16 = true, .f32_gflops = 100.0, .bf16dot_gflops = 50.0};
  EXPECT_EQ(chosen(speeds, Dtype::bf16), Arithmetic::f32);
}

TEST(ChooseArithmetic, TakesHereWhatThisProcessorHas) {
  for (Isa isa : test::tested_isas())
    for (Dtype precision : {Dtype::f32, Dtype::bf16, Dtype::f16})
      for (bool own_products : {false, true}) {
        const ArithmeticChoice choice = choose_arithmetic(isa, precision, own_products);
        EXPECT_TRUE(has_instructions(isa, choice.arithmetic));
        EXPECT_FALSE(choice.why.empty());
      }
  EXPECT_EQ(choose_arithmetic(Isa::portable, Dtype::bf16, false).arithmetic, Arithmetic::f32);
}

TEST(Peaks, AreThereForWhatHasInstructions) {
  ThreadTeam team(1);
  for (Isa isa : test::tested_isas())
    for (Arithmetic arithmetic : {Arithmetic::f32, Arithmetic::bf16dot, Arithmetic::f16chunk}) {
      const std::optional<double> peak = product_peak_gflops(isa, arithmetic, team, 0.0);
      EXPECT_EQ(peak.has_value(), has_instructions(isa, arithmetic));
      EXPECT_GT(peak.value_or(1.0), 0.0);
    }
}

// No function that the rungs compute by other steps stands after the sums.
bool is_sums_only(Op op) {
  return op == Op::linear || op == Op::linear_dropout || op == Op::linear_bwd_input || op == Op::linear_bwd_weight ||
         op == Op::linear_bwd_params || op == Op::qkv_bwd_input || op == Op::qkv_bwd_params;
}

// Of fp16. What processors do inside a pair of bf16 is not said of all of them: there the bound of the table of cases
// holds.
TEST(Emulation, GivesTheBitsOfTheInstructions) {
  constexpr Arithmetic kHalves = Arithmetic::f16chunk;
  if (!cpu_has(Isa::avx512, kHalves)) GTEST_SKIP() << "this processor has no such instructions";
  const KernelTable& emulated = *kernel_table(Isa::portable, kHalves);
  const KernelTable& real = *kernel_table(Isa::avx512, kHalves);
  for (const OpCase& c : op_cases()) {
    if (c.precision != Dtype::bf16 || !is_sums_only(c.op)) continue;
    SCOPED_TRACE(c.name);
    Inputs in = make_inputs(c);
    round_to_float(in);
    const auto want = KernelRunner(*find_kernel(emulated, c.op), c, in, emulated.nr).run(whole, {});
    const auto got = KernelRunner(*find_kernel(real, c.op), c, in, real.nr).run(whole, {});
    for (size_t o = 0; o < got.size(); ++o)
      EXPECT_EQ(from_storage(c.out[o], got[o], real.nr), from_storage(c.out[o], want[o], emulated.nr));
  }
}

}  // namespace
}  // namespace lamina::testing

// Every kernel of every ISA that this processor has, on every case of its op: against the reference in double within
// the computed bound, bit-equal however the tasks are cut and where outputs lie on inputs, and never outside its
// buffers; with 16-bit operands bit-equal to fp32.
#include <gtest/gtest.h>

#include <bit>
#include <set>

#include "common/isas.h"
#include "common/tolerance.h"
#include "graph/schema.h"
#include "kernel_runner.h"
#include "kernels/arithmetic.h"
#include "kernels/ref/math.h"

namespace lamina::testing {
namespace {

struct Truth {
  Inputs in;
  Inputs rounded;  // what the kernel makes of them
  std::vector<ref::RefTensor<ref::Mag>> out;
};

Truth truth_of(const OpCase& c) {
  Truth truth{make_inputs(c), {}, {}};
  round_to_float(truth.in);
  for (size_t i = 0; i < c.in.size(); ++i) ref::round_values(truth.in[i], c.in[i].dtype);
  truth.rounded = truth.in;
  round_operands(c, truth.rounded);
  truth.out = run_reference<ref::Mag>(c, truth.rounded);
  return truth;
}

// The truth without roundings: products in fp16 round operands that are fp32 in memory to fp16 alone.
Truth unrounded_truth_of(OpCase c) {
  Truth truth = truth_of(c);
  c.precision = Dtype::f32;
  truth.out = run_reference<ref::Mag>(c, truth.in);
  return truth;
}

ref::Mag total_of(const ref::RefTensor<ref::Mag>& t) {
  ref::Mag total;
  for (const ref::Mag& x : t.values) total += x;
  return total;
}

// What products in fp16 may be off by besides: their own roundings, those of numbers that are rounded inside the op,
// two at most, to bf16 or better, and what scaling loses of operands no larger than `most`.
double half_error(const OpCase& c, const ref::Mag& exact) {
  double most = 1.0;
  for (const Operand& operand : c.in)
    if (operand.kind == Operand::Kind::real) most = std::max({most, std::abs(operand.low), std::abs(operand.high)});
  most *= std::sqrt(c.terms);  // of what was normalized
  return half_chunk_error(exact, c.terms, 128.0) + 0x1.0p-8 * exact.mag +
         half_chunk_lost(c.terms * most, c.terms * most, 8.0 / most, 8.0 / most, c.terms);
}

bool is_attention(Op op) { return op == Op::attention || op == Op::attention_cached || op == Op::attention_bwd; }

// What output o may be off by besides in this arithmetic.
double error_of(Arithmetic arithmetic, const OpCase& c, size_t o, const ref::Mag& exact) {
  if (arithmetic == Arithmetic::f16chunk) return half_error(c, exact);
  const bool sum_of_rounded = is_attention(c.op) && (o == 0 || c.op == Op::attention_bwd);
  return arithmetic == Arithmetic::bf16dot && sum_of_rounded ? rounded_factor_error(exact) : 0.0;
}

// Returns the largest error in units of its bound.
double expect_close(const OpCase& c, const std::vector<float>& got, const ref::RefTensor<ref::Mag>& exact,
                    size_t output, Arithmetic arithmetic) {
  if (c.only_total) {
    double total = 0.0;
    for (float x : got) total += static_cast<double>(x);
    const double e = excess(total, total_of(exact), c.terms, c.ulps);
    EXPECT_LE(e, 1.0) << total << ", expected " << total_of(exact).value;
    return e;
  }
  EXPECT_EQ(got.size(), exact.values.size());
  double worst = 0.0;
  size_t at = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double more = error_of(arithmetic, c, output, exact.values[i]);
    const double e = excess(static_cast<double>(got[i]), exact.values[i], c.terms, c.ulps, c.out[output].dtype, more);
    if (e > worst) worst = e, at = i;
  }
  EXPECT_LE(worst, 1.0) << "output " << output << "[" << at << "] is " << got[at] << ", expected "
                        << exact.values[at].value << " with terms of " << exact.values[at].mag;
  return worst;
}

void expect_same_bits(const std::vector<GuardedBuffer>& got, const std::vector<GuardedBuffer>& want, const char* what) {
  for (size_t o = 0; o < got.size(); ++o) EXPECT_TRUE(got[o].equals(want[o].data())) << "output " << o << ", " << what;
}

// One alias at a time, and one for every output at once.
std::vector<Aliases> alias_choices(const OpCase& c) {
  std::vector<Aliases> choices;
  Aliases all;
  std::set<int> taken;
  for (const auto& alias : c.in_place) {
    choices.push_back({alias});
    if (taken.insert(alias.first).second) all.push_back(alias);
  }
  if (all.size() > 1) choices.push_back(all);
  return choices;
}

double test_case(const KernelTable& table, const Kernel& kernel, const OpCase& c, const Truth& truth) {
  const int32_t nr = table.nr;
  KernelRunner runner(kernel, c, truth.in, nr);
  const std::vector<GuardedBuffer> out = runner.run(whole, {});
  double worst = 0.0;
  for (size_t o = 0; o < out.size(); ++o)
    if (!c.out[o].workspace)
      worst = std::max(worst, expect_close(c, from_storage(c.out[o], out[o], nr), truth.out[o], o, table.arithmetic));
  expect_same_bits(runner.run(one_by_one_backwards, {}), out, "tasks one by one, backwards");
  expect_same_bits(runner.run(three_parts, {}), out, "tasks in three parts");
  for (const Aliases& aliases : alias_choices(c)) expect_same_bits(runner.run(whole, aliases), out, "in place");
  return worst;
}

// Nothing is rounded between the parts of the op, so that it differs from fp32 at its operands and results only.
bool rounds_at_its_ends(const OpCase& c) {
  if (c.op == Op::linear_qkv) return c.in[1].kind == Operand::Kind::absent;  // no layernorm before the product
  return c.op != Op::linear_gelu && c.op != Op::head && c.op != Op::head_loss;
}

// In 16 bits the kernel sums what fp32 sums of rounded operands, in the same order; what it stores in 16 bits is that,
// rounded.
void expect_bits_of_fp32(const Kernel& kernel, const OpCase& c, const Truth& truth, int32_t nr) {
  OpCase wide = c;
  wide.precision = Dtype::f32;
  for (std::vector<Operand>* operands : {&wide.in, &wide.out})
    for (Operand& operand : *operands) operand.dtype = Dtype::f32;
  const std::vector<GuardedBuffer> got = KernelRunner(kernel, c, truth.in, nr).run(whole, {});
  const std::vector<GuardedBuffer> want = KernelRunner(kernel, wide, truth.rounded, nr).run(whole, {});
  for (size_t o = 0; o < got.size(); ++o) {
    if (c.out[o].workspace) continue;
    const std::vector<float> a = from_storage(c.out[o], got[o], nr);
    std::vector<float> b = from_storage(wide.out[o], want[o], nr);
    for (float& x : b) x = round_to(x, c.out[o].dtype);
    for (size_t i = 0; i < a.size(); ++i)
      ASSERT_EQ(std::bit_cast<uint32_t>(a[i]), std::bit_cast<uint32_t>(b[i])) << "output " << o << "[" << i << "]";
  }
}

// Tables of other arithmetics than f32 hold products with 16-bit operands, bf16dot those of attention too. f16chunk,
// which is slow where it is emulated, gets bf16 from fp32 in memory and fp16 from fp16: all ways of preparing an
// operand but one that they share.
bool takes(Arithmetic arithmetic, const OpCase& c) {
  if (arithmetic == Arithmetic::f32) return true;
  const bool product = schema(c.op).work.kind == WorkKind::gemm;
  if (arithmetic == Arithmetic::bf16dot) return c.precision == Dtype::bf16 && (product || is_attention(c.op));
  const bool in_16_bits = std::any_of(c.in.begin(), c.in.end(), [](const Operand& o) { return is_16_bit(o.dtype); });
  return product && is_16_bit(c.precision) && in_16_bits == (c.precision == Dtype::f16);
}

class Kernels : public ::testing::TestWithParam<Op> {};

TEST_P(Kernels, AgreeWithTheReference) {
  double worst = 0.0;
  for (const OpCase& c : op_cases()) {
    if (c.op != GetParam()) continue;
    const Truth truth = truth_of(c);
    for (const KernelTable* table : test::tested_tables()) {
      if (!takes(table->arithmetic, c)) continue;
      const Kernel* kernel = find_kernel(*table, c.op);
      ASSERT_NE(kernel, nullptr) << op_name(c.op) << " " << isa_name(table->isa);
      SCOPED_TRACE(std::string(kernel->id) + ": " + c.name);
      const bool halves = table->arithmetic == Arithmetic::f16chunk;
      worst = std::max(worst, test_case(*table, *kernel, c, halves ? unrounded_truth_of(c) : truth));
      if (table->arithmetic == Arithmetic::f32 && c.precision != Dtype::f32 && rounds_at_its_ends(c))
        expect_bits_of_fp32(*kernel, c, truth, table->nr);
    }
  }
  RecordProperty("worst_error_in_bounds", std::to_string(worst));
}

std::vector<Op> ops_with_kernels() {
  std::vector<Op> ops;
  for (int i = 0; i < kOpCount; ++i)
    if (const Op op = static_cast<Op>(i); op != Op::branch && op != Op::reshape) ops.push_back(op);
  return ops;
}

INSTANTIATE_TEST_SUITE_P(All, Kernels, ::testing::ValuesIn(ops_with_kernels()),
                         [](const auto& info) { return std::string(op_name(info.param)); });

TEST(KernelTables, HaveARowAndACaseForEveryOp) {
  std::set<Op> rows;
#define KERNEL(op, arithmetic) rows.insert(Op::op);
#include "kernels/kernels.def"
#undef KERNEL
  std::set<Op> cases;
  for (const OpCase& c : op_cases()) cases.insert(c.op);
  for (Op op : ops_with_kernels()) {
    EXPECT_TRUE(rows.contains(op)) << "no row in kernels.def: " << op_name(op);
    EXPECT_TRUE(cases.contains(op)) << "no case: " << op_name(op);
  }
}

TEST(KernelTables, NameEveryKernelOnce) {
  std::set<std::string> ids;
  for (const KernelTable* table : test::tested_tables())
    for (const Kernel* kernel : table->kernels) {
      EXPECT_TRUE(ids.insert(kernel->id).second) << kernel->id;
      EXPECT_EQ(find_kernel_by_id(kernel->id), kernel);
      EXPECT_NE(std::string(kernel->id).find(isa_name(table->isa)), std::string::npos) << kernel->id;
    }
  EXPECT_EQ(find_kernel_by_id("gelu.f32.abacus"), nullptr);
}

TEST(OpCases, HaveManyProductsWhoseBitsAreThoseOfFp32) {
  int cases = 0;
  for (const OpCase& c : op_cases())
    cases += is_16_bit(c.precision) && schema(c.op).work.kind == WorkKind::gemm && rounds_at_its_ends(c);
  EXPECT_GT(cases, 100);
}

TEST(OpCases, HaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const OpCase& c : op_cases()) EXPECT_TRUE(names.insert(c.name).second) << c.name;
}

}  // namespace
}  // namespace lamina::testing

// A product in fp32 arithmetic with 16-bit operands gives the bits of the product of the operands rounded before,
// whether they are stored in 16 bits or not; a result that is stored in 16 bits is that of fp32, rounded.
#include <gtest/gtest.h>

#include "graph/schema.h"
#include "kernel_runner.h"

namespace lamina::testing {
namespace {

// Nothing inside the op is rounded but its operands: no layernorm, no GELU, no cross entropy before a product.
bool is_plain(const OpCase& c) {
  switch (c.op) {
    case Op::linear:
    case Op::linear_dropout:
    case Op::linear_bwd_input:
    case Op::linear_bwd_gelu:
    case Op::linear_bwd_weight:
    case Op::linear_bwd_params:
    case Op::qkv_bwd_input:
    case Op::qkv_bwd_params: return true;
    case Op::linear_qkv: return c.in[1].kind == Operand::Kind::absent;
    default: return false;
  }
}

OpCase in_fp32(OpCase c) {
  c.precision = Dtype::f32;
  for (Operand& operand : c.in) operand.dtype = Dtype::f32;
  for (Operand& operand : c.out) operand.dtype = Dtype::f32;
  return c;
}

void expect_bits_of_rounded_operands(Isa isa, const OpCase& c) {
  SCOPED_TRACE(std::string(isa_name(isa)) + ": " + c.name);
  const KernelTable& table = kernel_table(isa);
  Inputs in = make_inputs(c);
  round_to_float(in);
  const std::vector<GuardedBuffer> got = KernelRunner(*find_kernel(table, c.op), c, in, table.nr).run(whole, {});
  round_operands(c, in);
  const OpCase wide = in_fp32(c);
  const std::vector<GuardedBuffer> want = KernelRunner(*find_kernel(table, c.op), wide, in, table.nr).run(whole, {});
  for (size_t o = 0; o < got.size(); ++o) {
    std::vector<float> expected = from_storage(wide.out[o], want[o], table.nr);
    for (float& x : expected) x = round_to(x, c.out[o].dtype);
    EXPECT_EQ(from_storage(c.out[o], got[o], table.nr), expected) << "output " << o;
  }
}

TEST(NarrowProducts, HaveTheBitsOfProductsOfRoundedOperands) {
  int cases = 0;
  for (const OpCase& c : op_cases()) {
    if (!is_16_bit(c.precision) || !is_plain(c)) continue;
    ++cases;
    for (Isa isa : available_isas()) expect_bits_of_rounded_operands(isa, c);
  }
  EXPECT_GT(cases, 100);
}

}  // namespace
}  // namespace lamina::testing

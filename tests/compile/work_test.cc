// Operations and bytes of ops and of whole plans, against what can be counted by hand.
#include <gtest/gtest.h>

#include "common/tiny.h"
#include "compile.h"
#include "graph/schema.h"
#include "plan/cost.h"

namespace lamina {
namespace {

WorkOperand operand(const Shape& shape, int32_t storage = -1) { return {{shape, Dtype::f32, {}}, storage}; }

Work work_of(Op op, const std::vector<WorkOperand>& in, const std::vector<WorkOperand>& out) {
  return lamina::work_of(op, default_attrs(op), in, out);
}

TEST(Work, ProductsAndTheirOperands) {
  const WorkOperand x = operand({2, 3, 5}), w = operand({5, 7}), y = operand({2, 3, 7}), none;
  const Work forward = work_of(Op::linear, std::vector{x, w, none, none}, std::vector{y});
  EXPECT_EQ(forward.operations, 2.0 * 6 * 5 * 7);
  EXPECT_EQ(forward.read, 4.0 * (30 + 35));
  EXPECT_EQ(forward.written, 4.0 * 42);
  EXPECT_EQ(work_of(Op::linear_bwd_input, std::vector{y, w, none}, std::vector{x}).operations, forward.operations);
  EXPECT_EQ(work_of(Op::linear_bwd_weight, std::vector{x, y, none}, std::vector{w}).operations, forward.operations);
}

TEST(Work, OfATableOnlyTheRowsThatAreLookedUp) {
  const WorkOperand table = operand({4, 1000}, 1), ids = operand({1, 3}), rows = operand({1, 3, 4});
  const Work lookup = work_of(Op::embedding, std::vector{table, ids}, std::vector{rows});
  EXPECT_EQ(lookup.bytes(), 4.0 * (3 + 12 + 12));
  const Work on_it = work_of(Op::embedding_bwd, std::vector{rows, ids, table}, std::vector{table});
  EXPECT_EQ(on_it.bytes(), 4.0 * (12 + 3 + 12 + 12));
  const Work beside = work_of(Op::embedding_bwd, std::vector{rows, ids, table}, std::vector{operand({4, 1000}, 2)});
  EXPECT_EQ(beside.bytes(), 4.0 * (12 + 3 + 4000 + 4000));
}

TEST(Work, OfAStepIsTheFormulaOfTheModel) {
  const ModelConfig config = test::tiny_config();
  CompileOptions composed{.batch = 3, .seq = 8};  // fused products count what is done to their results too
  composed.pipeline.skip = {"fuse_head", "fuse_gelu", "fuse_gelu_gradient"};
  const Plan plan = compile(config, composed).plan;
  double products = 0.0, all = 0.0;
  for (const PlanStep& step : plan.programs[0].steps) {
    const double operations = work_of(plan, step).operations;
    const bool product = schema(step.op).work.kind == WorkKind::gemm;
    products += product ? operations : 0.0;
    all += operations;
  }
  EXPECT_EQ(products, 6.0 * (12 * 2 * 16 * 16 + 97 * 16) * 3 * 8);
  EXPECT_EQ(work_of(plan, plan.programs[0]).operations, all);
}

}  // namespace
}  // namespace lamina

// linear: y = x W + bias + residual with W (K, N) in panels; and its three gradients, each with an accumulator.
#include "graph/schema.h"

namespace lamina {
namespace {

std::string infer(const InferCall& call) {
  if (std::string wrong = expect_rank("weight", 2, call.shape(1)); !wrong.empty()) return wrong;
  const int64_t K = call.shape(1)[0], N = call.shape(1)[1];
  if (call.shape(0).last() != K) return expect_shape("x", with_last(call.shape(0), K), call.shape(0));
  call.out[0].shape = with_last(call.shape(0), N);
  if (call.has(2))
    if (std::string wrong = expect_shape("bias", Shape{N}, call.shape(2)); !wrong.empty()) return wrong;
  if (call.has(3)) return expect_shape("residual", call.out[0].shape, call.shape(3));
  return {};
}

void gradient(GradientCall& call) {
  const std::string name = call.node.name + ".bwd";
  const ValueId none = ValueId::none, dy = call.dout[0];
  if (call.needs[0]) call.din[0] = call.graph.add1(Op::linear_bwd_input, name + ".input", {dy, call.in(1), none});
  if (call.needs[1])
    call.din[1] = call.graph.add1(Op::linear_bwd_weight, name + ".weight", {call.in(0), dy, none}, NoAttrs{},
                                  TensorClass::gradients);
  if (call.in(2) != none && call.needs[2])
    call.din[2] = call.graph.add1(Op::linear_bwd_bias, name + ".bias", {dy, none}, NoAttrs{}, TensorClass::gradients);
  if (call.in(3) != none && call.needs[3]) call.din[3] = dy;
}

std::string infer_bwd_input(const InferCall& call) {
  const Shape& dy = call.shape(0);
  if (std::string wrong = expect_rank("weight", 2, call.shape(1)); !wrong.empty()) return wrong;
  if (dy.last() != call.shape(1)[1]) return expect_shape("dy", with_last(dy, call.shape(1)[1]), dy);
  call.out[0].shape = with_last(dy, call.shape(1)[0]);
  if (call.has(2)) return expect_shape("acc", call.out[0].shape, call.shape(2));
  return {};
}

std::string infer_bwd_weight(const InferCall& call) {
  const Shape& x = call.shape(0);
  const Shape& dy = call.shape(1);
  call.out[0].shape = {x.last(), dy.last()};
  if (std::string wrong = expect_shape("dy", with_last(x, dy.last()), dy); !wrong.empty()) return wrong;
  if (call.has(2)) return expect_shape("acc", call.out[0].shape, call.shape(2));
  return {};
}

std::string infer_bwd_bias(const InferCall& call) {
  call.out[0].shape = {call.shape(0).last()};
  if (call.has(1)) return expect_shape("acc", call.out[0].shape, call.shape(1));
  return {};
}

// A matrix product: each of its three has the same count.
double operations(const Shape& rows, double in, double out) {
  return 2.0 * static_cast<double>(rows.rows()) * in * out;
}

double work(const WorkCall& call) {
  return operations(call.shape(0), static_cast<double>(call.shape(1)[0]), static_cast<double>(call.shape(1)[1]));
}

double work_bwd_weight(const WorkCall& call) {
  return operations(call.shape(0), static_cast<double>(call.shape(0).last()),
                    static_cast<double>(call.shape(1).last()));
}

}  // namespace

extern const OpSchema schema_linear, schema_linear_bwd_input, schema_linear_bwd_weight, schema_linear_bwd_bias;
const OpSchema schema_linear{.min_inputs = 2,
                             .max_inputs = 4,
                             .optional = 3u << 2,
                             .panel_in = 1u << 1,
                             .operands = 3,
                             .narrow = 1,
                             .infer = infer,
                             .gradient = gradient,
                             .in_place = {{0, 3, InPlace::may}},
                             .work = {WorkKind::gemm, work}};
const OpSchema schema_linear_bwd_input{.min_inputs = 2,
                                       .max_inputs = 3,
                                       .optional = 1u << 2,
                                       .panel_in = 1u << 1,
                                       .operands = 3,
                                       .narrow = 1,
                                       .infer = infer_bwd_input,
                                       .in_place = {{0, 2, InPlace::may}},
                                       .work = {WorkKind::gemm, work}};
const OpSchema schema_linear_bwd_weight{.min_inputs = 2,
                                        .max_inputs = 3,
                                        .optional = 1u << 2,
                                        .panel_in = 1u << 2,
                                        .panel_out = 1,
                                        .operands = 3,
                                        .infer = infer_bwd_weight,
                                        .in_place = {{0, 2, InPlace::may}},
                                        .work = {WorkKind::gemm, work_bwd_weight}};
const OpSchema schema_linear_bwd_bias{.min_inputs = 1,
                                      .max_inputs = 2,
                                      .optional = 1u << 1,
                                      .operands = 1,
                                      .infer = infer_bwd_bias,
                                      .in_place = {{0, 1, InPlace::may}}};

}  // namespace lamina

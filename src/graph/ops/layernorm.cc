// layernorm over the last dimension (Ba, Kiros, Hinton 2016; biased variance, eps inside the root, as PyTorch). Keeps
// mean and 1/deviation of each row for its backward ops.
#include "graph/schema.h"

namespace lamina {
namespace {

std::string infer(const InferCall& call) {
  const Shape& x = call.shape(0);
  if (x.rank < 2) return "x needs a row dimension";
  for (size_t i = 1; i < 3; ++i)
    if (std::string wrong = expect_shape("weight or bias", Shape{x.last()}, call.shape(i)); !wrong.empty())
      return wrong;
  call.out[0].shape = x;
  call.out[1].shape = call.out[2].shape = leading(x);
  return {};
}

void gradient(GradientCall& call) {
  const std::string name = call.node.name + ".bwd";
  const ValueId x = call.in(0), dy = call.dout[0], mean = call.out(1), rstd = call.out(2);
  if (call.needs[0])
    call.din[0] = call.graph.add1(Op::layernorm_bwd_input, name, {dy, x, call.in(1), mean, rstd, ValueId::none});
  if (!call.needs[1] && !call.needs[2]) return;
  const std::vector<ValueId> grads =
      call.graph.add(Op::layernorm_bwd_params, name + ".params", {dy, x, mean, rstd, ValueId::none, ValueId::none},
                     NoAttrs{}, TensorClass::gradients);
  call.din[1] = grads[0];
  call.din[2] = grads[1];
}

std::string check_rows(const InferCall& call, size_t dy, size_t x, size_t mean, size_t rstd) {
  if (std::string wrong = expect_shape("dy", call.shape(x), call.shape(dy)); !wrong.empty()) return wrong;
  if (std::string wrong = expect_shape("mean", leading(call.shape(x)), call.shape(mean)); !wrong.empty()) return wrong;
  return expect_shape("rstd", leading(call.shape(x)), call.shape(rstd));
}

std::string infer_bwd_input(const InferCall& call) {
  call.out[0].shape = call.shape(1);
  if (std::string wrong = check_rows(call, 0, 1, 3, 4); !wrong.empty()) return wrong;
  if (call.has(5)) return expect_shape("acc", call.shape(1), call.shape(5));
  return expect_shape("weight", Shape{call.shape(1).last()}, call.shape(2));
}

std::string infer_bwd_params(const InferCall& call) {
  const Shape params{call.shape(1).last()};
  call.out[0].shape = call.out[1].shape = params;
  for (size_t i = 4; i < 6; ++i)
    if (call.has(i))
      if (std::string wrong = expect_shape("acc", params, call.shape(i)); !wrong.empty()) return wrong;
  return check_rows(call, 0, 1, 2, 3);
}

}  // namespace

extern const OpSchema schema_layernorm, schema_layernorm_bwd_input, schema_layernorm_bwd_params;
const OpSchema schema_layernorm{.min_inputs = 3,
                                .max_inputs = 3,
                                .n_outputs = 3,
                                .narrow = 1,
                                .infer = infer,
                                .gradient = gradient,
                                .work = {WorkKind::elementwise, operations_per_element<16>}};
const OpSchema schema_layernorm_bwd_input{.min_inputs = 5,
                                          .max_inputs = 6,
                                          .optional = 1u << 5,
                                          .infer = infer_bwd_input,
                                          .in_place = {{0, 5, InPlace::may}},
                                          .work = {WorkKind::elementwise, operations_per_element<20>}};
const OpSchema schema_layernorm_bwd_params{.min_inputs = 4,
                                           .max_inputs = 6,
                                           .n_outputs = 2,
                                           .optional = 3u << 4,
                                           .infer = infer_bwd_params,
                                           .in_place = {{0, 4, InPlace::may}, {1, 5, InPlace::may}}};

}  // namespace lamina

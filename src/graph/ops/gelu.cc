// gelu (Hendrycks, Gimpel 2016), exact or by tanh as the configuration says.
#include "graph/schema.h"

namespace lamina {
namespace {

std::string infer(const InferCall& call) {
  call.out[0].shape = call.shape(0);
  return {};
}

void gradient(GradientCall& call) {
  call.din[0] = call.graph.add1(Op::gelu_bwd, call.node.name + ".bwd", {call.dout[0], call.in(0)}, call.node.attrs);
}

std::string infer_bwd(const InferCall& call) {
  call.out[0].shape = call.shape(0);
  return expect_shape("x", call.shape(0), call.shape(1));
}

}  // namespace

extern const OpSchema schema_gelu, schema_gelu_bwd;
const OpSchema schema_gelu{.min_inputs = 1,
                           .max_inputs = 1,
                           .operands = 1,
                           .narrow = 1,
                           .infer = infer,
                           .gradient = gradient,
                           .in_place = {{0, 0, InPlace::may}},
                           .work = {WorkKind::elementwise, operations_per_element<46>}};
const OpSchema schema_gelu_bwd{.min_inputs = 2,
                               .max_inputs = 2,
                               .operands = 2,
                               .narrow = 1,
                               .infer = infer_bwd,
                               .in_place = {{0, 0, InPlace::may}, {0, 1, InPlace::may}},
                               .work = {WorkKind::elementwise, operations_per_element<62>}};

}  // namespace lamina

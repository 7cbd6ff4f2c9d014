// mul: a * b of one shape.
#include "graph/schema.h"

namespace lamina {
namespace {

std::string infer(const InferCall& call) {
  call.out[0] = *call.in[0];
  return expect_shape("operands differ", call.shape(0), call.shape(1));
}

void gradient(GradientCall& call) {
  for (size_t i = 0; i < 2; ++i)
    if (call.needs[i]) call.din[i] = call.graph.add1(Op::mul, call.node.name + ".bwd", {call.dout[0], call.in(1 - i)});
}

}  // namespace

extern const OpSchema schema_mul;
const OpSchema schema_mul{.min_inputs = 2,
                          .max_inputs = 2,
                          .same_layout = true,
                          .infer = infer,
                          .gradient = gradient,
                          .in_place = {{0, 0, InPlace::may}, {0, 1, InPlace::may}}};

}  // namespace lamina

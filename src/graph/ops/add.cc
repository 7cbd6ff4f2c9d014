// add: a + b of one shape.
#include "graph/schema.h"

namespace lamina {
namespace {

std::string infer(const InferCall& call) {
  call.out[0] = *call.in[0];
  return expect_shape("operands differ", call.shape(0), call.shape(1));
}

void gradient(GradientCall& call) {
  call.din[0] = call.dout[0];
  call.din[1] = call.dout[0];
}

}  // namespace

extern const OpSchema schema_add;
const OpSchema schema_add{.min_inputs = 2,
                          .max_inputs = 2,
                          .same_layout = true,
                          .infer = infer,
                          .gradient = gradient,
                          .in_place = {{0, 0, InPlace::may}, {0, 1, InPlace::may}}};

}  // namespace lamina

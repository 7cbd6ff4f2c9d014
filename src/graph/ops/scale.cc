// scale: x times a constant of the configuration.
#include "graph/schema.h"

namespace lamina {
namespace {

std::string infer(const InferCall& call) {
  call.out[0] = *call.in[0];
  return {};
}

void gradient(GradientCall& call) {
  call.din[0] = call.graph.add1(Op::scale, call.node.name + ".bwd", {call.dout[0]}, call.node.attrs);
}

}  // namespace

extern const OpSchema schema_scale;
const OpSchema schema_scale{.min_inputs = 1,
                            .max_inputs = 1,
                            .same_layout = true,
                            .infer = infer,
                            .gradient = gradient,
                            .in_place = {{0, 0, InPlace::may}}};

}  // namespace lamina

// reshape: the same elements under another shape. A view: nothing runs and no byte moves.
#include "graph/schema.h"

namespace lamina {
namespace {

std::string infer(const InferCall& call) {
  const Shape& to = std::get<ExpandAttrs>(call.attrs).shape;
  call.out[0] = {to, call.in[0]->dtype, call.in[0]->layout};
  if (call.in[0]->layout.kind != LayoutKind::row_major) return "a view of a panel has no meaning";
  if (to.elements() != call.shape(0).elements()) return expect_shape("not the same elements", call.shape(0), to);
  return {};
}

void gradient(GradientCall& call) {
  const Shape shape = call.graph[call.in(0)].type.shape;
  call.din[0] = call.graph.add1(Op::reshape, call.node.name + ".bwd", {call.dout[0]}, ExpandAttrs{shape});
}

}  // namespace

extern const OpSchema schema_reshape;
const OpSchema schema_reshape{.min_inputs = 1,
                              .max_inputs = 1,
                              .kernel = false,
                              .infer = infer,
                              .gradient = gradient,
                              .in_place = {{0, 0, InPlace::view}}};

}  // namespace lamina

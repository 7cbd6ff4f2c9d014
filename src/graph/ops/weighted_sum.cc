// weighted_sum: Σx times a weight that the caller gives at run time (1 / valid targets of the whole step); expand is
// its gradient.
#include "graph/schema.h"

namespace lamina {
namespace {

std::string infer(const InferCall& call) {
  call.out[0].shape = {1};
  return expect_shape("weight", Shape{1}, call.shape(1));
}

void gradient(GradientCall& call) {
  const Shape shape = call.graph[call.in(0)].type.shape;
  call.din[0] = call.graph.add1(Op::expand, call.node.name + ".bwd", {call.dout[0], call.in(1)}, ExpandAttrs{shape});
}

std::string infer_expand(const InferCall& call) {
  call.out[0].shape = std::get<ExpandAttrs>(call.attrs).shape;
  if (std::string wrong = expect_shape("dy", Shape{1}, call.shape(0)); !wrong.empty()) return wrong;
  return expect_shape("weight", Shape{1}, call.shape(1));
}

}  // namespace

extern const OpSchema schema_weighted_sum, schema_expand;
const OpSchema schema_weighted_sum{.min_inputs = 2, .max_inputs = 2, .infer = infer, .gradient = gradient};
const OpSchema schema_expand{.min_inputs = 2, .max_inputs = 2, .infer = infer_expand};

}  // namespace lamina

// dropout: keyed by (seed, step, sample, site, element), so its gradient is the same op on dy and no mask is kept.
#include "graph/schema.h"

namespace lamina {
namespace {

std::string infer(const InferCall& call) {
  call.out[0] = *call.in[0];
  if (std::string wrong = expect_rank("x", 3, call.shape(0)); !wrong.empty()) return wrong;
  return expect_dropout_keys(call, 1, call.shape(0)[0]);
}

void gradient(GradientCall& call) {
  call.din[0] =
      call.graph.add1(Op::dropout, call.node.name + ".bwd", {call.dout[0], call.in(1), call.in(2)}, call.node.attrs);
}

}  // namespace

extern const OpSchema schema_dropout;
const OpSchema schema_dropout{.min_inputs = 3,
                              .max_inputs = 3,
                              .infer = infer,
                              .gradient = gradient,
                              .in_place = {{0, 0, InPlace::may}},
                              .work = {WorkKind::elementwise, operations_per_element<16>}};

}  // namespace lamina

// cross_entropy: −log softmax(logits)[target] of each row; a negative target is ignored and gives exactly 0.
#include "graph/schema.h"

namespace lamina {
namespace {

std::string infer(const InferCall& call) {
  if (call.shape(0).rank < 2) return "logits need a row dimension";
  call.out[0].shape = call.out[1].shape = leading(call.shape(0));
  if (call.in[1]->dtype != Dtype::i32) return "targets are not i32";
  return expect_shape("targets", leading(call.shape(0)), call.shape(1));
}

void gradient(GradientCall& call) {
  call.din[0] = call.graph.add1(Op::cross_entropy_bwd, call.node.name + ".bwd",
                                {call.in(0), call.in(1), call.out(1), call.dout[0]});
}

std::string infer_bwd(const InferCall& call) {
  call.out[0].shape = call.shape(0);
  for (size_t i = 1; i < 4; ++i)
    if (std::string wrong = expect_shape("targets, lse or dloss", leading(call.shape(0)), call.shape(i));
        !wrong.empty())
      return wrong;
  return {};
}

template <int kEach>
double work(const WorkCall& call) {
  return kEach * static_cast<double>(call.shape(0).elements());
}

}  // namespace

extern const OpSchema schema_cross_entropy, schema_cross_entropy_bwd;
const OpSchema schema_cross_entropy{.min_inputs = 2,
                                    .max_inputs = 2,
                                    .n_outputs = 2,
                                    .infer = infer,
                                    .gradient = gradient,
                                    .work = {WorkKind::elementwise, work<47>}};
const OpSchema schema_cross_entropy_bwd{.min_inputs = 4,
                                        .max_inputs = 4,
                                        .infer = infer_bwd,
                                        .in_place = {{0, 0, InPlace::may}},
                                        .work = {WorkKind::elementwise, work<35>}};

}  // namespace lamina

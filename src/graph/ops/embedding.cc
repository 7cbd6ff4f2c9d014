// embedding: columns of a table (C, V) chosen by ids; its gradient sums the rows that chose the same id, in their
// order.
#include "graph/schema.h"

namespace lamina {
namespace {

std::string infer(const InferCall& call) {
  if (std::string wrong = expect_rank("table", 2, call.shape(0)); !wrong.empty()) return wrong;
  if (std::string wrong = expect_rank("ids", 2, call.shape(1)); !wrong.empty()) return wrong;
  if (call.in[1]->dtype != Dtype::i32) return "ids are not i32";
  call.out[0].shape = {call.shape(1)[0], call.shape(1)[1], call.shape(0)[0]};
  return {};
}

void gradient(GradientCall& call) {
  const int64_t rows = call.graph[call.in(0)].type.shape[1];
  call.din[0] = call.graph.add1(Op::embedding_bwd, call.node.name + ".bwd", {call.dout[0], call.in(1), ValueId::none},
                                EmbeddingBwdAttrs{rows}, TensorClass::gradients);
}

std::string infer_bwd(const InferCall& call) {
  const Shape& dy = call.shape(0);
  if (std::string wrong = expect_rank("dy", 3, dy); !wrong.empty()) return wrong;
  call.out[0].shape = {dy.last(), std::get<EmbeddingBwdAttrs>(call.attrs).rows};
  if (std::string wrong = expect_shape("ids", leading(dy), call.shape(1)); !wrong.empty()) return wrong;
  if (call.has(2)) return expect_shape("acc", call.out[0].shape, call.shape(2));
  return {};
}

}  // namespace

extern const OpSchema schema_embedding, schema_embedding_bwd;
const OpSchema schema_embedding{
    .min_inputs = 2, .max_inputs = 2, .panel_in = 1, .operands = 1, .infer = infer, .gradient = gradient};
const OpSchema schema_embedding_bwd{.min_inputs = 2,
                                    .max_inputs = 3,
                                    .optional = 1u << 2,
                                    .panel_in = 1u << 2,
                                    .panel_out = 1,
                                    .infer = infer_bwd,
                                    .in_place = {{0, 2, InPlace::may}}};

}  // namespace lamina

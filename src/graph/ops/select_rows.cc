// select_rows: one position of each row, so that the head runs for the last token of a prompt only. No gradient.
#include "graph/schema.h"

namespace lamina {
namespace {

std::string infer(const InferCall& call) {
  if (std::string wrong = expect_rank("x", 3, call.shape(0)); !wrong.empty()) return wrong;
  call.out[0].shape = {call.shape(0)[0], call.shape(0)[2]};
  if (call.in[1]->dtype != Dtype::i32) return "index is not i32";
  return expect_shape("index", Shape{call.shape(0)[0]}, call.shape(1));
}

}  // namespace

extern const OpSchema schema_select_rows;
const OpSchema schema_select_rows{.min_inputs = 2, .max_inputs = 2, .infer = infer};

}  // namespace lamina

// branch: picks one of two values by the configuration. A pass replaces it; nothing of it is left to run.
#include "graph/schema.h"

namespace lamina {
namespace {

std::string infer(const InferCall& call) {
  call.out[0] = *call.in[0];
  return expect_shape("the two sides differ", call.shape(0), call.shape(1));
}

}  // namespace

extern const OpSchema schema_branch;
const OpSchema schema_branch{.min_inputs = 2, .max_inputs = 2, .same_layout = true, .kernel = false, .infer = infer};

}  // namespace lamina

// cast: x rounded to the node's precision and stored in it. Passes put casts before products that take 16-bit operands,
// and move them into what makes or reads them. After differentiation, so it has no gradient.
#include "graph/schema.h"

namespace lamina {
namespace {

std::string infer(const InferCall& call) {
  call.out[0] = {call.shape(0), Dtype::f32, call.in[0]->layout};
  return {};
}

}  // namespace

extern const OpSchema schema_cast;
const OpSchema schema_cast{.min_inputs = 1, .max_inputs = 1, .narrow = 1, .same_layout = true, .infer = infer};

}  // namespace lamina

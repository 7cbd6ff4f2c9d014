// The optimizer as ops, so that its buffers are planned like all others: norms, clipping and AdamW (Loshchilov, Hutter
// 2019, in PyTorch's order of operations). None of them has a gradient.
#include "graph/schema.h"

namespace lamina {
namespace {

std::string infer_zero(const InferCall& call) {
  call.out[0] = *call.in[0];
  return {};
}

std::string infer_square_sum(const InferCall& call) {
  const int64_t elements = storage_elements(call.shape(0), call.in[0]->layout);
  call.out[0].shape = {(elements + kSquareSumBlock - 1) / kSquareSumBlock};
  return {};
}

std::string infer_norm(const InferCall& call) {
  call.out[0].shape = {1};
  return {};
}

std::string infer_clip(const InferCall& call) {
  call.out[0].shape = {1};
  if (std::string wrong = expect_shape("norm", Shape{1}, call.shape(0)); !wrong.empty()) return wrong;
  if (call.has(2))
    if (std::string wrong = expect_shape("loss_scale", Shape{1}, call.shape(2)); !wrong.empty()) return wrong;
  return expect_shape("loss", Shape{1}, call.shape(1));
}

std::string infer_adamw(const InferCall& call) {
  for (size_t i = 1; i < 4; ++i)
    if (std::string wrong = expect_shape("m, v or grad", call.shape(0), call.shape(i)); !wrong.empty()) return wrong;
  for (size_t i = 0; i < 3; ++i) call.out[i] = *call.in[i];
  if (std::string wrong = expect_shape("hyper", Shape{3}, call.shape(4)); !wrong.empty()) return wrong;
  return call.has(5) ? expect_shape("factor", Shape{1}, call.shape(5)) : std::string();
}

}  // namespace

extern const OpSchema schema_zero, schema_square_sum, schema_norm, schema_clip_factor, schema_adamw;
const OpSchema schema_zero{
    .min_inputs = 1, .max_inputs = 1, .same_layout = true, .infer = infer_zero, .in_place = {{0, 0, InPlace::must}}};
const OpSchema schema_square_sum{.min_inputs = 1, .max_inputs = 1, .panel_in = 1, .infer = infer_square_sum};
const OpSchema schema_norm{.min_inputs = 1, .max_inputs = -1, .infer = infer_norm};
const OpSchema schema_clip_factor{.min_inputs = 2, .max_inputs = 3, .optional = 1u << 2, .infer = infer_clip};
const OpSchema schema_adamw{.min_inputs = 6,
                            .max_inputs = 6,
                            .n_outputs = 3,
                            .optional = 1u << 5,
                            .same_layout = true,
                            .infer = infer_adamw,
                            .in_place = {{0, 0, InPlace::must}, {1, 1, InPlace::must}, {2, 2, InPlace::must}}};

}  // namespace lamina

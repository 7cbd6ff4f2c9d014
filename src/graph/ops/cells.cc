// Parts of layer cells: several ops in one, formed by the passes fuse_* after differentiation, so that they have no
// gradient rule. What each of them replaced is in kernels/ref/cells.h.
#include <algorithm>

#include "graph/schema.h"

namespace lamina {
namespace {

// The product of x with the weight in input `weight`, its bias after it.
std::string expect_product(const InferCall& call, size_t weight, Shape& y) {
  if (std::string wrong = expect_rank("weight", 2, call.shape(weight)); !wrong.empty()) return wrong;
  const int64_t K = call.shape(weight)[0], N = call.shape(weight)[1];
  if (call.shape(0).last() != K) return expect_shape("x", with_last(call.shape(0), K), call.shape(0));
  y = with_last(call.shape(0), N);
  return expect_shape("bias", Shape{N}, call.shape(weight + 1));
}

// A layernorm in inputs 1 and 2, its statistics from output `mean` on.
std::string expect_norm(const InferCall& call, size_t mean) {
  call.out[mean].shape = call.out[mean + 1].shape = {0};
  if (call.has(1) != call.has(2)) return "a layernorm needs weight and bias";
  if (!call.has(1)) return {};
  for (size_t i = 1; i < 3; ++i)
    if (std::string wrong = expect_shape("norm", Shape{call.shape(0).last()}, call.shape(i)); !wrong.empty())
      return wrong;
  call.out[mean].shape = call.out[mean + 1].shape = leading(call.shape(0));
  return {};
}

std::string infer_embedding_sum(const InferCall& call) {
  for (size_t i : {0u, 2u}) {
    if (std::string wrong = expect_rank("table", 2, call.shape(i)); !wrong.empty()) return wrong;
    if (std::string wrong = expect_rank("ids", 2, call.shape(i + 1)); !wrong.empty()) return wrong;
    if (call.in[i + 1]->dtype != Dtype::i32) return "ids are not i32";
  }
  const Shape& ids = call.shape(1);
  call.out[0].shape = {ids[0], ids[1], call.shape(0)[0]};
  if (std::string wrong = expect_shape("ids", ids, call.shape(3)); !wrong.empty()) return wrong;
  if (call.shape(2)[0] != call.shape(0)[0]) return "tables of different width";
  return std::get<DropoutAttrs>(call.attrs).training ? expect_dropout_keys(call, 4, ids[0]) : std::string();
}

std::string infer_linear_qkv(const InferCall& call) {
  for (size_t i = 0; i < 3; ++i)
    if (std::string wrong = expect_product(call, 3 + 2 * i, call.out[i].shape); !wrong.empty()) return wrong;
  if (call.shape(3) != call.shape(5) || call.shape(3) != call.shape(7)) return "weights of different shape";
  return expect_norm(call, 3);
}

std::string infer_linear_gelu(const InferCall& call) {
  if (std::string wrong = expect_product(call, 3, call.out[0].shape); !wrong.empty()) return wrong;
  call.out[1].shape = std::get<LinearGeluAttrs>(call.attrs).keep ? call.out[0].shape : Shape{0};
  return expect_norm(call, 2);
}

std::string infer_linear_dropout(const InferCall& call) {
  if (std::string wrong = expect_product(call, 1, call.out[0].shape); !wrong.empty()) return wrong;
  if (std::string wrong = expect_rank("x", 3, call.shape(0)); !wrong.empty()) return wrong;
  if (std::string wrong = expect_shape("residual", call.out[0].shape, call.shape(3)); !wrong.empty()) return wrong;
  return expect_dropout_keys(call, 4, call.shape(0)[0]);
}

std::string infer_layernorm_bwd(const InferCall& call) {
  const Shape& x = call.shape(1);
  const Shape params{x.last()};
  call.out[0].shape = x;
  call.out[1].shape = call.out[2].shape = params;
  call.out[3].shape = {(x.rows() + kNormRows - 1) / kNormRows, 2 * x.last()};
  if (std::string wrong = expect_shape("dy", x, call.shape(0)); !wrong.empty()) return wrong;
  if (std::string wrong = expect_shape("weight", params, call.shape(2)); !wrong.empty()) return wrong;
  for (size_t i = 3; i < 5; ++i)
    if (std::string wrong = expect_shape("mean or rstd", leading(x), call.shape(i)); !wrong.empty()) return wrong;
  for (size_t i = 5; i < 8; ++i)
    if (call.has(i))
      if (std::string wrong = expect_shape("acc", i == 5 ? x : params, call.shape(i)); !wrong.empty()) return wrong;
  return {};
}

std::string infer_linear_bwd_gelu(const InferCall& call) {
  if (std::string wrong = expect_rank("weight", 2, call.shape(1)); !wrong.empty()) return wrong;
  const Shape& dy = call.shape(0);
  if (dy.last() != call.shape(1)[1]) return expect_shape("dy", with_last(dy, call.shape(1)[1]), dy);
  call.out[0].shape = with_last(dy, call.shape(1)[0]);
  return expect_shape("what gelu took", call.out[0].shape, call.shape(2));
}

// The gradients of W and bias of `targets` products of one x.
std::string expect_params(const InferCall& call, size_t targets) {
  for (size_t t = 0; t < targets; ++t) {
    const Shape& dy = call.shape(1 + t);
    if (std::string wrong = expect_shape("dy", with_last(call.shape(0), call.shape(1).last()), dy); !wrong.empty())
      return wrong;
    call.out[2 * t].shape = {call.shape(0).last(), dy.last()};
    call.out[2 * t + 1].shape = {dy.last()};
    for (size_t i = 0; i < 2; ++i)
      if (const size_t acc = 1 + targets + 2 * t + i; call.has(acc))
        if (std::string wrong = expect_shape("acc", call.out[2 * t + i].shape, call.shape(acc)); !wrong.empty())
          return wrong;
  }
  return {};
}

std::string infer_linear_bwd_params(const InferCall& call) { return expect_params(call, 1); }
std::string infer_qkv_bwd_params(const InferCall& call) { return expect_params(call, 3); }

// The same with the update of each W.
std::string expect_updates(const InferCall& call, size_t targets) {
  const size_t hyper = 1 + targets;
  if (std::string wrong = expect_shape("hyper", Shape{3}, call.shape(hyper)); !wrong.empty()) return wrong;
  for (size_t t = 0; t < targets; ++t) {
    const Shape& dy = call.shape(1 + t);
    if (std::string wrong = expect_shape("dy", with_last(call.shape(0), call.shape(1).last()), dy); !wrong.empty())
      return wrong;
    const Shape weight{call.shape(0).last(), dy.last()};
    for (size_t i = 0; i < 3; ++i) {
      const size_t in = hyper + 1 + 3 * t + i;
      if (std::string wrong = expect_shape("W, m or v", weight, call.shape(in)); !wrong.empty()) return wrong;
      call.out[5 * t + i] = *call.in[in];
    }
    call.out[5 * t + 3].shape = {weight[0], (weight[1] + kSquareColumns - 1) / kSquareColumns};
    call.out[5 * t + 4].shape = {weight[1]};
  }
  return {};
}

std::string infer_linear_bwd_update(const InferCall& call) { return expect_updates(call, 1); }
std::string infer_qkv_bwd_update(const InferCall& call) { return expect_updates(call, 3); }

std::string infer_qkv_bwd_input(const InferCall& call) {
  const Shape& weight = call.shape(3);
  if (std::string wrong = expect_rank("weight", 2, weight); !wrong.empty()) return wrong;
  for (size_t i = 0; i < 3; ++i) {
    const Shape& dy = call.shape(i);
    if (std::string wrong = expect_shape("dy", with_last(call.shape(0), weight[1]), dy); !wrong.empty()) return wrong;
    if (std::string wrong = expect_shape("weight", weight, call.shape(3 + i)); !wrong.empty()) return wrong;
  }
  call.out[0].shape = with_last(call.shape(0), weight[0]);
  if (call.has(6)) return expect_shape("acc", call.out[0].shape, call.shape(6));
  return {};
}

std::string infer_head_loss(const InferCall& call) {
  const Shape& x = call.shape(0);
  const Shape& weight = call.shape(1);
  if (std::string wrong = expect_rank("weight", 2, weight); !wrong.empty()) return wrong;
  if (x.rank < 2 || x.last() != weight[0]) return "x does not fit the weight";
  if (call.in[2]->dtype != Dtype::i32) return "targets are not i32";
  call.out[0].shape = leading(x);
  call.out.back().shape = {std::min(x.rows(), kHeadRows), weight[1]};
  return expect_shape("targets", leading(x), call.shape(2));
}

std::string infer_head(const InferCall& call) {
  if (std::string wrong = infer_head_loss(call); !wrong.empty()) return wrong;
  call.out[1].shape = call.shape(0);
  call.out[2].shape = call.shape(1);
  if (std::string wrong = expect_shape("dtoken_loss", call.out[0].shape, call.shape(3)); !wrong.empty()) return wrong;
  for (size_t i = 0; i < 2; ++i)
    if (call.has(4 + i))
      if (std::string wrong = expect_shape("acc", call.shape(i), call.shape(4 + i)); !wrong.empty()) return wrong;
  return {};
}

// Operations of one product of rows of x with the weight in input `weight`.
double product(const WorkCall& call, size_t weight) {
  return 2.0 * static_cast<double>(call.shape(0).rows()) * static_cast<double>(call.shape(weight).elements());
}

double product_of_gradient(const WorkCall& call) {
  return 2.0 * static_cast<double>(call.shape(0).elements()) * static_cast<double>(call.shape(1).last());
}

double elements(const Shape& shape) { return static_cast<double>(shape.elements()); }

double work_linear_qkv(const WorkCall& call) { return 3.0 * product(call, 3); }
double work_linear_gelu(const WorkCall& call) { return product(call, 3) + 46.0 * elements(call.out[0].shape); }
double work_linear_dropout(const WorkCall& call) { return product(call, 1) + 16.0 * elements(call.out[0].shape); }
double work_linear_bwd_gelu(const WorkCall& call) { return product(call, 1) + 62.0 * elements(call.out[0].shape); }
double work_layernorm_bwd(const WorkCall& call) { return 24.0 * elements(call.shape(0)); }
double work_qkv_bwd_input(const WorkCall& call) { return 3.0 * product(call, 3); }
double work_qkv_bwd_params(const WorkCall& call) { return 3.0 * product_of_gradient(call); }

template <int products, int per_logit>
double work_head(const WorkCall& call) {
  const double logits = static_cast<double>(call.shape(0).rows()) * static_cast<double>(call.shape(1).last());
  return products * product(call, 1) + per_logit * logits;
}

}  // namespace

#define OP(name, attrs) extern const OpSchema schema_##name;
#include "base/ops.def"
#undef OP
const OpSchema schema_embedding_sum{
    .min_inputs = 4, .max_inputs = 6, .optional = 3u << 4, .panel_in = 5u, .operands = 5, .infer = infer_embedding_sum};
const OpSchema schema_linear_qkv{.min_inputs = 9,
                                 .max_inputs = 9,
                                 .n_outputs = 5,
                                 .optional = 3u << 1,
                                 .panel_in = 1u << 3 | 1u << 5 | 1u << 7,
                                 .operands = 1u << 0 | 1u << 3 | 1u << 5 | 1u << 7,
                                 .narrow = 7,
                                 .infer = infer_linear_qkv,
                                 .work = {WorkKind::gemm, work_linear_qkv}};
const OpSchema schema_linear_gelu{.min_inputs = 5,
                                  .max_inputs = 5,
                                  .n_outputs = 4,
                                  .optional = 3u << 1,
                                  .panel_in = 1u << 3,
                                  .operands = 1u << 0 | 1u << 3,
                                  .narrow = 3,
                                  .infer = infer_linear_gelu,
                                  .work = {WorkKind::gemm, work_linear_gelu}};
const OpSchema schema_linear_dropout{.min_inputs = 6,
                                     .max_inputs = 6,
                                     .panel_in = 1u << 1,
                                     .operands = 3,
                                     .infer = infer_linear_dropout,
                                     .in_place = {{0, 3, InPlace::may}},
                                     .work = {WorkKind::gemm, work_linear_dropout}};
const OpSchema schema_layernorm_bwd{.min_inputs = 5,
                                    .max_inputs = 8,
                                    .n_outputs = 4,
                                    .optional = 7u << 5,
                                    .infer = infer_layernorm_bwd,
                                    .in_place = {{0, 5, InPlace::may}, {1, 6, InPlace::may}, {2, 7, InPlace::may}},
                                    .work = {WorkKind::elementwise, work_layernorm_bwd}};
const OpSchema schema_linear_bwd_gelu{.min_inputs = 3,
                                      .max_inputs = 3,
                                      .panel_in = 1u << 1,
                                      .operands = 7,
                                      .narrow = 1,
                                      .infer = infer_linear_bwd_gelu,
                                      .work = {WorkKind::gemm, work_linear_bwd_gelu}};
const OpSchema schema_linear_bwd_params{.min_inputs = 2,
                                        .max_inputs = 4,
                                        .n_outputs = 2,
                                        .optional = 3u << 2,
                                        .panel_in = 1u << 2,
                                        .panel_out = 1,
                                        .operands = 3,
                                        .infer = infer_linear_bwd_params,
                                        .in_place = {{0, 2, InPlace::may}, {1, 3, InPlace::may}},
                                        .work = {WorkKind::gemm, product_of_gradient}};
const OpSchema schema_qkv_bwd_input{.min_inputs = 6,
                                    .max_inputs = 7,
                                    .optional = 1u << 6,
                                    .panel_in = 7u << 3,
                                    .operands = 63,
                                    .infer = infer_qkv_bwd_input,
                                    .in_place = {{0, 6, InPlace::may}},
                                    .work = {WorkKind::gemm, work_qkv_bwd_input}};
const OpSchema schema_qkv_bwd_params{.min_inputs = 4,
                                     .max_inputs = 10,
                                     .n_outputs = 6,
                                     .optional = 63u << 4,
                                     .panel_in = 1u << 4 | 1u << 6 | 1u << 8,
                                     .panel_out = 1u << 0 | 1u << 2 | 1u << 4,
                                     .operands = 15,
                                     .infer = infer_qkv_bwd_params,
                                     .in_place = {{0, 4, InPlace::may},
                                                  {1, 5, InPlace::may},
                                                  {2, 6, InPlace::may},
                                                  {3, 7, InPlace::may},
                                                  {4, 8, InPlace::may},
                                                  {5, 9, InPlace::may}},
                                     .work = {WorkKind::gemm, work_qkv_bwd_params}};
const OpSchema schema_linear_bwd_update{
    .min_inputs = 6,
    .max_inputs = 6,
    .n_outputs = 5,
    .panel_in = 7u << 3,
    .panel_out = 7,
    .operands = 3,
    .infer = infer_linear_bwd_update,
    .in_place = {{0, 3, InPlace::must}, {1, 4, InPlace::must}, {2, 5, InPlace::must}},
    .work = {WorkKind::gemm, product_of_gradient}};
const OpSchema schema_qkv_bwd_update{.min_inputs = 14,
                                     .max_inputs = 14,
                                     .n_outputs = 15,
                                     .panel_in = 511u << 5,
                                     .panel_out = 7u << 0 | 7u << 5 | 7u << 10,
                                     .operands = 15,
                                     .infer = infer_qkv_bwd_update,
                                     .in_place = {{0, 5, InPlace::must},
                                                  {1, 6, InPlace::must},
                                                  {2, 7, InPlace::must},
                                                  {5, 8, InPlace::must},
                                                  {6, 9, InPlace::must},
                                                  {7, 10, InPlace::must},
                                                  {10, 11, InPlace::must},
                                                  {11, 12, InPlace::must},
                                                  {12, 13, InPlace::must}},
                                     .work = {WorkKind::gemm, work_qkv_bwd_params}};
const OpSchema schema_head_loss{.min_inputs = 3,
                                .max_inputs = 3,
                                .n_outputs = 2,
                                .panel_in = 1u << 1,
                                .operands = 3,
                                .infer = infer_head_loss,
                                .work = {WorkKind::gemm, work_head<1, 47>}};
const OpSchema schema_head{.min_inputs = 4,
                           .max_inputs = 6,
                           .n_outputs = 4,
                           .optional = 3u << 4,
                           .panel_in = 1u << 1 | 1u << 5,
                           .panel_out = 1u << 2,
                           .operands = 3,
                           .infer = infer_head,
                           .in_place = {{1, 4, InPlace::may}, {2, 5, InPlace::may}},
                           .work = {WorkKind::gemm, work_head<3, 82>}};

}  // namespace lamina

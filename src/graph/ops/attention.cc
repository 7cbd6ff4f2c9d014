// attention: causal, over the keys key_begin … query of each row; keeps the log-sum-exp (B, H, T), never T×T scores.
// Its backward recomputes them. attention_cached is the same for a few new tokens over a cache, and has no gradient.
#include "base/error.h"
#include "graph/schema.h"

namespace lamina {
namespace {

std::string check_heads(const InferCall& call, size_t q) {
  if (std::string wrong = expect_rank("q", 3, call.shape(q)); !wrong.empty()) return wrong;
  const int64_t heads = std::get<AttentionAttrs>(call.attrs).n_head;
  if (heads < 1 || call.shape(q).last() % heads != 0)
    return fmt::format("width {} is not divisible by {} heads", call.shape(q).last(), heads);
  for (size_t i = q + 1; i < q + 3; ++i)
    if (std::string wrong = expect_shape("k or v", call.shape(q), call.shape(i)); !wrong.empty()) return wrong;
  return {};
}

Shape lse_shape(const InferCall& call, size_t q) {
  return {call.shape(q)[0], std::get<AttentionAttrs>(call.attrs).n_head, call.shape(q)[1]};
}

std::string check_dropout(const InferCall& call, size_t rng, int64_t B) {
  if (std::get<AttentionAttrs>(call.attrs).dropout == 0.0) return {};
  return expect_dropout_keys(call, rng, B);
}

std::string infer(const InferCall& call) {
  if (std::string wrong = check_heads(call, 0); !wrong.empty()) return wrong;
  call.out[0].shape = call.shape(0);
  call.out[1].shape = lse_shape(call, 0);
  if (std::string wrong = expect_shape("key_begin", leading(call.shape(0)), call.shape(3)); !wrong.empty())
    return wrong;
  return check_dropout(call, 4, call.shape(0)[0]);
}

void gradient(GradientCall& call) {
  const std::vector<ValueId> grads = call.graph.add(
      Op::attention_bwd, call.node.name + ".bwd",
      {call.dout[0], call.in(0), call.in(1), call.in(2), call.out(0), call.out(1), call.in(3), call.in(4), call.in(5)},
      call.node.attrs, TensorClass::activations);
  for (size_t i = 0; i < 3; ++i) call.din[i] = grads[i];
}

std::string infer_bwd(const InferCall& call) {
  if (std::string wrong = check_heads(call, 1); !wrong.empty()) return wrong;
  for (Type& type : call.out) type.shape = call.shape(1);
  if (std::string wrong = expect_shape("do", call.shape(1), call.shape(0)); !wrong.empty()) return wrong;
  if (std::string wrong = expect_shape("o", call.shape(1), call.shape(4)); !wrong.empty()) return wrong;
  if (std::string wrong = expect_shape("lse", lse_shape(call, 1), call.shape(5)); !wrong.empty()) return wrong;
  return check_dropout(call, 7, call.shape(1)[0]);
}

std::string infer_cached(const InferCall& call) {
  if (std::string wrong = check_heads(call, 0); !wrong.empty()) return wrong;
  const Shape& cache = call.shape(3);
  if (cache.rank != 3 || cache[0] != call.shape(0)[0] || cache.last() != call.shape(0).last())
    return "cache does not fit q";
  call.out[0].shape = call.shape(0);
  call.out[1].shape = call.out[2].shape = cache;
  if (std::string wrong = expect_shape("v_cache", cache, call.shape(4)); !wrong.empty()) return wrong;
  for (size_t i = 5; i < 8; ++i)
    if (std::string wrong = expect_shape("past, count or key_begin", Shape{cache[0]}, call.shape(i)); !wrong.empty())
      return wrong;
  return {};
}

// Products of one query with the keys before it: scores and values forward; backward the scores again, dp, dq, dk and
// dv. Half of the square, and half of a block of keys more, which kernels do not cut.
template <int kProducts>
double work(const WorkCall& call) {
  constexpr int64_t kBlock = 64;
  const Shape& q = call.out[0].shape;
  return kProducts * static_cast<double>(q.elements()) * static_cast<double>(q[1] + kBlock);
}

}  // namespace

extern const OpSchema schema_attention, schema_attention_bwd, schema_attention_cached;
const OpSchema schema_attention{.min_inputs = 4,
                                .max_inputs = 6,
                                .n_outputs = 2,
                                .optional = 3u << 4,
                                .operands = 7,
                                .narrow = 1,
                                .infer = infer,
                                .gradient = gradient,
                                .work = {WorkKind::attention, work<2>}};
const OpSchema schema_attention_bwd{.min_inputs = 7,
                                    .max_inputs = 9,
                                    .n_outputs = 3,
                                    .optional = 3u << 7,
                                    .operands = 31,
                                    .narrow = 7,
                                    .infer = infer_bwd,
                                    .work = {WorkKind::attention, work<5>}};
const OpSchema schema_attention_cached{.min_inputs = 8,
                                       .max_inputs = 8,
                                       .n_outputs = 3,
                                       .operands = 7,
                                       .narrow = 1,
                                       .infer = infer_cached,
                                       .in_place = {{1, 3, InPlace::must}, {2, 4, InPlace::must}}};

}  // namespace lamina

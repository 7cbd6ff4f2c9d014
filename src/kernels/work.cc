#include "kernels/work.h"

namespace lamina {
namespace {

struct Call {
  Op op;
  std::span<const WorkOperand> in, out;

  double elements(size_t i) const { return static_cast<double>(in[i].shape.elements()); }
  double rows(size_t i) const { return static_cast<double>(in[i].shape.rows()); }
  double last(size_t i) const { return static_cast<double>(in[i].shape.last()); }
  double in_bytes(size_t i) const { return i < in.size() ? static_cast<double>(in[i].bytes) : 0.0; }
  double out_bytes(size_t i) const { return static_cast<double>(out[i].bytes); }
};

// Pairs of a query and a key that it may see, times C: of input 0 of shape (B, T, C).
double causal_pairs(const Call& call) {
  const Shape& x = call.in[0].shape;
  return call.elements(0) * 0.5 * static_cast<double>(x[1] + 1);
}

double flops_of(const Call& call) {
  switch (call.op) {
    case Op::branch:
    case Op::reshape:
    case Op::embedding:
    case Op::select_rows:
    case Op::zero: return 0.0;
    case Op::add:
    case Op::mul:
    case Op::scale:
    case Op::dropout:
    case Op::weighted_sum:
    case Op::embedding_bwd:
    case Op::linear_bwd_bias: return call.elements(0);
    case Op::expand: return static_cast<double>(call.out[0].shape.elements());
    case Op::layernorm: return 8.0 * call.elements(0);
    case Op::layernorm_bwd_input: return 10.0 * call.elements(0);
    case Op::layernorm_bwd_params: return 5.0 * call.elements(0);
    case Op::gelu: return 9.0 * call.elements(0);
    case Op::gelu_bwd: return 18.0 * call.elements(0);
    case Op::cross_entropy: return 4.0 * call.elements(0);
    case Op::cross_entropy_bwd: return 3.0 * call.elements(0);
    case Op::square_sum: return 2.0 * call.elements(0);
    case Op::norm:
    case Op::clip_factor: return static_cast<double>(call.in.size());
    case Op::adamw: return 16.0 * call.elements(0);
    case Op::linear: return 2.0 * call.rows(0) * static_cast<double>(call.in[1].shape.elements());
    case Op::linear_bwd_input: return 2.0 * call.rows(0) * static_cast<double>(call.in[1].shape.elements());
    case Op::linear_bwd_weight: return 2.0 * call.rows(0) * call.last(0) * call.last(1);
    case Op::attention: return 4.0 * causal_pairs(call);
    case Op::attention_bwd: return 10.0 * causal_pairs(call);
    case Op::attention_cached: return 4.0 * call.elements(0) * static_cast<double>(call.in[3].shape[1]);
  }
  return 0.0;
}

// The sums of tokens with equal ids go to rows of the table; where the result does not lie on what it is added to, all
// of the table is written.
void embedding_bwd_bytes(const Call& call, Work& work) {
  const bool in_place = call.in_bytes(2) > 0.0 && call.in[2].storage >= 0 && call.in[2].storage == call.out[0].storage;
  work.read = call.in_bytes(0) + call.in_bytes(1) + (in_place ? call.in_bytes(0) : call.in_bytes(2));
  work.written = in_place ? call.in_bytes(0) : call.out_bytes(0);
}

}  // namespace

Work work_of(Op op, std::span<const WorkOperand> in, std::span<const WorkOperand> out) {
  const Call call{op, in, out};
  Work work{.flops = flops_of(call)};
  for (size_t i = 0; i < in.size(); ++i) work.read += call.in_bytes(i);
  for (size_t i = 0; i < out.size(); ++i) work.written += call.out_bytes(i);
  if (op == Op::embedding || op == Op::select_rows) work.read = call.in_bytes(1) + call.out_bytes(0);
  if (op == Op::embedding_bwd) embedding_bwd_bytes(call, work);
  if (op == Op::attention_cached) work.written = call.out_bytes(0) + call.in_bytes(1) + call.in_bytes(2);
  if (op == Op::zero) work.read = 0.0;
  return work;
}

}  // namespace lamina

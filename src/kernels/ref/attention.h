// attention, attention_cached, attention_bwd: one query at a time, the whole row of scores in memory.
//
//   visible keys of query t:   key_begin[b][t] <= j <= t     (cached: key_begin[b] <= j <= past[b] + i)
//   nothing visible:           o = 0, lse = -inf, and no gradient through this query
#pragma once

#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/ref/cross_entropy.h"
#include "kernels/ref/math.h"

namespace lamina::ref {

struct AttentionSizes {
  int64_t B, T, C, H, D;
};

inline AttentionSizes attention_sizes(const Shape& q, int64_t n_head) {
  return {q[0], q[1], q[2], n_head, q[2] / n_head};
}

// The factors of dropout of one query's probabilities; all 1 where the call has no dropout.
template <typename S>
std::vector<double> probability_factors(const RefTensor<S>* rng, const RefTensor<S>* sample, const AttentionAttrs& a,
                                        int64_t b, int64_t h, int64_t t, int64_t begin) {
  std::vector<double> factors(static_cast<size_t>(t + 1 - begin), 1.0);
  if (a.dropout == 0.0 || rng == nullptr || sample == nullptr) return factors;
  const uint64_t key = dropout_key_of(*rng, *sample, b, a.site);
  for (int64_t j = begin; j <= t; ++j)
    factors[static_cast<size_t>(j - begin)] = dropout_factor(key, (h * a.stride + t) * a.stride + j, a.dropout);
  return factors;
}

// scale * q·k for n keys that lie C apart.
template <typename S>
std::vector<S> attention_scores(const S* q, const S* k, int64_t n, const AttentionSizes& z, double scale) {
  std::vector<S> scores(static_cast<size_t>(n));
  for (int64_t j = 0; j < n; ++j) {
    S dot = S(0.0);
    for (int64_t d = 0; d < z.D; ++d) dot += q[d] * k[j * z.C + d];
    scores[static_cast<size_t>(j)] = S(scale) * dot;
  }
  return scores;
}

// o = sum of softmax(scores)[j] * factors[j] * v[j]. Returns the log of the sum of exponentials.
template <typename S>
S attend(const std::vector<S>& scores, const std::vector<double>& factors, const S* v, const AttentionSizes& z, S* o) {
  const S lse = log_sum_exp(scores.data(), static_cast<int64_t>(scores.size()));
  for (size_t j = 0; j < scores.size(); ++j) {
    const S p = exp(scores[j] - lse) * S(factors[j]);
    for (int64_t d = 0; d < z.D; ++d) o[d] += p * v[static_cast<int64_t>(j) * z.C + d];
  }
  return lse;
}

template <typename S>
void attention(const RefCall<S>& call) {
  const auto& a = attrs_of<AttentionAttrs>(call);
  const AttentionSizes z = attention_sizes(call.in[0]->shape, a.n_head);
  for (int64_t b = 0; b < z.B; ++b)
    for (int64_t h = 0; h < z.H; ++h)
      for (int64_t t = 0; t < z.T; ++t) {
        const int64_t begin = call.in[3]->ints[static_cast<size_t>(b * z.T + t)];
        S& lse = call.out[1]->values[static_cast<size_t>((b * z.H + h) * z.T + t)];
        lse = S(-std::numeric_limits<double>::infinity());
        if (begin > t) continue;
        const int64_t query = (b * z.T + t) * z.C + h * z.D;
        const int64_t keys = (b * z.T + begin) * z.C + h * z.D;
        const auto scores = attention_scores(call.in[0]->values.data() + query, call.in[1]->values.data() + keys,
                                             t + 1 - begin, z, a.scale);
        const auto factors = probability_factors(optional_input(call, 4), optional_input(call, 5), a, b, h, t, begin);
        lse = attend(scores, factors, call.in[2]->values.data() + keys, z, call.out[0]->values.data() + query);
      }
}

// The new keys and values of row b go to rows past[b] … past[b] + count[b] - 1 of the cache before any query looks.
template <typename S>
void append_to_cache(const RefCall<S>& call) {
  const Shape& x = call.in[0]->shape;
  const int64_t S_rows = call.in[3]->shape[1];
  call.out[1]->values = call.in[3]->values;
  call.out[2]->values = call.in[4]->values;
  for (int64_t b = 0; b < x[0]; ++b)
    for (int64_t i = 0; i < call.in[6]->ints[static_cast<size_t>(b)]; ++i)
      for (int64_t c = 0; c < x[2]; ++c) {
        const int64_t row = b * S_rows + call.in[5]->ints[static_cast<size_t>(b)] + i;
        const size_t to = static_cast<size_t>(row * x[2] + c);
        const size_t from = static_cast<size_t>((b * x[1] + i) * x[2] + c);
        call.out[1]->values[to] = call.in[1]->values[from];
        call.out[2]->values[to] = call.in[2]->values[from];
      }
}

template <typename S>
void attention_cached(const RefCall<S>& call) {
  const auto& a = attrs_of<AttentionAttrs>(call);
  const AttentionSizes z = attention_sizes(call.in[0]->shape, a.n_head);
  const int64_t S_rows = call.in[3]->shape[1];
  append_to_cache(call);
  for (int64_t b = 0; b < z.B; ++b)
    for (int64_t h = 0; h < z.H; ++h)
      for (int64_t i = 0; i < call.in[6]->ints[static_cast<size_t>(b)]; ++i) {
        const int64_t begin = call.in[7]->ints[static_cast<size_t>(b)];
        const int64_t last = call.in[5]->ints[static_cast<size_t>(b)] + i;
        if (begin > last) continue;
        const int64_t query = (b * z.T + i) * z.C + h * z.D;
        const int64_t keys = (b * S_rows + begin) * z.C + h * z.D;
        const int64_t n = last + 1 - begin;
        const auto scores =
            attention_scores(call.in[0]->values.data() + query, call.out[1]->values.data() + keys, n, z, a.scale);
        attend(scores, std::vector<double>(static_cast<size_t>(n), 1.0), call.out[2]->values.data() + keys, z,
               call.out[0]->values.data() + query);
      }
}

// do·o. `otherwise`: from its last product to its first, each multiplied and added with one rounding.
template <typename S>
S attention_delta(const S* dout, const S* o, int64_t n, bool otherwise) {
  S out = S(0.0);
  if constexpr (std::is_floating_point_v<S>)
    if (otherwise) {
      for (int64_t d = n - 1; d >= 0; --d) out = std::fma(dout[d], o[d], out);
      return out;
    }
  for (int64_t d = 0; d < n; ++d) out += dout[d] * o[d];
  return out;
}

// p = exp(score - lse), ds = p * (do·v * factor - do·o); o and lse are those of the forward op.
template <typename S>
void attention_bwd_query(const RefCall<S>& call, const AttentionSizes& z, int64_t b, int64_t h, int64_t t,
                         int64_t begin, bool otherwise) {
  const auto& a = attrs_of<AttentionAttrs>(call);
  const int64_t query = (b * z.T + t) * z.C + h * z.D;
  const int64_t keys = (b * z.T + begin) * z.C + h * z.D;
  const S* dout = call.in[0]->values.data() + query;
  const S* q = call.in[1]->values.data() + query;
  const S* k = call.in[2]->values.data() + keys;
  const S* v = call.in[3]->values.data() + keys;
  const S* o = call.in[4]->values.data() + query;
  const S lse = call.in[5]->values[static_cast<size_t>((b * z.H + h) * z.T + t)];
  S* dq = call.out[0]->values.data() + query;
  S* dk = call.out[1]->values.data() + keys;
  S* dv = call.out[2]->values.data() + keys;
  const auto scores = attention_scores(q, k, t + 1 - begin, z, a.scale);
  const auto factors = probability_factors(optional_input(call, 7), optional_input(call, 8), a, b, h, t, begin);
  const S delta = attention_delta(dout, o, z.D, otherwise);
  for (size_t j = 0; j < scores.size(); ++j) {
    const int64_t row = static_cast<int64_t>(j) * z.C;
    const S p = exp(scores[j] - lse);
    S dp = S(0.0);
    for (int64_t d = 0; d < z.D; ++d) dp += dout[d] * v[row + d];
    const S ds = S(a.scale) * p * (dp * S(factors[j]) - delta);
    for (int64_t d = 0; d < z.D; ++d) {
      dq[d] += ds * k[row + d];
      dk[row + d] += ds * q[d];
      dv[row + d] += p * S(factors[j]) * dout[d];
    }
  }
}

template <typename S>
void attention_bwd_summed(const RefCall<S>& call, bool otherwise) {
  const auto& a = attrs_of<AttentionAttrs>(call);
  const AttentionSizes z = attention_sizes(call.in[1]->shape, a.n_head);
  for (int64_t b = 0; b < z.B; ++b)
    for (int64_t h = 0; h < z.H; ++h)
      for (int64_t t = 0; t < z.T; ++t) {
        const int64_t begin = call.in[6]->ints[static_cast<size_t>(b * z.T + t)];
        if (begin <= t) attention_bwd_query(call, z, b, h, t, begin, otherwise);
      }
}

template <typename S>
void attention_bwd(const RefCall<S>& call) {
  attention_bwd_summed(call, false);
}

}  // namespace lamina::ref

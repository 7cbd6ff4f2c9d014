#include <cmath>
#include <cstring>

#include "cells.h"
#include "parts.h"

namespace lamina::fused {
namespace {

constexpr int64_t kCoreSite = 0, kResidualSite = 1;  // of dropout

struct Problem {
  int64_t B, T, C;
  AttentionAttrs core;
  DropoutAttrs residual;
  double eps;

  Shape rows() const { return {B * T, C}; }
  Shape places() const { return {B, T, C}; }
  Shape weight() const { return {C, C}; }
  Shape vector() const { return {C}; }
};

// x (M, C) in input `x`, T places in each of B rows.
Problem problem_of(const Call& call, int x, int64_t T, int settings) {
  const Shape rows = call.shape(x, 2);
  const int64_t heads = call.shape(settings, 2)[0];
  const double* set = call.doubles(settings, {heads, 5});
  if (rows[0] % T != 0) throw Refused{Code::shape};
  Problem p{.B = rows[0] / T, .T = T, .C = rows[1], .core = {}, .residual = {}, .eps = norm_epsilon(set[1])};
  if (p.C % heads != 0 || !std::isfinite(set[0])) throw Refused{Code::setting};  // a head is whole channels
  p.core = {.n_head = heads, .scale = set[0], .dropout = dropout_share(set[2], set[4]), .site = kCoreSite, .stride = T};
  if (p.core.dropout > 0.0 && heads * T > UINT32_MAX / T) throw Refused{Code::shape};  // elements of a row
  p.residual = {.p = dropout_share(set[3], set[4]), .site = kResidualSite, .training = true};
  return p;
}

struct Kept {
  TensorArg q, k, v, o, lse, mean, rstd;
};

Kept kept_of(const Problem& p, const Call& call, int i) {
  const Shape lse{p.B, p.core.n_head, p.T}, row{p.B * p.T};
  const int64_t all = 4 * p.rows().elements() + lse.elements() + 2 * row.elements();
  auto* at = static_cast<float*>(call.floats(i, {all}).data);
  const auto part = [&](const Shape& shape) {
    at += shape.elements();
    return TensorArg{at - shape.elements(), shape, {}, Dtype::f32};
  };
  Kept kept;
  for (TensorArg* t : {&kept.q, &kept.k, &kept.v, &kept.o}) *t = part(p.places());
  kept.lse = part(lse);
  kept.mean = part(row);
  kept.rstd = part(row);
  return kept;
}

// Each query's first key of T, of a row of what it does not see; one behind itself where it sees nothing.
int32_t first_key(const uint8_t* hidden, int64_t query, int64_t T) {
  const auto find = [&](int value, int64_t from, int64_t end) {
    const void* found = std::memchr(hidden + from, value, static_cast<size_t>(end - from));
    return found == nullptr ? end : static_cast<const uint8_t*>(found) - hidden;
  };
  const int64_t first = find(0, 0, query + 1);
  if (find(1, first, query + 1) != query + 1 || find(0, query + 1, T) != T) throw Refused{Code::mask};
  return static_cast<int32_t>(first);
}

// One mask for all rows, or one for each.
TensorArg write_key_begin(const Problem& p, const Call& call, int hidden, int key_begin) {
  const int64_t masks = call.shape(hidden, 4)[0];
  if (masks != 1 && masks != p.B) throw Refused{Code::shape};
  const uint8_t* mask = call.bools(hidden, {masks, 1, p.T, p.T});
  int32_t* to = call.ints(key_begin, {p.B, p.T});
  for (int64_t i = 0; i < masks * p.T; ++i) to[i] = first_key(mask + i * p.T, i % p.T, p.T);
  for (int64_t b = masks; b < p.B; ++b) std::memcpy(to + b * p.T, to, static_cast<size_t>(p.T) * sizeof(int32_t));
  return {to, {p.B, p.T}, {}, Dtype::i32};
}

TensorArg read_key_begin(const Problem& p, const Call& call, int i) {
  int32_t* begin = call.ints(i, {p.B, p.T});
  for (int64_t at = 0; at < p.B * p.T; ++at)
    if (begin[at] < 0 || begin[at] > p.T) throw Refused{Code::mask};
  return {begin, {p.B, p.T}, {}, Dtype::i32};
}

}  // namespace

void attention_forward(const Call& call, Engine& engine) {
  const Problem p = problem_of(call, 0, call.shape(11, 4)[3], 13);
  const Kept kept = kept_of(p, call, 15);
  const TensorArg x = call.floats(0, p.rows(), p.places()), y = call.floats(14, p.rows(), p.places());
  const auto weight = [&](int i) { return call.floats(i, p.weight()); };
  const auto vector = [&](int i) { return call.floats(i, p.vector()); };
  const TensorArg gamma = vector(1), beta = vector(2);
  const TensorArg wq = weight(3), bq = vector(4), wk = weight(5), bk = vector(6), wv = weight(7), bv = vector(8);
  const TensorArg wp = weight(9), bp = vector(10);
  const TensorArg key_begin = write_key_begin(p, call, 11, 16);
  const Keys keys = keys_of(call, 12, p.B, engine);
  const LayerNormAttrs norm{p.eps};
  engine.run(Op::linear_qkv, {x, gamma, beta, engine.pack(wq), bq, engine.pack(wk), bk, engine.pack(wv), bv},
             {kept.q, kept.k, kept.v, kept.mean, kept.rstd}, &norm);
  if (p.core.dropout > 0.0)
    engine.run(Op::attention, {kept.q, kept.k, kept.v, key_begin, keys.rng, keys.sample}, {kept.o, kept.lse}, &p.core);
  else
    engine.run(Op::attention, {kept.q, kept.k, kept.v, key_begin}, {kept.o, kept.lse}, &p.core);
  project(engine, kept.o, wp, bp, x, p.residual, keys, y);
}

namespace {

struct ThreeTensors {
  TensorArg q, k, v;
};

ThreeTensors core_backward(const Problem& p, Engine& engine, const TensorArg& dout, const Kept& kept,
                           const TensorArg& key_begin, const Keys& keys) {
  const ThreeTensors d{engine.tensor(p.places()), engine.tensor(p.places()), engine.tensor(p.places())};
  if (p.core.dropout > 0.0)
    engine.run(Op::attention_bwd, {dout, kept.q, kept.k, kept.v, kept.o, kept.lse, key_begin, keys.rng, keys.sample},
               {d.q, d.k, d.v}, &p.core);
  else
    engine.run(Op::attention_bwd, {dout, kept.q, kept.k, kept.v, kept.o, kept.lse, key_begin}, {d.q, d.k, d.v},
               &p.core);
  return d;
}

}  // namespace

void attention_backward(const Call& call, Engine& engine) {
  const Problem p = problem_of(call, 0, call.shape(9, 2)[1], 11);
  const Kept kept = kept_of(p, call, 8);
  const TensorArg dy = call.floats(0, p.rows(), p.places()), x = call.floats(1, p.rows(), p.places());
  const TensorArg dx = call.floats(12, p.rows(), p.places());
  const auto weight = [&](int i) { return call.floats(i, p.weight()); };
  const auto vector = [&](int i) { return call.floats(i, p.vector()); };
  const Norm norm{vector(2), vector(3), p.eps};
  const TensorArg wq = weight(4), wk = weight(5), wv = weight(6), wp = weight(7);
  const TensorArg dgamma = vector(13), dbeta = vector(14);
  const TensorArg dwq = weight(15), dbq = vector(16), dwk = weight(17), dbk = vector(18), dwv = weight(19);
  const TensorArg dbv = vector(20), dwp = weight(21), dbp = vector(22);
  const TensorArg key_begin = read_key_begin(p, call, 9);
  const Keys keys = keys_of(call, 10, p.B, engine);

  const TensorArg dproj = before_dropout(engine, dy, p.residual, keys);
  const TensorArg panel_p = engine.panel(p.weight()), dout = engine.tensor(p.places());
  engine.run(Op::linear_bwd_params, {kept.o, dproj}, {panel_p, dbp}, &kNoAttrs);
  engine.unpack(panel_p, dwp);
  engine.run(Op::linear_bwd_input, {dproj, engine.pack(wp)}, {dout}, &kNoAttrs);
  const ThreeTensors d = core_backward(p, engine, dout, kept, key_begin, keys);

  const ThreeTensors panels{engine.panel(p.weight()), engine.panel(p.weight()), engine.panel(p.weight())};
  engine.run(Op::qkv_bwd_params, {normalized(engine, x, norm), d.q, d.k, d.v},
             {panels.q, dbq, panels.k, dbk, panels.v, dbv}, &kNoAttrs);
  engine.unpack(panels.q, dwq);
  engine.unpack(panels.k, dwk);
  engine.unpack(panels.v, dwv);
  const TensorArg dh = engine.tensor(p.places());
  engine.run(Op::qkv_bwd_input, {d.q, d.k, d.v, engine.pack(wq), engine.pack(wk), engine.pack(wv)}, {dh}, &kNoAttrs);
  norm_backward(engine, dh, dy, x, norm, kept.mean, kept.rstd, {dx, dgamma, dbeta});
}

}  // namespace lamina::fused

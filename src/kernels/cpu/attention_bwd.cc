// attention_bwd: gradients of attention from its output and log-sum-exp; probabilities are recomputed tile by tile.
//
//   p = exp(scale q·k - lse)    dp = do·v    ds = p (f dp - do·o)    f: the factor of dropout
//   dv += f p do                dk += ds scale q                     dq += ds k, times scale at the end
//
// A task is one head of one row: k and v of the head, and the sums of dk and dv, lie in scratch without gaps while
// tiles of queries pass, and each tile of queries passes all tiles of keys that it sees. Sums run in rising order of
// queries and of keys, cut at tiles.
#include "kernels/cpu/attention.h"

namespace lamina::LAMINA_ISA_NAMESPACE {
namespace {

struct Head {
  Operand dout, q, k, v, o;  // query 0, key 0
  const float* lse;          // of query 0
  Numbers dq, dk, dv;
  int64_t T, C, D;
  float scale;
  Dropout dropout;
};

struct Work {
  float *k, *v, *dk, *dv;      // (T, width), width = padded D
  float *q, *dout, *dq;        // (kQueries, width); q is scaled
  float *queries, *gradients;  // (D, kQueries): q and dout transposed
  float *p, *ds;               // (kKeys, kQueries): scores, then f p; dp, then ds
  float *lse, *delta;          // (kQueries)
  bool queries_finite;
};

int64_t work_floats(int64_t T, int64_t D) {
  return (4 * T + 3 * kQueries) * padded(D) + 2 * (D + kKeys + 1) * kQueries;
}

Work work_in(float* at, int64_t T, int64_t D) {
  const int64_t keys = T * padded(D);
  const int64_t rows = kQueries * padded(D);
  Work w{};
  w.k = at;
  w.v = w.k + keys;
  w.dk = w.v + keys;
  w.dv = w.dk + keys;
  w.q = w.dv + keys;
  w.dout = w.q + rows;
  w.dq = w.dout + rows;
  w.queries = w.dq + rows;
  w.gradients = w.queries + D * kQueries;
  w.p = w.gradients + D * kQueries;
  w.ds = w.p + kKeys * kQueries;
  w.lse = w.ds + kKeys * kQueries;
  w.delta = w.lse + kQueries;
  return w;
}

struct Tile {
  int64_t first_query, first_key, keys;
};

// Scores and dp of one vector of queries -> f p and ds.
template <bool masked, bool drop>
LAMINA_INLINE void gradient_vector(const Head& h, const Ranges& r, const Tile& t, int64_t query, int64_t keys,
                                   const Work& w) {
  float* p_at = w.p + query;
  float* ds_at = w.ds + query;
  const Vec lse = load(w.lse + query);
  const Vec delta = load(w.delta + query);
  for (int64_t j = 0; j < keys; ++j) {
    Vec p = exp(sub(load(p_at + j * kQueries), lse));
    Vec dp = load(ds_at + j * kQueries);
    Vec kept = p;
    if constexpr (drop) {
      const Mask drops = h.dropout.drops(t.first_query + query, t.first_key + j);
      const Vec factor = select(drops, zero(), broadcast(h.dropout.kept));
      dp = mul(dp, factor);
      kept = mul(p, factor);
    }
    Vec ds = mul(p, sub(dp, delta));
    if constexpr (masked) {
      const Mask see = r.see(query, t.first_key + j);
      kept = select(see, kept, zero());
      ds = select(see, ds, zero());
    }
    store(p_at + j * kQueries, kept);
    store(ds_at + j * kQueries, ds);
  }
}

template <bool masked, bool drop>
LAMINA_NOINLINE void gradient(const Head& h, const Ranges& r, const Tile& t, const Work& w) {
  for (int64_t i = 0; i < r.count; i += kLanes) {
    const int64_t needed = keys_needed(r, i / kPanel * kPanel, t.first_key, t.keys);
    gradient_vector<masked, drop>(h, r, t, i, needed, w);
    for (int64_t j = needed; j < t.keys; ++j) {
      store(w.p + j * kQueries + i, zero());
      store(w.ds + j * kQueries + i, zero());
    }
  }
}

// The three products of a tile, pair by pair, so that what is not seen is not touched.
LAMINA_NOINLINE void add_by_pair(const Ranges& r, const Tile& t, int64_t width, const Work& w) {
  for (int64_t i = 0; i < r.count; ++i) {
    for (int64_t j = 0; j < t.keys; ++j) {
      if (!r.sees(i, t.first_key + j)) continue;
      const Vec p = broadcast(w.p[j * kQueries + i]);
      const Vec ds = broadcast(w.ds[j * kQueries + i]);
      const int64_t key = (t.first_key + j) * width;
      for (int64_t d = 0; d < width; d += kLanes) {
        store(w.dv + key + d, fma(p, load(w.dout + i * width + d), load(w.dv + key + d)));
        store(w.dk + key + d, fma(ds, load(w.q + i * width + d), load(w.dk + key + d)));
        store(w.dq + i * width + d, fma(ds, load(w.k + key + d), load(w.dq + i * width + d)));
      }
    }
  }
}

// dv, dk and dq of a tile from f p and ds.
void add_products(const Ranges& r, const Tile& t, int64_t width, const Work& w) {
  for (int64_t j = 0; j < t.keys; j += kTileRows) {
    int64_t i = 0;  // the first query that sees a key of this sliver; those before see none
    while (i < r.count && r.end[i] <= t.first_key + j) ++i;
    const int64_t rows = smaller(kTileRows, t.keys - j);
    const int64_t key = (t.first_key + j) * width;
    const int64_t at = j * kQueries + i;
    product<Into::sum>(rows, width, KeysByQueries{w.p + at}, w.dout + i * width, width, r.count - i,
                       {w.dv + key, width, nullptr});
    product<Into::sum>(rows, width, KeysByQueries{w.ds + at}, w.q + i * width, width, r.count - i,
                       {w.dk + key, width, nullptr});
  }
  for (int64_t i = 0; i < r.count; i += kTileRows) {
    const int64_t seen = smaller(t.keys, larger(0, r.last_of(i, i + kTileRows) - t.first_key));
    product<Into::sum>(smaller(kTileRows, r.count - i), width, QueriesByKeys{w.ds + i}, w.k + t.first_key * width,
                       width, seen, {w.dq + i * width, width, nullptr});
  }
}

void key_tile(const Head& h, const Ranges& r, const Tile& t, bool keys_finite, const Work& w) {
  const int64_t width = padded(h.D);
  for (int64_t i = 0; i < r.count; i += kPanel) {
    const int64_t needed = keys_needed(r, i, t.first_key, t.keys);
    for (int64_t j = 0; j < needed; j += kTileRows) {
      const int64_t key = (t.first_key + j) * width;
      const int64_t at = j * kQueries + i;
      product<Into::fresh>(needed - j, kPanel, Rows{w.k + key, width}, w.queries + i, kQueries, h.D,
                           {w.p + at, kQueries, nullptr});
      product<Into::fresh>(needed - j, kPanel, Rows{w.v + key, width}, w.gradients + i, kQueries, h.D,
                           {w.ds + at, kQueries, nullptr});
    }
  }
  const bool masked = !r.sees_all(t.first_key, t.first_key + t.keys);
  if (h.dropout.active)
    masked ? gradient<true, true>(h, r, t, w) : gradient<false, true>(h, r, t, w);
  else
    masked ? gradient<true, false>(h, r, t, w) : gradient<false, false>(h, r, t, w);
  if (masked && !(keys_finite && w.queries_finite))
    add_by_pair(r, t, width, w);
  else
    add_products(r, t, width, w);
}

// Loads the queries [first, first + count): q, dout, both transposed, lse and delta = do·o.
void load_queries(const Head& h, int64_t first, int64_t count, Work& w) {
  const int64_t width = padded(h.D);
  const bool q_finite = copy_rows(h.q.from(first * h.C), h.C, count, h.D, h.scale, w.q);
  const bool dout_finite = copy_rows(h.dout.from(first * h.C), h.C, count, h.D, 1.0f, w.dout);
  w.queries_finite = q_finite && dout_finite;
  transpose_rows(w.q, width, count, h.D, w.queries, kQueries);
  transpose_rows(w.dout, width, count, h.D, w.gradients, kQueries);
  for (int64_t i = ceil_div(count, kLanes) * kLanes; i < kQueries; i += kLanes) {
    for (int64_t d = 0; d < h.D; ++d) {
      store(w.queries + d * kQueries + i, zero());
      store(w.gradients + d * kQueries + i, zero());
    }
  }
  for (int64_t i = 0; i < kQueries; ++i) {
    w.lse[i] = i < count ? h.lse[first + i] : 0.0f;
    w.delta[i] = 0.0f;
    if (i >= count) continue;
    const float* dout = w.dout + i * width;
    const float* o = h.o.from((first + i) * h.C).read(h.D, w.dq + i * width);
    w.delta[i] = sum_lanes(h.D, [&](int64_t d, auto lanes) { return mul(load(dout + d), lanes.load(o + d)); });
  }
  for (int64_t i = 0; i < count * width; i += kLanes) store(w.dq + i, zero());
}

// dst = factor * src, D of `width` columns.
void write_rows(float* src, int64_t rows, int64_t width, float factor, const Numbers& dst, int64_t C, int64_t D) {
  for (int64_t i = 0; i < rows; ++i) {
    const Numbers to = dst.from(i * C);
    float* row = row_for(to, src + i * width);
    for_lanes(0, D,
              [&](int64_t d, auto lanes) { lanes.store(row + d, mul(broadcast(factor), load(src + i * width + d))); });
    finish_row(row, D, to);
  }
}

void run_head(const Head& h, const int32_t* key_begin, float* scratch) {
  const int64_t width = padded(h.D);
  Work w = work_in(scratch, h.T, h.D);
  const bool k_finite = copy_rows(h.k, h.C, h.T, h.D, 1.0f, w.k);
  const bool v_finite = copy_rows(h.v, h.C, h.T, h.D, 1.0f, w.v);
  for (int64_t i = 0; i < 2 * h.T * width; i += kLanes) store(w.dk + i, zero());  // dk and dv
  for (int64_t first = 0; first < h.T; first += kQueries) {
    Ranges r;
    r.count = smaller(kQueries, h.T - first);
    for (int64_t i = 0; i < r.count; ++i) r.set(i, key_begin[first + i], first + i + 1);
    r.close();
    load_queries(h, first, r.count, w);
    for (int64_t key = r.first / kKeys * kKeys; key < r.last; key += kKeys) {
      const Tile t{first, key, smaller(kKeys, r.last - key)};
      key_tile(h, r, t, k_finite && v_finite, w);
    }
    write_rows(w.dq, r.count, width, h.scale, h.dq.from(first * h.C), h.C, h.D);
  }
  write_rows(w.dk, h.T, width, 1.0f, h.dk, h.C, h.D);
  write_rows(w.dv, h.T, width, 1.0f, h.dv, h.C, h.D);
}

void run_attention_bwd(const Args& args, int64_t begin, int64_t end, std::byte* scratch) noexcept {
  const auto& a = attrs_of<AttentionAttrs>(args);
  const int64_t T = dims(args.in[1])[1];
  const int64_t C = dims(args.in[1])[2];
  const int64_t D = C / a.n_head;
  for (int64_t task = begin; task < end; ++task) {
    const int64_t b = task / a.n_head;
    const int64_t at = b * T * C + task % a.n_head * D;
    Head h{operand(args, 0).from(at),
           operand(args, 1).from(at),
           operand(args, 2).from(at),
           operand(args, 3).from(at),
           operand(args, 4).from(at),
           input(args, 5) + task * T,
           numbers(args.out[0]).from(at),
           numbers(args.out[1]).from(at),
           numbers(args.out[2]).from(at),
           T,
           C,
           D,
           static_cast<float>(a.scale),
           {}};
    if (args.n_in > 8) h.dropout = dropout_of(a, input_i64(args, 7), input_i64(args, 8), b, task % a.n_head);
    run_head(h, input_i32(args, 6) + b * T, reinterpret_cast<float*>(scratch));
  }
}

int64_t attention_bwd_tasks(const Args& args) noexcept {
  return dims(args.in[1])[0] * attrs_of<AttentionAttrs>(args).n_head;
}

int64_t scratch_bytes(const Args& args) noexcept {
  const int64_t* q = dims(args.in[1]);
  return work_floats(q[1], q[2] / attrs_of<AttentionAttrs>(args).n_head) * static_cast<int64_t>(sizeof(float));
}

}  // namespace

extern constinit const Kernel kernel_attention_bwd_f32{
    Op::attention_bwd, "attention_bwd.f32." LAMINA_STRING(LAMINA_ISA_NAMESPACE) ".keys64", run_attention_bwd,
    attention_bwd_tasks, scratch_bytes};

}  // namespace lamina::LAMINA_ISA_NAMESPACE

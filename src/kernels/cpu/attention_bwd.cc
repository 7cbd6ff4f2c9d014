// attention_bwd: gradients of attention from its output and log-sum-exp; probabilities are recomputed tile by tile.
//
//   p = exp(scale q·k - lse)    dp = do·v    ds = p (f dp - do·o)    f: the factor of dropout
//   dv += f p do                dk += ds scale q                     dq += ds k, times scale at the end
//
// Words of 16 bits hold q unscaled: then dk is scaled at the end too, and scores before exp. f p and ds become words.
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
  Word* k;                    // (words of T, width), width = padded D
  Word* v;                    // (T, along_width)
  const Word* k_along;        // (T, along_width)
  float *dk, *dv;             // (T, width)
  Word *q, *dout;             // (words of kQueries, width); q times query_factor
  float* dq;                  // (kQueries, width)
  Word *queries, *gradients;  // (words of D, kQueries): q and dout transposed
  float *p, *ds;              // (kKeys, kQueries): scores, then f p by query; dp, then ds: words of keys
  Word* ds_by_query;          // (kKeys, kQueries): in f32 ds itself
  float *lse, *delta;         // (kQueries)
  Word* keys_room;            // (T, along_width): k_along, where that is not k
  Word* queries_room;         // (kQueries, along_width) for q, then dout, likewise
  bool keys_finite, queries_finite;
};

int64_t work_words(int64_t T, int64_t D) {
  return (words_of(T) + 2 * T + 2 * words_of(kQueries) + kQueries) * padded(D) +
         (T + own_rows(T + kQueries)) * along_width(D) + 2 * (words_of(D) + kKeys + 1) * kQueries +
         own_rows(kKeys) * kQueries;
}

Work work_in(float* at, int64_t T, int64_t D) {
  const int64_t width = padded(D);
  Work w{};
  w.dk = at;
  w.dv = w.dk + T * width;
  w.dq = w.dv + T * width;
  w.p = w.dq + kQueries * width;
  w.ds = w.p + kKeys * kQueries;
  w.lse = w.ds + kKeys * kQueries;
  w.delta = w.lse + kQueries;
  w.k = as_words(w.delta + kQueries);
  w.v = w.k + words_of(T) * width;
  w.q = w.v + T * along_width(D);
  w.dout = w.q + words_of(kQueries) * width;
  w.queries = w.dout + words_of(kQueries) * width;
  w.gradients = w.queries + words_of(D) * kQueries;
  w.ds_by_query = kWordsAreFloats ? as_words(w.ds) : w.gradients + words_of(D) * kQueries;
  w.keys_room = w.gradients + words_of(D) * kQueries + own_rows(kKeys) * kQueries;
  w.queries_room = w.keys_room + own_rows(T) * along_width(D);
  return w;
}

struct Tile {
  int64_t first_query, first_key, keys;
};

// Words of f p and ds of the keys j… for the queries from `query` on. They take the place of scores and dp that were
// read before: of the same and lower keys, of the same and lower queries.
LAMINA_INLINE void store_pairs(const Vec (&kept)[kDepth], const Vec (&ds)[kDepth], int64_t j, int64_t query,
                               const Work& w) {
  const int64_t by_query = j * kQueries + query / kDepth;
  store_by_query(kept, kQueries, as_words(w.p) + by_query);
  store_by_query(ds, kQueries, w.ds_by_query + by_query);
  if constexpr (!kWordsAreFloats) store(as_words(w.ds) + j / kDepth * kQueries + query, joined(ds));
}

// Scores and dp of one vector of queries -> f p and ds.
template <bool masked, bool drop>
LAMINA_INLINE void gradient_vector(const Head& h, const Ranges& r, const Tile& t, int64_t query, int64_t keys,
                                   const Work& w) {
  const Vec lse = load(w.lse + query);
  const Vec delta = load(w.delta + query);
  for (int64_t j = 0; j < keys; j += kDepth) {
    Vec kept[kDepth], ds[kDepth];
    LAMINA_UNROLL for (int64_t e = 0; e < kDepth; ++e) {
      kept[e] = ds[e] = zero();
      if (e > 0 && j + e == keys) continue;  // the last key is alone in its word
      const Vec p = exp(sub(load(w.p + (j + e) * kQueries + query), lse));
      Vec dp = load(w.ds + (j + e) * kQueries + query);
      kept[e] = p;
      if constexpr (drop) {
        const Mask drops = h.dropout.drops(t.first_query + query, t.first_key + j + e);
        const Vec factor = select(drops, zero(), broadcast(h.dropout.kept));
        dp = mul(dp, factor);
        kept[e] = mul(p, factor);
      }
      ds[e] = mul(p, sub(dp, delta));
      if constexpr (masked) {
        const Mask see = r.see(query, t.first_key + j + e);
        kept[e] = select(see, kept[e], zero());
        ds[e] = select(see, ds[e], zero());
      }
    }
    store_pairs(kept, ds, j, query, w);
  }
}

template <bool masked, bool drop>
LAMINA_NOINLINE void gradient(const Head& h, const Ranges& r, const Tile& t, const Work& w) {
  for (int64_t i = 0; i < r.count; i += kLanes) {
    const int64_t needed = keys_needed(r, i / kPanel * kPanel, t.first_key, t.keys);
    gradient_vector<masked, drop>(h, r, t, i, needed, w);
    Vec none[kDepth];
    LAMINA_UNROLL for (Vec& v : none) v = zero();
    for (int64_t j = needed; j < t.keys; j += kDepth) store_pairs(none, none, j, i, w);
  }
}

// The operands and results of the three products of a tile.
struct Products {
  KeysByQueries p, ds_by_query;
  QueriesByKeys ds;
  const Word *dout, *q, *k;
  Target dv, dk, dq;
};

Products products_of(const Tile& t, int64_t width, const Work& w) {
  const int64_t key = t.first_key * width;
  return {{as_words(w.p)},
          {w.ds_by_query},
          {as_words(w.ds)},
          w.dout,
          w.q,
          w.k + t.first_key / kDepth * width,
          {w.dv + key, width, nullptr},
          {w.dk + key, width, nullptr},
          {w.dq, width, nullptr}};
}

// dv, dk and dq of a tile from f p and ds.
void add_products(const Ranges& r, const Tile& t, int64_t width, const Products& x) {
  for (int64_t j = 0; j < t.keys; j += kTileRows) {
    int64_t i = 0;  // the first query that sees a key of this sliver; those before see none
    while (i < r.count && r.end[i] <= t.first_key + j) ++i;
    i /= kDepth;  // its word
    const int64_t rows = smaller(kTileRows, t.keys - j);
    const int64_t n = words_of(r.count) - i;
    const int64_t at = j * kQueries + i;
    product<Into::sum>(rows, width, KeysByQueries{x.p.p + at}, x.dout + i * width, width, n,
                       {x.dv.c + j * width, width, nullptr});
    product<Into::sum>(rows, width, KeysByQueries{x.ds_by_query.p + at}, x.q + i * width, width, n,
                       {x.dk.c + j * width, width, nullptr});
  }
  for (int64_t i = 0; i < r.count; i += kTileRows) {
    const int64_t seen = smaller(t.keys, larger(0, r.last_of(i, i + kTileRows) - t.first_key));
    product<Into::sum>(smaller(kTileRows, r.count - i), width, QueriesByKeys{x.ds.p + i}, x.k, width, words_of(seen),
                       {x.dq.c + i * width, width, nullptr});
  }
}

// The same so that what is not seen is not touched.
void add_products_by_pair(const Ranges& r, const Tile& t, int64_t width, const Products& x) {
  const auto by_query = [&](int64_t j, int64_t i) { return r.sees(i, t.first_key + j); };
  product_by_pair<Into::sum>(t.keys, width, x.p, x.dout, r.count, x.dv, by_query);
  product_by_pair<Into::sum>(t.keys, width, x.ds_by_query, x.q, r.count, x.dk, by_query);
  product_by_pair<Into::sum>(r.count, width, x.ds, x.k, t.keys, x.dq,
                             [&](int64_t i, int64_t j) { return r.sees(i, t.first_key + j); });
}

void key_tile(const Head& h, const Ranges& r, const Tile& t, const Work& w) {
  const int64_t along = along_width(h.D);
  for (int64_t i = 0; i < r.count; i += kPanel) {
    const int64_t needed = keys_needed(r, i, t.first_key, t.keys);
    for (int64_t j = 0; j < needed; j += kTileRows) {
      const int64_t key = (t.first_key + j) * along;
      const int64_t at = j * kQueries + i;
      product<kScores>(needed - j, kPanel, Rows{w.k_along + key, along}, w.queries + i, kQueries, words_of(h.D),
                       {w.p + at, kQueries, &h.scale});
      product<Into::fresh>(needed - j, kPanel, Rows{w.v + key, along}, w.gradients + i, kQueries, words_of(h.D),
                           {w.ds + at, kQueries, nullptr});
    }
  }
  const bool masked = !r.sees_all(t.first_key, t.first_key + t.keys);
  if (h.dropout.active)
    masked ? gradient<true, true>(h, r, t, w) : gradient<false, true>(h, r, t, w);
  else
    masked ? gradient<true, false>(h, r, t, w) : gradient<false, false>(h, r, t, w);
  const Products x = products_of(t, padded(h.D), w);
  if (masked && !(w.keys_finite && w.queries_finite))
    add_products_by_pair(r, t, padded(h.D), x);
  else
    add_products(r, t, padded(h.D), x);
}

// `count` rows of queries: across, and transposed. False where one is not finite.
bool load_rows(const Operand& src, const Head& h, int64_t count, float factor, const Work& w, Word* across,
               Word* transposed) {
  const Prepared rows = rows_both(src, h.C, count, h.D, factor, w.queries_room, across);
  transpose_queries(rows.along, count, h.D, transposed);
  return rows.finite;
}

// Loads the queries [first, first + count): q, dout, both transposed, lse and delta = do·o.
void load_queries(const Head& h, int64_t first, int64_t count, Work& w) {
  const int64_t width = padded(h.D);
  const bool q_finite = load_rows(h.q.from(first * h.C), h, count, query_factor(h.scale), w, w.q, w.queries);
  const bool dout_finite = load_rows(h.dout.from(first * h.C), h, count, 1.0f, w, w.dout, w.gradients);
  w.queries_finite = q_finite && dout_finite;
  for (int64_t i = 0; i < kQueries; ++i) {
    w.lse[i] = i < count ? h.lse[first + i] : 0.0f;
    w.delta[i] = 0.0f;
    if (i >= count) continue;
    const float* dout = h.dout.from((first + i) * h.C).read(h.D, w.dq);
    const float* o = h.o.from((first + i) * h.C).read(h.D, w.dq + width);
    w.delta[i] = sum_lanes(h.D, [&](int64_t d, auto lanes) { return mul(lanes.load(dout + d), lanes.load(o + d)); });
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
  const Prepared k = rows_both(h.k, h.C, h.T, h.D, 1.0f, w.keys_room, w.k);
  w.k_along = k.along;
  w.keys_finite = k.finite;  // values are in no sum over keys or queries
  rows_along(h.v, h.C, h.T, h.D, 1.0f, w.v);
  for (int64_t i = 0; i < 2 * h.T * width; i += kLanes) store(w.dk + i, zero());  // dk and dv
  for (int64_t first = 0; first < h.T; first += kQueries) {
    Ranges r;
    r.count = smaller(kQueries, h.T - first);
    for (int64_t i = 0; i < r.count; ++i) r.set(i, key_begin[first + i], first + i + 1);
    r.close();
    load_queries(h, first, r.count, w);
    for (int64_t key = r.first / kKeys * kKeys; key < r.last; key += kKeys) {
      const Tile t{first, key, smaller(kKeys, r.last - key)};
      key_tile(h, r, t, w);
    }
    write_rows(w.dq, r.count, width, h.scale, h.dq.from(first * h.C), h.C, h.D);
  }
  write_rows(w.dk, h.T, width, key_gradient_factor(h.scale), h.dk, h.C, h.D);
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
  return work_words(q[1], q[2] / attrs_of<AttentionAttrs>(args).n_head) * static_cast<int64_t>(sizeof(float));
}

}  // namespace

extern constinit const Kernel LAMINA_PRODUCT(attention_bwd){Op::attention_bwd,
                                                            LAMINA_PRODUCT_ID(attention_bwd, "keys64"),
                                                            run_attention_bwd, attention_bwd_tasks, scratch_bytes};

}  // namespace lamina::LAMINA_ISA_NAMESPACE

// attention and attention_cached: softmax(scale * q kᵀ) v over the keys that a query sees, streaming over tiles of keys
// with a running maximum and sum; the T x T matrix never exists. A task is a tile of queries of one head (cached: a
// head of one row). Queries, keys and values become words where they are copied; scores are fp32, probabilities until
// they become words.
#include "kernels/cpu/attention.h"

namespace lamina::LAMINA_ISA_NAMESPACE {
namespace {

// One head of one row.
struct Head {
  Operand q;  // query 0
  Operand k;  // key 0
  Operand v;
  Numbers o;
  float* lse;  // of query 0, or null
  int64_t C, D;
  float scale;
  Dropout dropout;
};

// Scratch of one tile of queries.
struct Work {
  Word* rows;     // (kQueries, along_width) queries before they are transposed, then room for two values
  Word* queries;  // (words of D, kQueries)
  float* scores;  // (kKeys, kQueries), then probabilities: words of keys
  Word* keys;     // (kKeys, along_width): where they lie, rows are C apart and compete for a few sets of a cache
  Word* values;   // (words of kKeys, padded D)
  float* out;     // (kQueries, padded D)
  float* most;    // (kQueries) the running maximum
  float* sum;     // (kQueries) the running sum of exponentials
  float* decay;   // (kQueries) what the new maximum makes of all sums so far
};

int64_t work_words(int64_t D) {
  return (kQueries + kKeys) * along_width(D) + (kQueries + words_of(kKeys)) * padded(D) +
         (words_of(D) + kKeys + 3) * kQueries;
}

Work work_in(float* p, int64_t D) {
  Work w{};
  w.out = p;
  w.scores = w.out + kQueries * padded(D);
  w.most = w.scores + kKeys * kQueries;
  w.sum = w.most + kQueries;
  w.decay = w.sum + kQueries;
  w.rows = as_words(w.decay + kQueries);
  w.keys = w.rows + kQueries * along_width(D);
  w.values = w.keys + kKeys * along_width(D);
  w.queries = w.values + words_of(kKeys) * padded(D);
  return w;
}

// Scores of one vector of queries -> probabilities relative to the new maximum. Words of them take the place of scores
// of lower keys, which are read by then.
template <bool masked, bool drop>
LAMINA_INLINE void softmax_vector(const Head& h, const Ranges& r, int64_t query, int64_t first_query, int64_t first_key,
                                  int64_t keys, const Work& w) {
  float* s = w.scores + query;
  const Vec before = load(w.most + query);
  Vec most = before;
  for (int64_t j = 0; j < keys; ++j) {
    Vec x = load(s + j * kQueries);
    if constexpr (masked) {
      x = select(r.see(query, first_key + j), x, broadcast(-infinity()));
      store(s + j * kQueries, x);
    }
    most = greater_or_second(x, most);  // a NaN comes back as its own exponential
  }
  const Vec from = select(equal(most, broadcast(-infinity())), zero(), most);  // nothing seen yet: not inf - inf
  const Vec decay = exp(sub(before, from));
  Vec sum = mul(load(w.sum + query), decay);
  for (int64_t j = 0; j < keys; j += kDepth) {
    Vec p[kDepth];
    LAMINA_UNROLL for (int64_t e = 0; e < kDepth; ++e) {
      p[e] = zero();
      if (e > 0 && j + e == keys) continue;  // the last key is alone in its word
      p[e] = exp(sub(load(s + (j + e) * kQueries), from));
      sum = add(sum, p[e]);
      if constexpr (drop) p[e] = select(h.dropout.drops(first_query + query, first_key + j + e), zero(), p[e]);
    }
    store(as_words(s) + j / kDepth * kQueries, joined(p));
  }
  store(w.most + query, most);
  store(w.sum + query, sum);
  store(w.decay + query, decay);
}

template <bool masked, bool drop>
LAMINA_NOINLINE void softmax(const Head& h, const Ranges& r, int64_t first_query, int64_t first_key, int64_t keys,
                             const Work& w) {
  for (int64_t i = 0; i < r.count; i += kLanes) {
    const int64_t needed = keys_needed(r, i / kPanel * kPanel, first_key, keys);
    softmax_vector<masked, drop>(h, r, i, first_query, first_key, needed, w);
    for (int64_t j = words_of(needed); j < words_of(keys); ++j) store(w.scores + j * kQueries + i, zero());
  }
}

void key_tile(const Head& h, const Ranges& r, int64_t first_query, int64_t first_key, int64_t keys, const Work& w) {
  const int64_t width = padded(h.D);
  rows_along(h.k.from(first_key * h.C), h.C, keys, h.D, 1.0f, w.keys);
  const bool finite = rows_across(h.v.from(first_key * h.C), h.C, keys, h.D, w.rows, w.values);
  for (int64_t i = 0; i < r.count; i += kPanel) {
    const int64_t needed = keys_needed(r, i, first_key, keys);
    for (int64_t j = 0; j < needed; j += kTileRows) {
      const Rows k{w.keys + j * along_width(h.D), along_width(h.D)};
      product<kScores>(needed - j, kPanel, k, w.queries + i, kQueries, words_of(h.D),
                       {w.scores + j * kQueries + i, kQueries, &h.scale});
    }
  }
  const bool masked = !r.sees_all(first_key, first_key + keys);
  if (h.dropout.active)
    masked ? softmax<true, true>(h, r, first_query, first_key, keys, w)
           : softmax<false, true>(h, r, first_query, first_key, keys, w);
  else
    masked ? softmax<true, false>(h, r, first_query, first_key, keys, w)
           : softmax<false, false>(h, r, first_query, first_key, keys, w);
  const Word* p = as_words(w.scores);
  if (masked && !finite)
    return product_by_pair<Into::scaled_sum>(r.count, width, QueriesByKeys{p}, w.values, keys, {w.out, width, w.decay},
                                             [&](int64_t i, int64_t j) { return r.sees(i, first_key + j); });
  for (int64_t i = 0; i < r.count; i += kTileRows) {
    const int64_t seen = smaller(keys, larger(0, r.last_of(i, i + kTileRows) - first_key));
    product<Into::scaled_sum>(smaller(kTileRows, r.count - i), width, QueriesByKeys{p + i}, w.values, width,
                              words_of(seen), {w.out + i * width, width, w.decay + i});
  }
}

// Queries [first_query, first_query + r.count).
void query_tile(const Head& h, const Ranges& r, int64_t first_query, const Work& w) {
  const int64_t width = padded(h.D);
  rows_along(h.q.from(first_query * h.C), h.C, r.count, h.D, query_factor(h.scale), w.rows);
  transpose_queries(w.rows, r.count, h.D, w.queries);
  for (int64_t i = 0; i < kQueries * width; i += kLanes) store(w.out + i, zero());
  for (int64_t i = 0; i < kQueries; i += kLanes) {
    store(w.most + i, broadcast(-infinity()));
    store(w.sum + i, zero());
  }
  for (int64_t key = r.first / kKeys * kKeys; key < r.last; key += kKeys)
    key_tile(h, r, first_query, key, smaller(kKeys, r.last - key), w);
  for (int64_t i = 0; i < r.count; ++i) {
    const bool seen = r.end[i] > 0;
    const Vec factor = broadcast(seen ? h.dropout.kept / w.sum[i] : 0.0f);
    const Numbers to = h.o.from((first_query + i) * h.C);
    float* o = row_for(to, w.out + i * width);
    for_lanes(0, h.D, [&](int64_t d, auto lanes) {
      lanes.store(o + d, seen ? mul(factor, load(w.out + i * width + d)) : zero());
    });
    finish_row(o, h.D, to);
    if (h.lse != nullptr) h.lse[first_query + i] = seen ? w.most[i] + __builtin_logf(w.sum[i]) : -infinity();
  }
}

void run_attention(const Args& args, int64_t begin, int64_t end, std::byte* scratch) noexcept {
  const auto& a = attrs_of<AttentionAttrs>(args);
  const int64_t T = dims(args.in[0])[1];
  const int64_t C = dims(args.in[0])[2];
  const int64_t tiles = ceil_div(T, kQueries);
  const int32_t* key_begin = input_i32(args, 3);
  for (int64_t task = begin; task < end; ++task) {
    const int64_t b = task / tiles / a.n_head;
    const int64_t h = task / tiles % a.n_head;
    const int64_t at = b * T * C + h * (C / a.n_head);
    Head head{operand(args, 0).from(at),
              operand(args, 1).from(at),
              operand(args, 2).from(at),
              numbers(args.out[0]).from(at),
              output(args, 1) + (b * a.n_head + h) * T,
              C,
              C / a.n_head,
              static_cast<float>(a.scale),
              {}};
    if (args.n_in > 5) head.dropout = dropout_of(a, input_i64(args, 4), input_i64(args, 5), b, h);
    // The last tiles see most keys: they come first, so that the end of the work is made of short tasks.
    const int64_t first = (tiles - 1 - task % tiles) * kQueries;
    Ranges r;
    r.count = smaller(kQueries, T - first);
    for (int64_t i = 0; i < r.count; ++i) r.set(i, key_begin[b * T + first + i], first + i + 1);
    r.close();
    query_tile(head, r, first, work_in(reinterpret_cast<float*>(scratch), head.D));
  }
}

int64_t attention_tasks(const Args& args) noexcept {
  const int64_t* q = dims(args.in[0]);
  return q[0] * attrs_of<AttentionAttrs>(args).n_head * ceil_div(q[1], kQueries);
}

int64_t scratch_bytes(const Args& args) noexcept {
  return work_words(dims(args.in[0])[2] / attrs_of<AttentionAttrs>(args).n_head) * static_cast<int64_t>(sizeof(float));
}

void copy_columns(const float* from, float* to, int64_t C, int64_t D, int64_t rows) {
  for (int64_t i = 0; i < rows; ++i)
    __builtin_memcpy(to + i * C, from + i * C, static_cast<uint64_t>(D) * sizeof(float));
}

void append(const Operand& from, float* to, int64_t C, int64_t D, int64_t rows) {
  for (int64_t i = 0; i < rows; ++i) load_operands(from.numbers.from(i * C), D, from.precision, to + i * C);
}

void run_attention_cached(const Args& args, int64_t begin, int64_t end, std::byte* scratch) noexcept {
  const auto& a = attrs_of<AttentionAttrs>(args);
  const int64_t T = dims(args.in[0])[1];
  const int64_t C = dims(args.in[0])[2];
  const int64_t S = dims(args.in[3])[1];
  const int64_t D = C / a.n_head;
  for (int64_t task = begin; task < end; ++task) {
    const int64_t b = task / a.n_head;
    const int64_t column = task % a.n_head * D;
    const int64_t past = input_i32(args, 5)[b];
    const int64_t count = input_i32(args, 6)[b];
    const int64_t row = b * T * C + column;
    const int64_t cache = b * S * C + column;
    if (output(args, 1) != input(args, 3)) copy_columns(input(args, 3) + cache, output(args, 1) + cache, C, D, S);
    if (output(args, 2) != input(args, 4)) copy_columns(input(args, 4) + cache, output(args, 2) + cache, C, D, S);
    append(operand(args, 1).from(row), output(args, 1) + cache + past * C, C, D, count);
    append(operand(args, 2).from(row), output(args, 2) + cache + past * C, C, D, count);
    const Head head{operand(args, 0).from(row),
                    {numbers(args.out[1]).from(cache), Dtype::f32},  // rounded when they came
                    {numbers(args.out[2]).from(cache), Dtype::f32},
                    numbers(args.out[0]).from(row),
                    nullptr,
                    C,
                    D,
                    static_cast<float>(a.scale),
                    {}};
    for (int64_t first = 0; first < T; first += kQueries) {
      Ranges r;
      r.count = smaller(kQueries, T - first);
      for (int64_t i = 0; i < r.count; ++i)
        r.set(i, input_i32(args, 7)[b], first + i < count ? past + first + i + 1 : 0);
      r.close();
      query_tile(head, r, first, work_in(reinterpret_cast<float*>(scratch), D));
    }
  }
}

int64_t attention_cached_tasks(const Args& args) noexcept {
  return dims(args.in[0])[0] * attrs_of<AttentionAttrs>(args).n_head;
}

}  // namespace

extern constinit const Kernel LAMINA_PRODUCT(attention){Op::attention, LAMINA_PRODUCT_ID(attention, "keys64"),
                                                        run_attention, attention_tasks, scratch_bytes};
extern constinit const Kernel LAMINA_PRODUCT(attention_cached){
    Op::attention_cached, LAMINA_PRODUCT_ID(attention_cached, "keys64"), run_attention_cached, attention_cached_tasks,
    scratch_bytes};

}  // namespace lamina::LAMINA_ISA_NAMESPACE

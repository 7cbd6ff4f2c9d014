// attention and attention_cached: softmax(scale * q kᵀ) v over the keys that a query sees, streaming over tiles of keys
// with a running maximum and sum; the T x T matrix never exists. A task is a tile of queries of one head (cached: a
// head of one row). Queries, keys and values become fp32 where they are copied; scores and probabilities always are.
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
  float* rows;     // (kQueries, padded D) scaled queries, before they are transposed
  float* queries;  // (D, kQueries)
  float* scores;   // (kKeys, kQueries), then probabilities
  float* keys;     // (kKeys, padded D): where they lie, rows are C apart and compete for a few sets of a cache
  float* values;   // (kKeys, padded D)
  float* out;      // (kQueries, padded D)
  float* most;     // (kQueries) the running maximum
  float* sum;      // (kQueries) the running sum of exponentials
  float* decay;    // (kQueries) what the new maximum makes of all sums so far
};

int64_t work_floats(int64_t D) { return (2 * kQueries + 2 * kKeys) * padded(D) + (D + kKeys + 3) * kQueries; }

Work work_in(float* p, int64_t D) {
  const int64_t width = padded(D);
  Work w{};
  w.rows = p;
  w.out = w.rows + kQueries * width;
  w.keys = w.out + kQueries * width;
  w.values = w.keys + kKeys * width;
  w.queries = w.values + kKeys * width;
  w.scores = w.queries + kQueries * D;
  w.most = w.scores + kKeys * kQueries;
  w.sum = w.most + kQueries;
  w.decay = w.sum + kQueries;
  return w;
}

// Scores of one vector of queries -> probabilities relative to the new maximum.
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
  for (int64_t j = 0; j < keys; ++j) {
    Vec p = exp(sub(load(s + j * kQueries), from));
    sum = add(sum, p);
    if constexpr (drop) p = select(h.dropout.drops(first_query + query, first_key + j), zero(), p);
    store(s + j * kQueries, p);
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
    for (int64_t j = needed; j < keys; ++j) store(w.scores + j * kQueries + i, zero());
  }
}

// out = decay * out + probabilities * values, pair by pair, so that what is not seen is not touched.
LAMINA_NOINLINE void add_values_by_pair(const Ranges& r, int64_t first_key, int64_t keys, int64_t D, const Work& w) {
  for (int64_t i = 0; i < r.count; ++i) {
    for (int64_t d = 0; d < padded(D); d += kLanes) {
      Vec sum = zero();
      for (int64_t j = 0; j < keys; ++j) {
        if (!r.sees(i, first_key + j)) continue;
        sum = fma(broadcast(w.scores[j * kQueries + i]), load(w.values + j * padded(D) + d), sum);
      }
      float* o = w.out + i * padded(D) + d;
      store(o, fma(load(o), broadcast(w.decay[i]), sum));
    }
  }
}

void key_tile(const Head& h, const Ranges& r, int64_t first_query, int64_t first_key, int64_t keys, const Work& w) {
  const int64_t width = padded(h.D);
  copy_rows(h.k.from(first_key * h.C), h.C, keys, h.D, 1.0f, w.keys);
  const bool finite = copy_rows(h.v.from(first_key * h.C), h.C, keys, h.D, 1.0f, w.values);
  for (int64_t i = 0; i < r.count; i += kPanel) {
    const int64_t needed = keys_needed(r, i, first_key, keys);
    for (int64_t j = 0; j < needed; j += kTileRows) {
      const Rows k{w.keys + j * width, width};
      product<Into::fresh>(needed - j, kPanel, k, w.queries + i, kQueries, h.D,
                           {w.scores + j * kQueries + i, kQueries, nullptr});
    }
  }
  const bool masked = !r.sees_all(first_key, first_key + keys);
  if (h.dropout.active)
    masked ? softmax<true, true>(h, r, first_query, first_key, keys, w)
           : softmax<false, true>(h, r, first_query, first_key, keys, w);
  else
    masked ? softmax<true, false>(h, r, first_query, first_key, keys, w)
           : softmax<false, false>(h, r, first_query, first_key, keys, w);
  if (masked && !finite) return add_values_by_pair(r, first_key, keys, h.D, w);
  for (int64_t i = 0; i < r.count; i += kTileRows) {
    const int64_t seen = smaller(keys, larger(0, r.last_of(i, i + kTileRows) - first_key));
    product<Into::scaled_sum>(smaller(kTileRows, r.count - i), width, QueriesByKeys{w.scores + i}, w.values, width,
                              seen, {w.out + i * width, width, w.decay + i});
  }
}

// Queries [first_query, first_query + r.count).
void query_tile(const Head& h, const Ranges& r, int64_t first_query, const Work& w) {
  const int64_t width = padded(h.D);
  copy_rows(h.q.from(first_query * h.C), h.C, r.count, h.D, h.scale, w.rows);
  transpose_rows(w.rows, width, r.count, h.D, w.queries, kQueries);
  for (int64_t i = ceil_div(r.count, kLanes) * kLanes; i < kQueries; i += kLanes) {
    for (int64_t d = 0; d < h.D; ++d) store(w.queries + d * kQueries + i, zero());
  }
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
  return work_floats(dims(args.in[0])[2] / attrs_of<AttentionAttrs>(args).n_head) * static_cast<int64_t>(sizeof(float));
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

extern constinit const Kernel kernel_attention_f32{Op::attention,
                                                   "attention.f32." LAMINA_STRING(LAMINA_ISA_NAMESPACE) ".keys64",
                                                   run_attention, attention_tasks, scratch_bytes};
extern constinit const Kernel kernel_attention_cached_f32{
    Op::attention_cached, "attention_cached.f32." LAMINA_STRING(LAMINA_ISA_NAMESPACE) ".keys64", run_attention_cached,
    attention_cached_tasks, scratch_bytes};

}  // namespace lamina::LAMINA_ISA_NAMESPACE

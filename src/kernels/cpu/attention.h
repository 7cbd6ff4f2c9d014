// What attention and its backward share. Both work on one head of one row, in tiles of kQueries queries by kKeys keys,
// and hold scores transposed, queries as lanes:
//
//                 queries ->  kQueries lanes
//    keys  | s s s s s s s s s s |     maxima, sums, log-sum-exp and masks are vectors of queries: no sum runs across
//     |    | s s s s s s s s s s |     lanes; keys are broadcast from where they lie; a row of keys is one register row
//
// A query sees a range of keys [begin, end), any range. A tile in which some query does not see some key is masked: the
// score is -inf, so that the probability is exactly 0. Where 0 would meet an infinity or a NaN of a key or query that
// is not to be seen, the tile is multiplied pair by pair instead (`finite` false).
//
// Products take words (words.h), prepared by attention_operands.h; scores, sums and softmax are fp32 in each
// arithmetic.
#pragma once

#include "base/rng.h"
#include "kernels/cpu/attention_operands.h"

namespace lamina::LAMINA_ISA_NAMESPACE {

constexpr int kQueries = 48;  // a multiple of kTileRows and of kPanel
constexpr int kKeys = 64;
static_assert(kQueries % kTileRows == 0 && kQueries % kPanel == 0);
// No word joins numbers of two tiles, or keys of which only one is needed.
static_assert(kQueries % kDepth == 0 && kKeys % kDepth == 0 && kTileRows % kDepth == 0);

LAMINA_INLINE float infinity() { return __builtin_inff(); }

// The decisions of dropout for one head of one sample.
struct Dropout {
  bool active = false;
  uint64_t key = 0;
  uint32_t threshold = 0;
  float kept = 1.0f;  // what a kept probability is multiplied by
  uint32_t row = 0;   // element of (head, query 0, key 0)
  uint32_t stride = 0;

  // Lanes of queries first_query… that drop this key.
  LAMINA_MEMBER Mask drops(int64_t first_query, int64_t at) const {
    const Int query = add(lane_numbers(), broadcast_int(static_cast<uint32_t>(first_query)));
    const uint32_t base = row + static_cast<uint32_t>(at) + static_cast<uint32_t>(key);
    const Int element = add(mul(query, broadcast_int(stride)), broadcast_int(base));
    const Int bits = mix32(bit_xor(mix32(element), broadcast_int(static_cast<uint32_t>(key >> 32))));
    return less_unsigned(bits, broadcast_int(threshold));
  }
};

// rng (2): seed, step; sample (B). Absent, or p = 0: no dropout.
LAMINA_INLINE Dropout dropout_of(const AttentionAttrs& a, const int64_t* rng, const int64_t* sample, int64_t b,
                                 int64_t h) {
  Dropout d;
  d.active = a.dropout > 0.0 && rng != nullptr && sample != nullptr;
  if (!d.active) return d;
  const bool all = a.dropout >= 1.0;  // then the factor 0 drops everything
  d.key = dropout_key(static_cast<uint64_t>(rng[0]), static_cast<uint64_t>(rng[1]), static_cast<uint64_t>(sample[b]),
                      static_cast<uint64_t>(a.site));
  d.threshold = all ? 0 : dropout_threshold(a.dropout);
  d.kept = all ? 0.0f : static_cast<float>(1.0 / (1.0 - a.dropout));
  d.row = static_cast<uint32_t>(h * a.stride * a.stride);
  d.stride = static_cast<uint32_t>(a.stride);
  return d;
}

// The ranges that the queries of a tile see, and what follows for blocks of them. Queries beyond the last see nothing.
struct Ranges {
  uint32_t begin[kQueries], end[kQueries];  // empty: 0, 0
  int64_t first, last;                      // of all: the smallest begin, the largest end
  int64_t common_first, common_last;        // keys that all `count` queries see
  int64_t count;                            // queries of the tile

  LAMINA_MEMBER void set(int64_t query, int64_t from, int64_t to) {
    const bool empty = from >= to;
    begin[query] = empty ? 0 : static_cast<uint32_t>(larger(0, from));
    end[query] = empty ? 0 : static_cast<uint32_t>(to);
  }
  // Call it when queries [0, count) are set.
  LAMINA_MEMBER void close() {
    for (int64_t i = count; i < kQueries; ++i) set(i, 0, 0);
    first = INT64_MAX, last = 0, common_first = 0, common_last = INT64_MAX;
    for (int64_t i = 0; i < count; ++i) {
      common_first = larger(common_first, begin[i]);
      common_last = smaller(common_last, end[i]);
      if (end[i] == 0) continue;
      first = smaller(first, begin[i]);
      last = larger(last, end[i]);
    }
  }
  LAMINA_MEMBER bool sees_all(int64_t from, int64_t to) const { return from >= common_first && to <= common_last; }
  // The largest end among queries [from, to).
  LAMINA_MEMBER int64_t last_of(int64_t from, int64_t to) const {
    int64_t most = 0;
    for (int64_t i = from; i < to; ++i) most = larger(most, end[i]);
    return most;
  }
  // Lanes, from query i on, that see the key.
  LAMINA_MEMBER Mask see(int64_t i, int64_t key) const {
    const Int k = broadcast_int(static_cast<uint32_t>(key));
    return mask_and(less_unsigned(load(begin + i), add(k, broadcast_int(1))), less_unsigned(k, load(end + i)));
  }
  LAMINA_MEMBER bool sees(int64_t i, int64_t key) const { return key >= begin[i] && key < end[i]; }
};

// Keys of a tile whose scores a panel of queries needs, in whole register rows: none beyond what one of them sees. The
// others count as scores of -inf.
LAMINA_INLINE int64_t keys_needed(const Ranges& r, int64_t query, int64_t first_key, int64_t keys) {
  const int64_t seen = larger(0, r.last_of(query, query + kPanel) - first_key);
  return smaller(keys, ceil_div(seen, kTileRows) * kTileRows);
}

// to (words of D, kQueries) from `count` rows; lanes beyond them become zero.
LAMINA_INLINE void transpose_queries(const Word* rows, int64_t count, int64_t D, Word* to) {
  transpose_rows(rows, along_width(D), count, words_of(D), to, kQueries);
  for (int64_t i = padded(count); i < kQueries; i += kLanes)
    for (int64_t d = 0; d < words_of(D); ++d) store(as_floats(to) + d * kQueries + i, zero());
}

// How the broadcast operand of a product lies: word (i, k) at p[i*row() + k*step()].
struct Rows {  // one row after the other, `ld` apart
  const Word* p;
  int64_t ld;
  LAMINA_MEMBER int64_t row() const { return ld; }
  LAMINA_MEMBER static constexpr int64_t step() { return 1; }
};
struct KeysByQueries {  // keys of a tile of scores, summed over queries
  const Word* p;
  LAMINA_MEMBER static constexpr int64_t row() { return kQueries; }
  LAMINA_MEMBER static constexpr int64_t step() { return 1; }
};
struct QueriesByKeys {  // queries of a tile of scores, summed over keys
  const Word* p;
  LAMINA_MEMBER static constexpr int64_t row() { return 1; }
  LAMINA_MEMBER static constexpr int64_t step() { return kQueries; }
};

enum class Into { fresh, scaled, sum, scaled_sum };  // c = ab, scale[0]*ab, c + ab, scale[i]*c + ab
// Queries are scaled before they are multiplied; in words of 16 bits they would be rounded again, so there scores are.
constexpr Into kScores = kWordsAreFloats ? Into::fresh : Into::scaled;
LAMINA_INLINE float query_factor(float scale) { return kWordsAreFloats ? scale : 1.0f; }
// What sums over queries that are not scaled lack: the gradient of keys.
LAMINA_INLINE float key_gradient_factor(float scale) { return kWordsAreFloats ? 1.0f : scale; }

struct Target {
  float* c;
  int64_t ld;
  const float* scale;  // of each row, for scaled_sum; of all, for scaled
};

// What becomes of a sum of row i that belongs to c.
template <Into into>
LAMINA_INLINE Vec finished(Vec sum, const float* c, const float* scale, int64_t i) {
  if constexpr (into == Into::scaled) return mul(sum, broadcast(scale[0]));
  if constexpr (into == Into::sum) return add(load(c), sum);
  if constexpr (into == Into::scaled_sum) return fma(load(c), broadcast(scale[i]), sum);
  return sum;
}

template <Into into, int rows, int vecs, typename A>
LAMINA_NOINLINE void product_tile(const A& a, const Word* b, int64_t b_step, int64_t n, const Target& t) {
  Vec sum[rows][vecs];
  clear(sum);
  multiply_add(sum, a.p, a.row(), a.step(), b, b_step, n);
  LAMINA_UNROLL for (int i = 0; i < rows; ++i) {
    LAMINA_UNROLL for (int j = 0; j < vecs; ++j) {
      float* c = t.c + i * t.ld + j * kLanes;
      store(c, finished<into>(sum[i][j], c, t.scale, i));
    }
  }
}

// c (rows, width) from a (rows, n words) and b (n, width), rows <= kTileRows, width a multiple of kLanes.
template <Into into, typename A>
LAMINA_INLINE void product(int64_t rows, int64_t width, const A& a, const Word* b, int64_t b_step, int64_t n,
                           const Target& t) {
  const int64_t panels = ceil_div(width, kPanel);
  const int64_t step = ceil_div(width / kLanes, panels) * kLanes;  // panels of even width
  for (int64_t j = 0; j < width; j += step) {
    const Target part{t.c + j, t.ld, t.scale};
    with_rows<kTileRows>(rows, [&]<int r>() {
      with_vecs<kTileVecs>(smaller(step, width - j),
                           [&]<int v>() { product_tile<into, r, v>(a, b + j, b_step, n, part); });
    });
  }
}

// The same for any number of rows, where n counts numbers and sees(i, k) says whether row i sees number k of the sum:
// what is not seen is not touched. The bits are those of `product` over b with zeros there.
template <Into into, typename A, typename Sees>
LAMINA_NOINLINE void product_by_pair(int64_t rows, int64_t width, const A& a, const Word* b, int64_t n, const Target& t,
                                     const Sees& sees) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t d = 0; d < width; d += kLanes) {
      Vec sum = zero();
      for (int64_t k = 0; k < n; k += kDepth) {
        bool seen[kDepth];
        bool any_seen = false;
        for (int64_t e = 0; e < kDepth; ++e) any_seen |= seen[e] = k + e < n && sees(i, k + e);
        if (!any_seen) continue;
        const Words v = only_seen(load(b + k / kDepth * width + d), seen);
        sum = step(broadcast_word(a.p + i * a.row() + k / kDepth * a.step()), v, sum);
      }
      float* c = t.c + i * t.ld + d;
      store(c, finished<into>(sum, c, t.scale, i));
    }
  }
}

}  // namespace lamina::LAMINA_ISA_NAMESPACE

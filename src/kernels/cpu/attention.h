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
#pragma once

#include "base/rng.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/narrow.h"

namespace lamina::LAMINA_ISA_NAMESPACE {

constexpr int kQueries = 48;  // a multiple of kTileRows and of kPanel
constexpr int kKeys = 64;
static_assert(kQueries % kTileRows == 0 && kQueries % kPanel == 0);

LAMINA_INLINE float infinity() { return __builtin_inff(); }
LAMINA_INLINE int64_t padded(int64_t D) { return ceil_div(D, kLanes) * kLanes; }

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

// dst (rows, width) = factor * src, zero from D to width. False where an element is infinite or NaN.
LAMINA_NOINLINE bool copy_rows(const Operand& src, int64_t ld, int64_t rows, int64_t D, float factor, float* dst) {
  const int64_t width = padded(D);
  Vec check = zero();
  for (int64_t r = 0; r < rows; ++r) {
    float* to = dst + r * width;
    const float* from = src.from(r * ld).read(D, to);
    for_lanes(0, D, [&](int64_t d, auto lanes) {
      const Vec v = mul(lanes.load(from + d), broadcast(factor));
      check = fma(v, zero(), check);  // 0 while all is finite, then NaN
      store(to + d, v);
    });
  }
  return !any(is_nan(check));
}

// How the broadcast operand of a product lies: element (i, k) at p[i*row() + k*step()].
struct Rows {  // one row after the other, `ld` apart
  const float* p;
  int64_t ld;
  LAMINA_MEMBER int64_t row() const { return ld; }
  LAMINA_MEMBER static constexpr int64_t step() { return 1; }
};
struct KeysByQueries {  // keys of a tile of scores, summed over queries
  const float* p;
  LAMINA_MEMBER static constexpr int64_t row() { return kQueries; }
  LAMINA_MEMBER static constexpr int64_t step() { return 1; }
};
struct QueriesByKeys {  // queries of a tile of scores, summed over keys
  const float* p;
  LAMINA_MEMBER static constexpr int64_t row() { return 1; }
  LAMINA_MEMBER static constexpr int64_t step() { return kQueries; }
};

enum class Into { fresh, sum, scaled_sum };  // c = ab, c + ab, scale[i]*c + ab

struct Target {
  float* c;
  int64_t ld;
  const float* scale;  // of each row, for scaled_sum
};

template <Into into, int rows, int vecs, typename A>
LAMINA_NOINLINE void product_tile(const A& a, const float* b, int64_t b_step, int64_t n, const Target& t) {
  Vec sum[rows][vecs];
  clear(sum);
  multiply_add(sum, a.p, a.row(), a.step(), b, b_step, n);
  LAMINA_UNROLL for (int i = 0; i < rows; ++i) {
    LAMINA_UNROLL for (int j = 0; j < vecs; ++j) {
      float* c = t.c + i * t.ld + j * kLanes;
      if constexpr (into == Into::sum) sum[i][j] = add(load(c), sum[i][j]);
      if constexpr (into == Into::scaled_sum) sum[i][j] = fma(load(c), broadcast(t.scale[i]), sum[i][j]);
      store(c, sum[i][j]);
    }
  }
}

// c (rows, width) from a (rows, n) and b (n, width), rows <= kTileRows, width a multiple of kLanes.
template <Into into, typename A>
LAMINA_INLINE void product(int64_t rows, int64_t width, const A& a, const float* b, int64_t b_step, int64_t n,
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

}  // namespace lamina::LAMINA_ISA_NAMESPACE

// The functions of gemm_operands.h for f16chunk: what is prepared is scaled first, as its largest finite magnitude
// says, and rounded to fp16 then, but not to bf16 before, which holds less. Infinities and NaN stay what they are.
#pragma once

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/narrow.h"

namespace lamina::LAMINA_ISA_NAMESPACE {

constexpr int64_t kMostAlong = 768;  // numbers of a row that are prepared at once

// Lane by lane the larger one of `most` and the magnitude of x, where that is finite.
LAMINA_INLINE Vec larger_magnitude(Vec most, Vec x) {
  const Vec magnitude = abs(x);
  return max(most, select(less(magnitude, broadcast(__builtin_inff())), magnitude, zero()));
}
LAMINA_INLINE float largest_magnitude(const float* x, int64_t n) {
  Vec most = zero();
  for_lanes(0, n, [&](int64_t i, auto lanes) { most = larger_magnitude(most, lanes.load(x + i)); });
  return horizontal_max(most);
}

// What brings `largest` into [2^(top-1), 2^top); 0 where it is no normal number.
LAMINA_INLINE float exponent_for(float largest, int top) {
  uint32_t bits;
  __builtin_memcpy(&bits, &largest, sizeof(bits));
  const int exponent = static_cast<int>(bits >> 23);
  return exponent == 0 ? 0.0f : static_cast<float>(top - 1 - (exponent - 127));
}

LAMINA_INLINE void read_operands(const Numbers& from, int64_t n, Dtype, float* to) { widen(from, n, to); }

LAMINA_FLATTEN LAMINA_NOINLINE float prepare_row(const Numbers& from, int64_t n, Dtype, Word* to) {
  float wide[kMostAlong];
  widen(from, n, wide);
  const float exponent = exponent_for(largest_magnitude(wide, n), kBroadcastTop);
  for (int64_t i = 0; i < n; i += kLanes) {
    const Int bits = half_bits(scale_by_power(load_n(wide + i, smaller(kLanes, n - i)), broadcast(exponent)));
    Word twice[kLanes];
    store(twice, mul(bits, broadcast_int(0x10001u)));
    __builtin_memcpy(to + i, twice, static_cast<uint64_t>(smaller(kLanes, n - i)) * sizeof(Word));
  }
  return exponent;
}

// Two panels of weights make one of words; where the second is missing, zeros stand for it.
LAMINA_FLATTEN LAMINA_NOINLINE float prepare_block(const float* from, int64_t panel_step, int64_t panels, int64_t n,
                                                   Dtype, int top, Word* to) {
  Vec most = zero();
  for (int64_t panel = 0; panel < panels; ++panel)
    for (int64_t i = 0; i < n * kPanel; i += kLanes) most = larger_magnitude(most, load(from + panel * panel_step + i));
  const float exponent = exponent_for(horizontal_max(most), top);
  for (int64_t panel = 0; panel < ceil_div(panels, kAcross) * kAcross; ++panel) {
    uint16_t* halves = reinterpret_cast<uint16_t*>(to + panel / 2 * n * kPanel) + panel % 2 * kPanel;
    for (int64_t k = 0; k < n; ++k)
      for (int64_t j = 0; j < kPanel; j += kLanes) {
        const Vec w = panel < panels ? load(from + panel * panel_step + k * kPanel + j) : zero();
        store_f16(halves + k * 2 * kPanel + j, scale_by_power(w, broadcast(exponent)));
      }
  }
  return exponent;
}

LAMINA_FLATTEN LAMINA_NOINLINE float group_exponent(const LaneRows& r, int top) {
  float wide[kMostAlong];
  float most = 0.0f;
  for (int64_t m = 0; m < r.rows; ++m) {
    widen(r.from.from(m * r.ld), r.n, wide);
    const float here = largest_magnitude(wide, r.n);
    if (here > most) most = here;
  }
  return exponent_for(most, top);
}

LAMINA_FLATTEN LAMINA_NOINLINE void prepare_lanes(const LaneRows& r, float exponent, int64_t stride, Word* to) {
  float wide[2][kMostAlong] = {};
  const Vec power = broadcast(exponent);
  for (int64_t m = 0; m < r.rows; m += 2, to += stride) {
    widen(r.from.from(m * r.ld), r.n, wide[0]);
    const bool two = m + 1 < r.rows;
    if (two) widen(r.from.from((m + 1) * r.ld), r.n, wide[1]);
    for (int64_t i = 0; i < r.n; i += kLanes) {
      const int64_t count = smaller(kLanes, r.n - i);
      const Int low = half_bits(scale_by_power(load_n(wide[0] + i, count), power));
      const Int high = half_bits(scale_by_power(two ? load_n(wide[1] + i, count) : zero(), power));
      Word both[kLanes];
      store(both, add(low, shift_left<16>(high)));
      __builtin_memcpy(to + i, both, static_cast<uint64_t>(count) * sizeof(Word));
    }
  }
}

// exponents[c] of each of n columns; with `across`, kScaleColumns of them have one together. `row`: room for n floats.
template <bool across>
LAMINA_FLATTEN LAMINA_NOINLINE void column_exponents(const LaneRows& r, int top, float* row, float* exponents) {
  for (int64_t c = 0; c < r.n; ++c) exponents[c] = 0.0f;
  for (int64_t m = 0; m < r.rows; ++m) {
    widen(r.from.from(m * r.ld), r.n, row);
    for_lanes(0, r.n, [=](int64_t c, auto lanes) {
      lanes.store(exponents + c, larger_magnitude(lanes.load(exponents + c), lanes.load(row + c)));
    });
  }
  const int64_t width = across ? kScaleColumns : 1;
  for (int64_t c = 0; c < r.n; c += width) {
    const int64_t count = smaller(width, r.n - c);
    const float exponent = exponent_for(largest_magnitude(exponents + c, count), top);
    for (int64_t i = 0; i < count; ++i) exponents[c + i] = exponent;
  }
}

template <bool across>
LAMINA_FLATTEN LAMINA_NOINLINE const Word* prepare_rows(const float* from, int64_t rows, int64_t n,
                                                        const float* exponents, Word* room) {
  const int64_t width = across ? (n + 1) / 2 : n;
  for (int64_t m = 0; m < rows; ++m, from += n) {
    Word* to = room + m * width;
    if (across && n % 2 != 0) to[width - 1] = 0;
    for (int64_t i = 0; i < n; i += kLanes) {
      const int64_t count = smaller(kLanes, n - i);
      const Int bits = half_bits(scale_by_power(load_n(from + i, count), load_n(exponents + i, count)));
      if constexpr (across) {
        uint16_t halves[kLanes];
        store_16(halves, bits);
        __builtin_memcpy(reinterpret_cast<uint16_t*>(to) + i, halves, static_cast<uint64_t>(count) * sizeof(uint16_t));
      } else {
        Word twice[kLanes];
        store(twice, mul(bits, broadcast_int(0x10001u)));
        __builtin_memcpy(to + i, twice, static_cast<uint64_t>(count) * sizeof(Word));
      }
    }
  }
  return room;
}

}  // namespace lamina::LAMINA_ISA_NAMESPACE

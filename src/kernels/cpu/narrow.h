// Rows of numbers that are fp32 or 16 bits in memory, to fp32 and back, and rows of fp32 rounded to what 16 bits hold.
#pragma once

#include "kernels/cpu/args.h"

namespace lamina::LAMINA_ISA_NAMESPACE {

template <bool bf16>
LAMINA_INLINE Vec load_half(const uint16_t* p) {
  if constexpr (bf16) return load_bf16(p);
  return load_f16(p);
}
template <bool bf16>
LAMINA_INLINE void store_half(uint16_t* p, Vec v) {
  if constexpr (bf16)
    store_bf16(p, v);
  else
    store_f16(p, v);
}

template <bool bf16>
LAMINA_NOINLINE void widen_halves(const uint16_t* from, int64_t n, float* to) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(to + i, load_half<bf16>(from + i));
  if (i == n) return;
  uint16_t rest[kLanes] = {};
  __builtin_memcpy(rest, from + i, static_cast<uint64_t>(n - i) * sizeof(uint16_t));
  store_n(to + i, load_half<bf16>(rest), n - i);
}

template <bool bf16>
LAMINA_NOINLINE void narrow_halves(const float* from, int64_t n, uint16_t* to) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store_half<bf16>(to + i, load(from + i));
  if (i == n) return;
  uint16_t rest[kLanes];
  store_half<bf16>(rest, load_n(from + i, n - i));
  __builtin_memcpy(to + i, rest, static_cast<uint64_t>(n - i) * sizeof(uint16_t));
}

// Numbers in memory, of fp32 or 16 bits.
struct Numbers {
  void* data;  // null: an optional operand that is absent
  Dtype dtype;

  LAMINA_MEMBER bool wide() const { return dtype == Dtype::f32; }
  LAMINA_MEMBER Numbers from(int64_t first) const {
    return {static_cast<std::byte*>(data) + first * (wide() ? 4 : 2), dtype};
  }
  LAMINA_MEMBER float* floats() const { return static_cast<float*>(data); }
  LAMINA_MEMBER uint16_t* halves() const { return static_cast<uint16_t*>(data); }
};
LAMINA_INLINE Numbers numbers(const TensorArg& t) { return {t.data, t.dtype}; }

// The first n of them as fp32.
LAMINA_INLINE void widen(const Numbers& from, int64_t n, float* to) {
  if (from.wide())
    for_lanes(0, n, [=](int64_t i, auto lanes) { lanes.store(to + i, lanes.load(from.floats() + i)); });
  else if (from.dtype == Dtype::bf16)
    widen_halves<true>(from.halves(), n, to);
  else
    widen_halves<false>(from.halves(), n, to);
}

LAMINA_INLINE void narrow(const float* from, int64_t n, const Numbers& to) {
  if (to.wide())
    for_lanes(0, n, [=](int64_t i, auto lanes) { lanes.store(to.floats() + i, lanes.load(from + i)); });
  else if (to.dtype == Dtype::bf16)
    narrow_halves<true>(from, n, to.halves());
  else
    narrow_halves<false>(from, n, to.halves());
}

// Each number rounded to what `precision` holds; `to` may be `from`.
LAMINA_INLINE void round_row(const float* from, int64_t n, Dtype precision, float* to) {
  if (precision == Dtype::bf16)
    for_lanes(0, n, [=](int64_t i, auto lanes) { lanes.store(to + i, round_bf16(lanes.load(from + i))); });
  else if (precision == Dtype::f16)
    for_lanes(0, n, [=](int64_t i, auto lanes) { lanes.store(to + i, round_f16(lanes.load(from + i))); });
  else if (to != from)
    for_lanes(0, n, [=](int64_t i, auto lanes) { lanes.store(to + i, lanes.load(from + i)); });
}

// n operands of a product as fp32, rounded to its precision. What is stored in it is so already.
LAMINA_INLINE void load_operands(const Numbers& from, int64_t n, Dtype precision, float* to) {
  if (from.wide())
    round_row(from.floats(), n, precision, to);
  else
    widen(from, n, to);
}

// An input of a kernel, rounded to its precision where it is read.
struct Operand {
  Numbers numbers;
  Dtype precision;

  LAMINA_MEMBER Operand from(int64_t first) const { return {numbers.from(first), precision}; }
  // As fp32 in memory it needs no conversion.
  LAMINA_MEMBER bool plain() const { return numbers.wide() && precision == Dtype::f32; }
  LAMINA_MEMBER const float* floats() const { return numbers.floats(); }
  // n of them where they lie, or converted in `space`.
  LAMINA_MEMBER const float* read(int64_t n, float* space) const {
    if (plain()) return floats();
    load_operands(numbers, n, precision, space);
    return space;
  }
};
LAMINA_INLINE Operand operand(const Args& args, int i) { return {numbers(args.in[i]), args.precision}; }

// Where to make a row of fp32 that is to lie at `to`: there, or in `space`, from where `narrow` takes it.
LAMINA_INLINE float* row_for(const Numbers& to, float* space) { return to.wide() ? to.floats() : space; }
LAMINA_INLINE void finish_row(const float* row, int64_t n, const Numbers& to) {
  if (!to.wide()) narrow(row, n, to);
}

}  // namespace lamina::LAMINA_ISA_NAMESPACE

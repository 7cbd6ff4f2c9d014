// What all kernels in this folder share: access to their arguments, the grain of tasks, and loops over lanes. No
// kernels here. Included by sources that are compiled once per ISA, so everything is static or a template of this
// namespace.
#pragma once

#include "kernels/cpu/simd.h"
#include "kernels/kernel.h"

// Defines the row of a kernel without scratch, whose order of summation depends on nothing but the ISA:
// "gelu.f32.avx2".
#define LAMINA_STRING_OF(x) #x
#define LAMINA_STRING(x) LAMINA_STRING_OF(x)
#define LAMINA_KERNEL_F32(op, tasks)                                                                          \
  extern constinit const Kernel kernel_##op##_f32 = {Op::op, #op ".f32." LAMINA_STRING(LAMINA_ISA_NAMESPACE), \
                                                     run_##op, tasks, no_scratch}

// Inlines all that a function calls: loop bodies are lambdas, which the compiler must not turn into calls.
#define LAMINA_FLATTEN __attribute__((flatten))
#define LAMINA_MEMBER inline __attribute__((always_inline))

namespace lamina::LAMINA_ISA_NAMESPACE {

// Elements of a task of a streaming kernel: some 10 to 50 µs, whatever the number of threads.
constexpr int64_t kTaskElements = 32768;

LAMINA_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
LAMINA_INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
LAMINA_INLINE int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Sizes without the inline functions of Shape, of which an unoptimised build would emit weak copies for this ISA.
LAMINA_INLINE const int64_t* dims(const TensorArg& t) { return reinterpret_cast<const int64_t*>(&t.shape.dims); }
LAMINA_INLINE int64_t last_dim(const TensorArg& t) { return t.shape.rank == 0 ? 1 : dims(t)[t.shape.rank - 1]; }
LAMINA_INLINE int64_t row_count(const TensorArg& t) {
  int64_t product = 1;
  for (int32_t i = 0; i + 1 < t.shape.rank; ++i) product *= dims(t)[i];
  return product;
}
LAMINA_INLINE int64_t element_count(const TensorArg& t) { return row_count(t) * last_dim(t); }
// Elements of the memory of a tensor, the padding of its last panel included.
LAMINA_INLINE int64_t storage_count(const TensorArg& t) {
  if (t.layout.kind == LayoutKind::row_major) return element_count(t);
  return row_count(t) * ceil_div(last_dim(t), t.layout.nr) * t.layout.nr;
}

LAMINA_INLINE const float* input(const Args& args, int i) {
  return i < args.n_in ? static_cast<const float*>(args.in[i].data) : nullptr;
}
LAMINA_INLINE const int32_t* input_i32(const Args& args, int i) { return static_cast<const int32_t*>(args.in[i].data); }
LAMINA_INLINE const int64_t* input_i64(const Args& args, int i) { return static_cast<const int64_t*>(args.in[i].data); }
LAMINA_INLINE float* output(const Args& args, int i) { return static_cast<float*>(args.out[i].data); }
template <typename A>
LAMINA_INLINE const A& attrs_of(const Args& args) {
  return *static_cast<const A*>(args.attrs);
}

static inline int64_t no_scratch(const Args&) noexcept { return 0; }
static inline int64_t one_task(const Args&) noexcept { return 1; }
// Tasks of kernels that walk the memory of their first output.
static inline int64_t element_tasks(const Args& args) noexcept {
  return ceil_div(storage_count(args.out[0]), kTaskElements);
}
// Tasks of kernels that own whole rows of their first input.
LAMINA_INLINE int64_t rows_per_task(const Args& args) {
  return larger(1, kTaskElements / larger(1, last_dim(args.in[0])));
}
static inline int64_t row_tasks(const Args& args) noexcept {
  return ceil_div(row_count(args.in[0]), rows_per_task(args));
}

// The two ways in which the body of a loop sees its lanes: all of them, or the first n at the end of a row.
struct AllLanes {
  LAMINA_MEMBER Vec load(const float* p) const { return LAMINA_ISA_NAMESPACE::load(p); }
  LAMINA_MEMBER void store(float* p, Vec v) const { LAMINA_ISA_NAMESPACE::store(p, v); }
  LAMINA_MEMBER Vec keep(Vec v) const { return v; }
};
struct FirstLanes {
  int64_t n;
  LAMINA_MEMBER Vec load(const float* p) const { return load_n(p, n); }
  LAMINA_MEMBER void store(float* p, Vec v) const { store_n(p, v, n); }
  LAMINA_MEMBER Vec keep(Vec v) const { return select(first_lanes(n), v, zero()); }  // 0 in the others
};

// body(i, lanes) for i = begin, begin + kLanes, … below end.
template <typename Body>
LAMINA_INLINE void for_lanes(int64_t begin, int64_t end, Body body) {
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) body(i, AllLanes{});
  if (i < end) body(i, FirstLanes{end - i});
}

struct VecPair {
  Vec a, b;
};
struct FloatPair {
  float a, b;
};

// Two sums over [0, n) at once; term(i, lanes) gives a VecPair whose unused lanes are 0. Four partial sums each, added
// in a fixed order.
template <typename Term>
LAMINA_INLINE FloatPair sum_pairs(int64_t n, Term term) {
  VecPair sum[4] = {{zero(), zero()}, {zero(), zero()}, {zero(), zero()}, {zero(), zero()}};
  const auto accumulate = [&](int j, VecPair t) {
    sum[j].a = add(sum[j].a, t.a);
    sum[j].b = add(sum[j].b, t.b);
  };
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    LAMINA_UNROLL for (int j = 0; j < 4; ++j) accumulate(j, term(i + j * kLanes, AllLanes{}));
  }
  for (; i + kLanes <= n; i += kLanes) accumulate(0, term(i, AllLanes{}));
  if (i < n) accumulate(1, term(i, FirstLanes{n - i}));
  return {horizontal_sum(add(add(sum[0].a, sum[1].a), add(sum[2].a, sum[3].a))),
          horizontal_sum(add(add(sum[0].b, sum[1].b), add(sum[2].b, sum[3].b)))};
}

// One sum over [0, n), likewise.
template <typename Term>
LAMINA_INLINE float sum_lanes(int64_t n, Term term) {
  Vec sum[4] = {zero(), zero(), zero(), zero()};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    LAMINA_UNROLL for (int j = 0; j < 4; ++j) sum[j] = add(sum[j], term(i + j * kLanes, AllLanes{}));
  }
  for (; i + kLanes <= n; i += kLanes) sum[0] = add(sum[0], term(i, AllLanes{}));
  if (i < n) sum[1] = add(sum[1], term(i, FirstLanes{n - i}));
  return horizontal_sum(add(add(sum[0], sum[1]), add(sum[2], sum[3])));
}

}  // namespace lamina::LAMINA_ISA_NAMESPACE

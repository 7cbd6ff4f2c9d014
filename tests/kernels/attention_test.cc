// What the comparison with the reference does not show of attention: a query without keys gives exact zeros, what is
// not seen cannot be felt whatever it holds, bits do not depend on padding or on the batch around a row, and no element
// outside a buffer is read (buffers have their exact size, for AddressSanitizer).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "base/half.h"
#include "base/rng.h"
#include "common/isas.h"
#include "kernels/arithmetic.h"

namespace lamina::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Values on the heap in exactly their size.
template <typename T>
struct Buffer {
  Buffer() = default;
  explicit Buffer(int64_t n, T value = {}) : size(n), data(new T[static_cast<size_t>(n)]) {
    std::fill_n(data.get(), n, value);
  }
  T& operator[](int64_t i) const { return data[static_cast<size_t>(i)]; }
  bool operator==(const Buffer& other) const {
    return size == other.size && std::memcmp(data.get(), other.data.get(), static_cast<size_t>(size) * sizeof(T)) == 0;
  }
  int64_t size = 0;
  std::unique_ptr<T[]> data;
};

using Floats = Buffer<float>;

Floats random_floats(int64_t n, uint64_t seed) {
  Floats x(n);
  Rng rng(seed);
  for (int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(rng.uniform() * 4.0 - 2.0);
  return x;
}

bool all_zero(const Floats& x, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i)
    if (x[i] != 0.0f) return false;
  return true;
}

// Both ways between fp32 and 16 bits.
Buffer<uint16_t> to_halves(const Floats& x, Dtype dtype) {
  Buffer<uint16_t> halves(x.size);
  for (int64_t i = 0; i < x.size; ++i) halves[i] = to_16_bits(x[i], dtype);
  return halves;
}
void from_halves(const Buffer<uint16_t>& halves, Dtype dtype, const Floats& x) {
  for (int64_t i = 0; i < x.size; ++i) x[i] = from_16_bits(halves[i], dtype);
}

struct Sizes {
  int64_t B, T, C;
};

// What the kernels of a table round operands to: fp32 is what it is, bf16dot takes nothing but bf16.
Dtype precision_of(const KernelTable& table) {
  return table.arithmetic == Arithmetic::bf16dot ? Dtype::bf16 : Dtype::f32;
}

// One attention with its gradient, its inputs open to change. All but lse may be stored in 16 bits while it runs, and
// is in fp32 otherwise, of whatever precision.
struct Problem {
  Problem(Sizes sizes, AttentionAttrs attributes, Dtype in_memory = Dtype::f32)
      : z(sizes),
        a(attributes),
        dtype(in_memory),
        q(random_floats(n(), 1)),
        k(random_floats(n(), 2)),
        v(random_floats(n(), 3)),
        dout(random_floats(n(), 4)),
        o(n(), kNan),
        lse(z.B * a.n_head * z.T, kNan),
        dq(n(), kNan),
        dk(n(), kNan),
        dv(n(), kNan),
        begin(z.B * z.T),
        rng(2),
        sample(z.B) {
    rng[0] = 42, rng[1] = 7;
    for (int64_t b = 0; b < z.B; ++b) sample[b] = 100 + b;
  }

  int64_t n() const { return z.B * z.T * z.C; }
  int64_t at(int64_t b, int64_t t, int64_t c = 0) const { return (b * z.T + t) * z.C + c; }

  void run(const KernelTable& table) {
    const Shape x{z.B, z.T, z.C};
    std::vector<std::pair<Buffer<uint16_t>, const Floats*>> stored;
    const auto arg = [&](const Floats& f) {
      if (dtype == Dtype::f32) return TensorArg{f.data.get(), x, {}};
      stored.push_back({to_halves(f, dtype), &f});
      return TensorArg{stored.back().first.data.get(), x, {}, dtype};
    };
    const TensorArg q_arg = arg(q), k_arg = arg(k), v_arg = arg(v), o_arg = arg(o);
    const TensorArg lse_arg{lse.data.get(), {z.B, a.n_head, z.T}, {}};
    const TensorArg begin_arg{begin.data.get(), {z.B, z.T}, {}};
    const TensorArg rng_arg{rng.data.get(), {2}, {}};
    const TensorArg sample_arg{sample.data.get(), {z.B}, {}};
    run(table, Op::attention, {q_arg, k_arg, v_arg, begin_arg, rng_arg, sample_arg}, {o_arg, lse_arg});
    run(table, Op::attention_bwd, {arg(dout), q_arg, k_arg, v_arg, o_arg, lse_arg, begin_arg, rng_arg, sample_arg},
        {arg(dq), arg(dk), arg(dv)});
    for (const auto& [halves, floats] : stored) from_halves(halves, dtype, *floats);
  }

  void run(const KernelTable& table, Op op, const std::vector<TensorArg>& in, const std::vector<TensorArg>& out) const {
    const Kernel& kernel = *find_kernel(table, op);
    const Args args{in.data(),
                    out.data(),
                    static_cast<int32_t>(in.size()),
                    static_cast<int32_t>(out.size()),
                    &a,
                    dtype == Dtype::f32 ? precision_of(table) : dtype};
    const int64_t floats = kernel.scratch(args) / static_cast<int64_t>(sizeof(float));
    for (int64_t task = kernel.tasks(args); task-- > 0;) {
      const Floats scratch(floats, kNan);
      kernel.run(args, task, task + 1, reinterpret_cast<std::byte*>(scratch.data.get()));
    }
  }

  Sizes z;
  AttentionAttrs a;
  Dtype dtype;
  Floats q, k, v, dout, o, lse, dq, dk, dv;
  Buffer<int32_t> begin;
  Buffer<int64_t> rng, sample;
};

AttentionAttrs heads(int64_t n_head, double dropout = 0.0) {
  return {.n_head = n_head, .scale = 0.3, .dropout = dropout, .site = 3, .stride = 1024};
}

class Attention : public ::testing::TestWithParam<const KernelTable*> {};

// In memory: fp32, and what 16 bits the table takes.
std::vector<Dtype> dtypes_of(const KernelTable& table) {
  if (table.arithmetic == Arithmetic::bf16dot) return {Dtype::f32, Dtype::bf16};
  return {Dtype::f32, Dtype::bf16, Dtype::f16};
}

TEST_P(Attention, GivesExactZerosToAQueryWithoutKeys) {
  Problem p({1, 70, 10}, heads(2));
  // Every third query sees nothing, and none of a whole vector of them.
  const auto sees = [](int64_t t) { return t % 3 != 0 && (t < 14 || t > 36); };
  for (int64_t t = 0; t < 70; ++t) p.begin[t] = sees(t) ? 0 : 70;
  for (int64_t t = 0; t < 70; ++t)
    for (int64_t c = 0; c < 10; ++c)
      if (!sees(t)) p.q[p.at(0, t, c)] = p.dout[p.at(0, t, c)] = kNan;
  p.run(*GetParam());
  for (int64_t t = 0; t < 70; ++t) {
    EXPECT_EQ(all_zero(p.o, p.at(0, t), p.at(0, t + 1)), !sees(t)) << t;
    EXPECT_EQ(all_zero(p.dq, p.at(0, t), p.at(0, t + 1)), !sees(t)) << t;
    for (int64_t h = 0; h < 2; ++h) EXPECT_EQ(p.lse[h * 70 + t] == -kInfinity, !sees(t)) << t;
  }
  for (int64_t i = 0; i < p.n(); ++i) {
    EXPECT_TRUE(std::isfinite(p.dk[i])) << i;
    EXPECT_TRUE(std::isfinite(p.dv[i])) << i;
  }
  // Key 69 is seen by query 69 alone, which sees nothing.
  EXPECT_TRUE(all_zero(p.dk, p.at(0, 69), p.at(0, 70)));
  EXPECT_TRUE(all_zero(p.dv, p.at(0, 69), p.at(0, 70)));
}

// The same without anything infinite, which takes the fast path.
TEST_P(Attention, GivesNothingToKeysThatNoneSees) {
  Problem p({1, 70, 10}, heads(2));
  for (int64_t t = 0; t < 70; ++t) p.begin[t] = t < 14 || t > 36 ? 0 : 70;
  p.run(*GetParam());
  for (const Floats* x : {&p.o, &p.dq, &p.dk, &p.dv})
    for (int64_t i = 0; i < p.n(); ++i) ASSERT_TRUE(std::isfinite((*x)[i])) << i;
  for (int64_t t = 0; t < 70; ++t) p.begin[t] = static_cast<int32_t>(std::min(t + 1, int64_t{69}));
  p.run(*GetParam());  // only query 69 sees, and only key 69
  EXPECT_TRUE(all_zero(p.dk, 0, p.at(0, 69)));
  EXPECT_TRUE(all_zero(p.dv, 0, p.at(0, 69)));
  for (int64_t c = 0; c < 10; ++c)
    EXPECT_EQ(p.dv[p.at(0, 69, c)], round_to(p.dout[p.at(0, 69, c)], precision_of(*GetParam())));
}

// Two documents packed into one row: what one holds must not change a bit of the other.
TEST_P(Attention, FeelsNothingOfWhatItDoesNotSee) {
  const int64_t T = 150, cut = 75, C = 24;
  for (double dropout : {0.0, 0.4}) {
    Problem clean({1, T, C}, heads(3, dropout)), dirty({1, T, C}, heads(3, dropout));
    for (int64_t t = 0; t < T; ++t) clean.begin[t] = dirty.begin[t] = t < cut ? 0 : static_cast<int32_t>(cut);
    for (Floats* x : {&dirty.q, &dirty.k, &dirty.v, &dirty.dout})
      for (int64_t i = 0; i < cut * C; ++i) (*x)[i] = i % 2 == 0 ? kNan : kInfinity;
    clean.run(*GetParam());
    dirty.run(*GetParam());
    for (int64_t i = cut * C; i < T * C; ++i) {
      ASSERT_TRUE(std::isfinite(dirty.o[i])) << i;
      ASSERT_EQ(dirty.o[i], clean.o[i]) << i;
      ASSERT_EQ(dirty.dq[i], clean.dq[i]) << i;
      ASSERT_EQ(dirty.dk[i], clean.dk[i]) << i;
      ASSERT_EQ(dirty.dv[i], clean.dv[i]) << i;
    }
    EXPECT_TRUE(std::isnan(dirty.o[5]));
  }
}

TEST_P(Attention, FeelsNothingOfTheFuture) {
  Problem clean({1, 100, 16}, heads(1)), dirty({1, 100, 16}, heads(1));
  for (int64_t i = 60 * 16; i < 100 * 16; ++i) dirty.k[i] = dirty.v[i] = kNan;
  clean.run(*GetParam());
  dirty.run(*GetParam());
  for (int64_t i = 0; i < 60 * 16; ++i) ASSERT_EQ(dirty.o[i], clean.o[i]) << i;
  for (int64_t i = 60 * 16; i < 100 * 16; ++i) ASSERT_TRUE(std::isnan(dirty.o[i])) << i;
}

TEST_P(Attention, GivesARowTheSameBitsInAnyBatchAndPadding) {
  const int64_t C = 20;
  for (double dropout : {0.0, 0.3}) {
    Problem both({2, 130, C}, heads(2, dropout)), alone({1, 97, C}, heads(2, dropout));
    for (int64_t t = 0; t < 130; ++t) both.begin[130 + t] = static_cast<int32_t>(t % 7);
    for (int64_t t = 0; t < 97; ++t) alone.begin[t] = static_cast<int32_t>(t % 7);
    alone.sample[0] = both.sample[1];
    for (auto [from, to] : {std::pair{&both.q, &alone.q}, {&both.k, &alone.k}, {&both.v, &alone.v}})
      std::copy_n(from->data.get() + both.at(1, 0), 97 * C, to->data.get());
    both.run(*GetParam());
    alone.run(*GetParam());
    for (int64_t i = 0; i < 97 * C; ++i) ASSERT_EQ(both.o[both.at(1, 0) + i], alone.o[i]) << i;
  }
}

// Scores are beyond what f16 holds; those that a mask hides are infinite in fp32, never a large number in 16 bits.
TEST_P(Attention, GivesAQueryWithOneKeyThatKeysValue) {
  const int64_t T = 16, D = 16;
  for (Dtype dtype : dtypes_of(*GetParam())) {
    SCOPED_TRACE(dtype_name(dtype));
    Problem p({1, T, 2 * D}, heads(2), dtype);
    p.begin[9] = 9;
    for (int64_t i = 0; i < p.n(); ++i) p.q[i] *= 128.0f, p.k[i] *= 128.0f;
    for (int64_t t = 0; t < T; ++t)
      for (int64_t d = 0; d < D; ++d) p.v[p.at(0, t, d)] = t == d ? 1.0f : 0.0f;  // the first head gives its weights
    p.run(*GetParam());
    float largest = 0.0f;
    for (int64_t i = 0; i < 2 * T; ++i) largest = std::max(largest, std::abs(p.lse[i]));
    EXPECT_GT(largest, 65504.0f);
    for (int64_t t : {int64_t{0}, int64_t{9}})
      for (int64_t d = 0; d < D; ++d) {
        EXPECT_EQ(p.o[p.at(0, t, d)], t == d ? 1.0f : 0.0f) << t << " " << d;
        const float v = round_to(p.v[p.at(0, t, D + d)], precision_of(*GetParam()));
        EXPECT_EQ(p.o[p.at(0, t, D + d)], v) << t << " " << d;
      }
    for (const Floats* x : {&p.o, &p.lse, &p.dq, &p.dk, &p.dv})
      for (int64_t i = 0; i < x->size; ++i) ASSERT_TRUE(std::isfinite((*x)[i])) << i;
  }
}

// A row that sees nothing is as good as absent: the others have the bits of a call without it.
TEST_P(Attention, IsTheSameWithoutARowThatSeesNothing) {
  const int64_t C = 20;
  for (Dtype dtype : dtypes_of(*GetParam())) {
    SCOPED_TRACE(dtype_name(dtype));
    Problem with({1, 5, C}, heads(2), dtype), without({1, 4, C}, heads(2), dtype);
    const auto row = [](int64_t t) { return t < 2 ? t : t + 1; };  // of the call with it
    for (auto [from, to] :
         {std::pair{&with.q, &without.q}, {&with.k, &without.k}, {&with.v, &without.v}, {&with.dout, &without.dout}})
      for (int64_t t = 0; t < 4; ++t) std::copy_n(&(*from)[with.at(0, row(t))], C, &(*to)[t * C]);
    with.begin[2] = 5, with.begin[3] = with.begin[4] = 3;
    without.begin[2] = without.begin[3] = 2;
    with.run(*GetParam());
    without.run(*GetParam());
    for (auto [a, b] :
         {std::pair{&with.o, &without.o}, {&with.dq, &without.dq}, {&with.dk, &without.dk}, {&with.dv, &without.dv}}) {
      EXPECT_TRUE(all_zero(*a, with.at(0, 2), with.at(0, 3)));
      for (int64_t t = 0; t < 4; ++t)
        for (int64_t c = 0; c < C; ++c) ASSERT_EQ((*a)[with.at(0, row(t), c)], (*b)[without.at(0, t, c)]) << t;
    }
  }
}

// Its key may be seen by others; then its query alone is absent, as if no gradient came through it.
TEST_P(Attention, TakesNothingFromAQueryThatSeesNothing) {
  for (Dtype dtype : dtypes_of(*GetParam())) {
    SCOPED_TRACE(dtype_name(dtype));
    Problem blind({1, 5, 20}, heads(2), dtype), silent({1, 5, 20}, heads(2), dtype);
    blind.begin[2] = 5;
    for (int64_t c = 0; c < 20; ++c) silent.dout[silent.at(0, 2, c)] = 0.0f;
    blind.run(*GetParam());
    silent.run(*GetParam());
    EXPECT_TRUE(all_zero(blind.o, blind.at(0, 2), blind.at(0, 3)));
    EXPECT_TRUE(all_zero(blind.dq, blind.at(0, 2), blind.at(0, 3)));
    std::fill_n(&silent.o[silent.at(0, 2)], 20, 0.0f);
    for (auto [a, b] :
         {std::pair{&blind.o, &silent.o}, {&blind.dq, &silent.dq}, {&blind.dk, &silent.dk}, {&blind.dv, &silent.dv}})
      for (int64_t i = 0; i < blind.n(); ++i) ASSERT_EQ((*a)[i], (*b)[i]) << i;
  }
}

TEST_P(Attention, DropsEverythingAtOne) {
  Problem p({1, 20, 8}, heads(1, 1.0));
  p.run(*GetParam());
  for (const Floats* x : {&p.o, &p.dq, &p.dk, &p.dv}) EXPECT_TRUE(all_zero(*x, 0, p.n()));
  for (int64_t t = 0; t < 20; ++t) EXPECT_TRUE(std::isfinite(p.lse[t]));
}

TEST_P(Attention, HoldsScoresFarApart) {
  Problem p({1, 3, 1}, {.n_head = 1, .scale = 1.0, .stride = 8});
  for (int64_t t = 0; t < 3; ++t) p.q[t] = 1.0f, p.v[t] = static_cast<float>(t + 1);
  p.k[0] = -8192.0f, p.k[1] = 28672.0f, p.k[2] = 20480.0f;  // as bf16 holds them
  p.run(*GetParam());
  EXPECT_EQ(p.o[0], 1.0f);
  EXPECT_EQ(p.o[1], 2.0f);
  EXPECT_EQ(p.o[2], 2.0f);
  EXPECT_EQ(p.lse[2], 28672.0f);
}

// Prefill in pieces of any size and the whole at once give the same answers, and a cache keeps what was there.
TEST_P(Attention, CachedGivesWhatAttentionGives) {
  const int64_t T = 90, S = 100, C = 12;
  Problem whole({1, T, C}, heads(2));
  whole.begin = Buffer<int32_t>(T, 2);
  whole.run(*GetParam());
  for (int64_t piece : {int64_t{1}, int64_t{13}, int64_t{90}}) {
    const Floats k_cache(S * C, kNan), v_cache(S * C, kNan);
    const Buffer<int32_t> past(1), count(1), begin(1, 2);
    for (int64_t t = 0; t < T; t += piece) {
      past[0] = static_cast<int32_t>(t);
      count[0] = static_cast<int32_t>(std::min(piece, T - t));
      const Floats q(piece * C, kNan), k(piece * C, kNan), v(piece * C, kNan), o(piece * C, kNan);
      for (auto [from, to] : {std::pair{&whole.q, &q}, {&whole.k, &k}, {&whole.v, &v}})
        std::copy_n(from->data.get() + t * C, count[0] * C, to->data.get());
      const auto x = [&](const Floats& f) { return TensorArg{f.data.get(), {1, piece, C}, {}}; };
      const auto cache = [&](const Floats& f) { return TensorArg{f.data.get(), {1, S, C}, {}}; };
      const auto one = [&](const Buffer<int32_t>& f) { return TensorArg{f.data.get(), {1}, {}}; };
      whole.run(*GetParam(), Op::attention_cached,
                {x(q), x(k), x(v), cache(k_cache), cache(v_cache), one(past), one(count), one(begin)},
                {x(o), cache(k_cache), cache(v_cache)});
      for (int64_t i = 0; i < count[0] * C; ++i) ASSERT_NEAR(o[i], whole.o[t * C + i], 2e-6f) << piece << " " << t;
      EXPECT_TRUE(all_zero(o, count[0] * C, piece * C));
    }
    for (int64_t i = 0; i < T * C; ++i) ASSERT_EQ(k_cache[i], round_to(whole.k[i], precision_of(*GetParam())));
    for (int64_t i = T * C; i < S * C; ++i) ASSERT_TRUE(std::isnan(v_cache[i]));
  }
}

std::vector<const KernelTable*> tables_with_attention() {
  std::vector<const KernelTable*> tables = test::tested_tables();
  std::erase_if(tables, [](const KernelTable* table) { return find_kernel(*table, Op::attention) == nullptr; });
  return tables;
}

INSTANTIATE_TEST_SUITE_P(All, Attention, ::testing::ValuesIn(tables_with_attention()), [](const auto& info) {
  return fmt::format("{}_{}", isa_name(info.param->isa), arithmetic_name(info.param->arithmetic));
});

}  // namespace
}  // namespace lamina::testing

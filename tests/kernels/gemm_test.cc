// What the comparison with the reference does not show of matrix products: a row's bits do not depend on the rows
// beside it, padding of panels is neither believed nor spoilt, chunks of long sums keep to the bound in place and cut
// into tasks, and no element outside a buffer is read (buffers have their exact size, for AddressSanitizer).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "base/thread_team.h"
#include "common/isas.h"
#include "common/tolerance.h"
#include "kernels/kernel.h"

namespace lamina::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Exactly as many floats as the tensor has, on the heap.
class Tensor {
 public:
  Tensor(Shape shape, Layout layout, uint64_t seed)
      : shape_(shape),
        layout_(layout),
        size_(storage_elements(shape, layout)),
        data_(new float[static_cast<size_t>(size_)]) {
    Rng rng(seed);
    for (int64_t i = 0; i < size_; ++i) data_[static_cast<size_t>(i)] = is_padding(i) ? 0.0f : draw(rng);
  }
  Tensor(Shape shape, uint64_t seed) : Tensor(shape, Layout::row_major(), seed) {}

  TensorArg arg() const { return {data_.get(), shape_, layout_}; }
  float* data() const { return data_.get(); }
  float at(int64_t r, int64_t c) const { return data_[static_cast<size_t>(index(r, c))]; }
  const Shape& shape() const { return shape_; }
  void fill_padding(float value) {
    for (int64_t i = 0; i < size_; ++i)
      if (is_padding(i)) data_[static_cast<size_t>(i)] = value;
  }
  bool padding_is_zero() const {
    for (int64_t i = 0; i < size_; ++i)
      if (is_padding(i) && !(data_[static_cast<size_t>(i)] == 0.0f)) return false;
    return true;
  }
  bool same_bits(const Tensor& other) const {
    return size_ == other.size_ && std::memcmp(data(), other.data(), static_cast<size_t>(size_) * sizeof(float)) == 0;
  }

 private:
  static float draw(Rng& rng) { return static_cast<float>(rng.uniform() * 2.0 - 1.0); }
  int64_t index(int64_t r, int64_t c) const {
    if (layout_.kind == LayoutKind::row_major) return r * shape_.last() + c;
    return (c / layout_.nr * shape_[0] + r) * layout_.nr + c % layout_.nr;
  }
  bool is_padding(int64_t i) const {
    if (layout_.kind == LayoutKind::row_major) return false;
    return i / (shape_[0] * layout_.nr) * layout_.nr + i % layout_.nr >= shape_[1];
  }

  Shape shape_;
  Layout layout_;
  int64_t size_;
  std::unique_ptr<float[]> data_;
};

enum class Order { all_at_once, backwards };

class Gemm : public ::testing::TestWithParam<Isa> {
 protected:
  Layout panels() const { return Layout::panel(kernel_table(GetParam()).nr); }

  // Absent inputs are null.
  void run(Op op, const std::vector<const Tensor*>& in, const Tensor& out, Order order = Order::all_at_once) const {
    std::vector<TensorArg> ins;
    for (const Tensor* t : in) ins.push_back(t == nullptr ? TensorArg{} : t->arg());
    const TensorArg outs[] = {out.arg()};
    const Args args{ins.data(), outs, static_cast<int32_t>(ins.size()), 1, nullptr};
    const Kernel& kernel = *find_kernel(kernel_table(GetParam()), op);
    const size_t scratch = static_cast<size_t>(kernel.scratch(args));
    struct Free {
      void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{64}); }
    };
    const std::unique_ptr<std::byte[], Free> memory(new (std::align_val_t{64}) std::byte[scratch]);
    std::memset(memory.get(), 0xFF, scratch);  // NaN: nothing is expected of it
    const int64_t tasks = kernel.tasks(args);
    if (order == Order::all_at_once && tasks > 0) kernel.run(args, 0, tasks, memory.get());
    if (order == Order::backwards)
      for (int64_t task = tasks; task-- > 0;) kernel.run(args, task, task + 1, memory.get());
  }
};

struct Sizes {
  int64_t M, K, N;
};

// sum over i < n of a(i) * b(i), plus `more`.
template <typename A, typename B>
ref::Mag dot(int64_t n, A a, B b, float more) {
  ref::Mag sum(static_cast<double>(more));
  for (int64_t i = 0; i < n; ++i) sum += ref::Mag(static_cast<double>(a(i))) * ref::Mag(static_cast<double>(b(i)));
  return sum;
}

// Each element of `got` against expected(row, column), of `terms` products.
template <typename F>
void expect_close(const Tensor& got, int64_t terms, F expected) {
  double worst = 0.0;
  for (int64_t r = 0; r < got.shape()[0]; ++r)
    for (int64_t c = 0; c < got.shape()[1]; ++c)
      worst =
          std::max(worst, excess(static_cast<double>(got.at(r, c)), expected(r, c), static_cast<double>(terms), 2.0));
  EXPECT_LE(worst, 1.0);
  EXPECT_TRUE(got.padding_is_zero());
}

// Sizes around tiles, blocks and chunks of all ISAs, several chunks and several tasks among them.
const Sizes kSizes[] = {{1, 1, 1},    {1, 1600, 300}, {5, 13, 97},    {8, 769, 49},  {49, 48, 1541}, {65, 770, 95},
                        {97, 5, 200}, {131, 391, 17}, {259, 31, 385}, {300, 97, 33}, {520, 14, 193}};

TEST_P(Gemm, KeepsToTheBoundInAnyOrderOfTasksAndInPlace) {
  for (const auto& [M, K, N] : kSizes) {
    SCOPED_TRACE(::testing::Message() << "M=" << M << " K=" << K << " N=" << N);
    const Tensor x({M, K}, 1), w({K, N}, panels(), 2), bias({N}, 3), residual({M, N}, 4), dy({M, N}, 5),
        acc_x({M, K}, 6), acc_w({K, N}, panels(), 7);
    const Tensor y({M, N}, 8), dx({M, K}, 8), dw({K, N}, panels(), 8);
    run(Op::linear, {&x, &w, &bias, &residual}, y);
    run(Op::linear_bwd_input, {&dy, &w, &acc_x}, dx);
    run(Op::linear_bwd_weight, {&x, &dy, &acc_w}, dw);
    expect_close(y, K + 2, [&](int64_t m, int64_t n) {
      const auto b = ref::Mag(static_cast<double>(bias.data()[n]));
      return dot(
                 K, [&](int64_t k) { return x.at(m, k); }, [&](int64_t k) { return w.at(k, n); }, residual.at(m, n)) +
             b;
    });
    expect_close(dx, N + 1, [&](int64_t m, int64_t k) {
      return dot(
          N, [&](int64_t n) { return dy.at(m, n); }, [&](int64_t n) { return w.at(k, n); }, acc_x.at(m, k));
    });
    expect_close(dw, M + 1, [&](int64_t k, int64_t n) {
      return dot(
          M, [&](int64_t m) { return x.at(m, k); }, [&](int64_t m) { return dy.at(m, n); }, acc_w.at(k, n));
    });

    run(Op::linear, {&x, &w, &bias, &residual}, residual, Order::backwards);
    run(Op::linear_bwd_input, {&dy, &w, &acc_x}, acc_x, Order::backwards);
    run(Op::linear_bwd_weight, {&x, &dy, &acc_w}, acc_w, Order::backwards);
    EXPECT_TRUE(residual.same_bits(y));
    EXPECT_TRUE(acc_x.same_bits(dx));
    EXPECT_TRUE(acc_w.same_bits(dw));
  }
}

TEST_P(Gemm, GivesARowTheSameBitsAloneAndAmongOthers) {
  const int64_t M = 37, K = 1000, N = 120;
  const Tensor x({M, K}, 1), w({K, N}, panels(), 2), dy({M, N}, 3);
  const Tensor y({M, N}, 4), dx({M, K}, 5);
  run(Op::linear, {&x, &w, nullptr, nullptr}, y);
  run(Op::linear_bwd_input, {&dy, &w, nullptr}, dx);
  for (int64_t m = 0; m < M; ++m) {
    const Tensor x1({1, K}, 1), dy1({1, N}, 1), y1({1, N}, 4), dx1({1, K}, 5);
    std::copy_n(x.data() + m * K, K, x1.data());
    std::copy_n(dy.data() + m * N, N, dy1.data());
    run(Op::linear, {&x1, &w, nullptr, nullptr}, y1);
    run(Op::linear_bwd_input, {&dy1, &w, nullptr}, dx1);
    EXPECT_EQ(std::memcmp(y1.data(), y.data() + m * N, static_cast<size_t>(N) * sizeof(float)), 0) << m;
    EXPECT_EQ(std::memcmp(dx1.data(), dx.data() + m * K, static_cast<size_t>(K) * sizeof(float)), 0) << m;
  }
}

TEST_P(Gemm, DoesNotLetThePaddingOfWeightsIntoAResult) {
  const int64_t M = 9, K = 20, N = 51;
  const Tensor x({M, K}, 1), dy({M, N}, 2);
  Tensor w({K, N}, panels(), 3);
  const Tensor y({M, N}, 4), dx({M, K}, 5), y_nan({M, N}, 6), dx_nan({M, K}, 7);
  run(Op::linear, {&x, &w, nullptr, nullptr}, y);
  run(Op::linear_bwd_input, {&dy, &w, nullptr}, dx);
  w.fill_padding(kNan);
  run(Op::linear, {&x, &w, nullptr, nullptr}, y_nan);
  run(Op::linear_bwd_input, {&dy, &w, nullptr}, dx_nan);
  EXPECT_TRUE(y_nan.same_bits(y));
  EXPECT_TRUE(dx_nan.same_bits(dx));
}

TEST_P(Gemm, WritesZeroPaddingWhateverTheTokensHold) {
  const int64_t M = 300, K = 21, N = 53;
  const Tensor x({M, K}, 1), dy({M, N}, 2), dw({K, N}, panels(), 3);
  x.data()[7] = std::numeric_limits<float>::infinity();
  x.data()[290 * K + 3] = kNan;
  run(Op::linear_bwd_weight, {&x, &dy, nullptr}, dw);
  EXPECT_TRUE(dw.padding_is_zero());
  for (int64_t n = 0; n < N; ++n) {
    EXPECT_TRUE(std::isnan(dw.at(3, n)));
    EXPECT_FALSE(std::isfinite(dw.at(7, n)));
    EXPECT_TRUE(std::isfinite(dw.at(4, n)));
  }
}

TEST_P(Gemm, GivesZeroGradientsOfNoTokens) {
  const Tensor x({0, 5}, 1), dy({0, 7}, 2), dw({5, 7}, panels(), 3), db({7}, 4), acc({7}, 5);
  run(Op::linear_bwd_weight, {&x, &dy, nullptr}, dw);
  run(Op::linear_bwd_bias, {&dy, &acc}, db);
  for (int64_t k = 0; k < 5; ++k)
    for (int64_t n = 0; n < 7; ++n) EXPECT_EQ(dw.at(k, n), 0.0f);
  EXPECT_TRUE(db.same_bits(acc));
}

INSTANTIATE_TEST_SUITE_P(All, Gemm, ::testing::ValuesIn(test::tested_isas()),
                         [](const auto& info) { return std::string(isa_name(info.param)); });

}  // namespace
}  // namespace lamina::testing

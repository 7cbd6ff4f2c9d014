// Shapes, layouts and random numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "base/dtype.h"
#include "base/layout.h"
#include "base/op.h"
#include "base/rng.h"
#include "base/shape.h"

namespace lamina {
namespace {

TEST(Shape, CountsRowsAndElements) {
  EXPECT_EQ(Shape{}.elements(), 1);
  EXPECT_EQ((Shape{3, 0, 2}).elements(), 0);
  EXPECT_EQ((Shape{2, 3, 4}).rows(), 6);
  EXPECT_EQ((Shape{2, 3, 4}).text(), "2x3x4");
}

TEST(Layout, PanelsRoundTripAndPadWithZeros) {
  for (int64_t nr : {1, 4, 16, 48})
    for (int64_t N : {1, 15, 16, 17, 97}) {
      const int64_t K = 5;
      std::vector<float> matrix(static_cast<size_t>(K * N));
      for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<float>(i + 1);
      const Layout layout = Layout::panel(static_cast<int32_t>(nr));
      std::vector<float> packed(static_cast<size_t>(storage_elements({K, N}, layout)), -1.0f);
      pack_panel(matrix.data(), N, 1, packed.data(), K, N, nr);
      double sum = 0.0;
      for (float value : packed) sum += value;
      EXPECT_EQ(sum, static_cast<double>(K * N * (K * N + 1) / 2)) << "padding is not zero, nr " << nr << " N " << N;
      EXPECT_EQ(packed[static_cast<size_t>((N - 1) / nr * K * nr + 2 * nr + (N - 1) % nr)],
                matrix[static_cast<size_t>(2 * N + N - 1)]);
      std::vector<float> back(matrix.size());
      unpack_panel(packed.data(), back.data(), N, 1, K, N, nr);
      EXPECT_EQ(back, matrix);
    }
}

TEST(Rng, StreamsAreReproducibleAndDiffer) {
  Rng a(1), b(1), c(2);
  std::set<uint64_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t x = a.next();
    EXPECT_EQ(x, b.next());
    EXPECT_NE(x, c.next());
    EXPECT_TRUE(seen.insert(x).second);
  }
}

// 100,000 draws: the deviation of the mean is 1/√n, that of the variance √(2/n); five of them are allowed.
TEST(Rng, NormalHasMeanZeroAndDeviationOne) {
  Rng rng(3);
  const int n = 100000;
  double sum = 0.0, squares = 0.0;
  for (int i = 0; i < n; ++i) {
    const double x = rng.normal();
    sum += x;
    squares += x * x;
  }
  EXPECT_LT(std::abs(sum / n), 5.0 / std::sqrt(n));
  EXPECT_LT(std::abs(squares / n - 1.0), 5.0 * std::sqrt(2.0 / n));
}

TEST(Rng, BelowStaysBelowAndReachesAll) {
  Rng rng(4);
  std::set<uint64_t> seen;
  for (int i = 0; i < 500; ++i) seen.insert(rng.below(7));
  EXPECT_EQ(seen.size(), 7u);
  EXPECT_EQ(*seen.rbegin(), 6u);
}

TEST(Ops, NamesReadBack) {
  for (int i = 0; i < kOpCount; ++i) {
    const auto op = static_cast<Op>(i);
    EXPECT_EQ(parse_op(op_name(op)), op);
  }
  EXPECT_FALSE(parse_op("no_such_op"));
}

TEST(Dtype, NamesReadBack) {
  for (Dtype dtype :
       {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16, Dtype::i32, Dtype::i64, Dtype::u8, Dtype::u16, Dtype::u32})
    EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
}

}  // namespace
}  // namespace lamina

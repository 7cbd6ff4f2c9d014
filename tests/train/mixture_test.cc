#include "train/mixture.h"

#include <gtest/gtest.h>

#include <set>

#include "io/files.h"
#include "train/batches.h"

namespace lamina {
namespace {

TEST(Mixture, SharesOfEveryPrefixAndIndicesInOrder) {
  const std::vector<std::vector<double>> mixes{{1, 1},    {1, 3},    {0.7, 0.2, 0.1}, {5, 1, 1, 1},
                                               {1, 1000}, {1e-9, 1}, {0x1.0p60, 1, 2}};
  for (const std::vector<double>& weights : mixes)
    for (uint64_t seed = 0; seed < 5; ++seed) {
      const Mixture mixture(weights, seed);
      double sum = 0.0;
      for (const double weight : weights) sum += weight;
      std::vector<int64_t> counts(weights.size());
      for (int64_t row = 0; row < 5000; ++row) {
        const Mixture::Draw draw = mixture(row);
        ASSERT_LT(draw.source, weights.size());
        ASSERT_EQ(draw.index, counts[draw.source]++);
        for (size_t s = 0; s < weights.size(); ++s)
          ASSERT_NEAR(static_cast<double>(counts[s]), weights[s] / sum * static_cast<double>(row + 1),
                      static_cast<double>(weights.size()));
      }
    }
}

TEST(Mixture, SmallWeightsKeepTheirRatioBesideALargeOne) {
  const Mixture mixture(std::vector<double>{0x1.0p60, 1, 3}, 1);
  std::vector<int> counts(3);
  for (int64_t block = 0; block < 400; ++block) {  // the first source leaves one row out of 2^32
    const auto all_first = [&](int64_t row) {
      const Mixture::Draw draw = mixture(row);
      return draw.source == 0 && row - draw.index == block;
    };
    int64_t low = block << 32, high = (block + 1) << 32;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (all_first(middle))
        low = middle + 1;
      else
        high = middle;
    }
    ++counts[mixture(low).source];
  }
  EXPECT_NEAR(counts[1], 100, 1);
  EXPECT_NEAR(counts[2], 300, 1);
}

TEST(Mixture, FarRowsAndSeeds) {
  const std::vector<double> weights{1, 2};
  const Mixture mixture(weights, 1);
  const int64_t far = int64_t{1} << 60;
  const Mixture::Draw draw = mixture(far);
  EXPECT_NEAR(static_cast<double>(draw.index), (draw.source == 0 ? 1.0 : 2.0) / 3.0 * 0x1.0p60, 0x1.0p30);
  std::set<std::vector<size_t>> phases;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    std::vector<size_t> sources;
    for (int64_t row = 0; row < 3; ++row) sources.push_back(Mixture(weights, seed)(row).source);
    phases.insert(sources);
  }
  EXPECT_EQ(phases.size(), 3u);
}

// Ids say which source and place they come from.
std::vector<Source> two_sources(std::vector<int32_t>& first, std::vector<int32_t>& second) {
  for (int32_t i = 0; i < 41; ++i) first.push_back(i);          // 10 windows of 4
  for (int32_t i = 0; i < 15; ++i) second.push_back(1000 + i);  // 4 windows, the last one of 2
  std::vector<Source> out(2);
  out[0] = {"a", {}, 1.0}, out[1] = {"b", {}, 3.0};
  out[0].ids.add(first), out[1].ids.add(second);
  return out;
}

TEST(Batches, SourcesHaveEpochsOfTheirOwn) {
  std::vector<int32_t> first, second;
  Batches batches(two_sources(first, second), {.seq = 4, .rows = 4, .seed = 7});
  EXPECT_EQ(batches.windows(), 14);
  EXPECT_EQ(batches.steps_per_epoch(), 4);
  std::vector<int32_t> of_first, of_second;
  for (int64_t step = 1; step <= 40; ++step) {
    const std::span<const Row> rows = batches.rows(step);
    ASSERT_EQ(rows.size(), 4u);  // every step is full
    int64_t from_second = 0;
    for (const Row& row : rows) {
      for (size_t i = 0; i < row.tokens.size(); ++i) EXPECT_EQ(row.targets[i], row.tokens[i] + 1);
      from_second += row.tokens[0] >= 1000 ? 1 : 0;
      (row.tokens[0] >= 1000 ? of_second : of_first).push_back(row.tokens[0]);
    }
    EXPECT_EQ(from_second, 3);
  }
  const auto check = [](const std::vector<int32_t>& begins, size_t windows) {
    std::set<std::vector<int32_t>> orders;
    for (size_t at = 0; at + windows <= begins.size(); at += windows) {
      const auto begin = begins.begin() + static_cast<ptrdiff_t>(at);
      const std::vector<int32_t> order(begin, begin + static_cast<ptrdiff_t>(windows));
      EXPECT_EQ(std::set<int32_t>(order.begin(), order.end()).size(), windows);  // each window once
      orders.insert(order);
    }
    EXPECT_GT(orders.size(), 1u);
  };
  check(of_first, 10);
  check(of_second, 4);
}

TEST(Batches, RowsOfAMixDependOnSeedAndStepOnly) {
  std::vector<int32_t> first, second, third, fourth;
  Batches forward(two_sources(first, second), {.seq = 4, .rows = 3, .seed = 7});
  Batches backward(two_sources(third, fourth), {.seq = 4, .rows = 3, .seed = 7});
  const auto begins = [](std::span<const Row> rows) {
    std::vector<int32_t> out;
    for (const Row& row : rows) out.push_back(row.tokens[0]);
    return out;
  };
  std::vector<std::vector<int32_t>> steps;
  for (int64_t step = 1; step <= 50; ++step) steps.push_back(begins(forward.rows(step)));
  for (int64_t step = 50; step >= 1; --step)
    EXPECT_EQ(begins(backward.rows(step)), steps[static_cast<size_t>(step - 1)]);
}

TEST(Batches, TooFewIdsNameTheSource) {
  std::vector<int32_t> first, second;
  std::vector<Source> sources = two_sources(first, second);
  sources[1].name = "training data of small.txt";
  test::expect_error([&] { Batches(sources, {.seq = 16}); }, ErrorCode::invalid, {"small.txt", "17", "15"});
}

}  // namespace
}  // namespace lamina

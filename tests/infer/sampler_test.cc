#include "infer/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "io/files.h"

namespace lamina {
namespace {

using test::expect_error;

const std::vector<float> kLogits{1.0f, 3.0f, -2.0f, 3.0f, 2.5f, -HUGE_VALF, 0.0f};  // best: 1, its equal: 3

std::vector<int32_t> draws(const SamplingOptions& options, uint64_t seed, int count = 400) {
  Sampler sampler(options);
  std::vector<int32_t> out;
  for (int i = 0; i < count; ++i) out.push_back(sampler.sample(kLogits, seed, static_cast<uint64_t>(i)));
  return out;
}

std::set<int32_t> kinds(const SamplingOptions& options) {
  const std::vector<int32_t> ids = draws(options, 1);
  return {ids.begin(), ids.end()};
}

TEST(Sampler, ZeroTemperatureTakesTheBestAndTheLowestOfEquals) {
  for (uint64_t seed : {1u, 2u, 3u}) EXPECT_EQ(draws({.temperature = 0.0}, seed), std::vector<int32_t>(400, 1));
  EXPECT_EQ(draws({.temperature = 0.0, .top_k = 5, .top_p = 0.9}, 1), std::vector<int32_t>(400, 1));
}

TEST(Sampler, ExtremeTemperaturesGiveNoNaN) {
  EXPECT_EQ(kinds({.temperature = 1e-30}), (std::set<int32_t>{1, 3}));
  EXPECT_EQ(kinds({.temperature = std::numeric_limits<double>::denorm_min()}), (std::set<int32_t>{1, 3}));
  EXPECT_EQ(kinds({.temperature = 1e30}), (std::set<int32_t>{0, 1, 2, 3, 4, 6}));
}

TEST(Sampler, TopKClampsAndBreaksTiesByTheLowestId) {
  EXPECT_EQ(kinds({.top_k = 1}), (std::set<int32_t>{1}));
  EXPECT_EQ(kinds({.top_k = 2}), (std::set<int32_t>{1, 3}));
  EXPECT_EQ(kinds({.top_k = 3}), (std::set<int32_t>{1, 3, 4}));
  for (int64_t k : {7, 8, 1000000}) EXPECT_EQ(draws({.top_k = k}, 5), draws({}, 5));
}

TEST(Sampler, TopPKeepsTheSmallestSetThatReachesIt) {
  for (double p : {0.0, 1e-9}) EXPECT_EQ(draws({.top_p = p}, 1), std::vector<int32_t>(400, 1));
  // Weights relative to the best: 1, 1, e^-0.5, e^-2, e^-3, e^-5.
  const double total = 2.0 + std::exp(-0.5) + std::exp(-2.0) + std::exp(-3.0) + std::exp(-5.0);
  EXPECT_EQ(kinds({.top_p = 0.999 / total}), (std::set<int32_t>{1}));
  EXPECT_EQ(kinds({.top_p = 1.001 / total}), (std::set<int32_t>{1, 3}));
  EXPECT_EQ(kinds({.top_p = 2.001 / total}), (std::set<int32_t>{1, 3, 4}));
  EXPECT_EQ(draws({.top_p = 1.0}, 3), draws({}, 3));
  EXPECT_EQ(draws({.top_p = std::nextafter(1.0, 0.0)}, 3), draws({}, 3));
}

TEST(Sampler, TopPActsOnWhatTopKLeft) {
  // Of {1, 3, 4} with weights 1, 1, 0.61 the first two hold 0.77.
  EXPECT_EQ(kinds({.top_k = 3, .top_p = 0.7}), (std::set<int32_t>{1, 3}));
  EXPECT_EQ(kinds({.top_k = 3, .top_p = 0.8}), (std::set<int32_t>{1, 3, 4}));
}

TEST(Sampler, DrawsFollowTheProbabilities) {
  constexpr int kCount = 200000;
  const std::vector<float> logits{0.0f, std::log(3.0f), std::log(6.0f)};
  Sampler sampler({});
  int counts[3] = {};
  for (int i = 0; i < kCount; ++i) ++counts[sampler.sample(logits, 9, static_cast<uint64_t>(i))];
  for (int id = 0; id < 3; ++id) {
    const double p = std::vector<double>{0.1, 0.3, 0.6}[static_cast<size_t>(id)];
    EXPECT_NEAR(counts[id], kCount * p, 5.0 * std::sqrt(kCount * p * (1.0 - p))) << id;  // five deviations
  }
}

TEST(Sampler, IsAFunctionOfSeedAndPosition) {
  EXPECT_EQ(draws({}, 4), draws({}, 4));
  EXPECT_NE(draws({}, 4), draws({}, 5));
  Sampler one({}), other({});
  (void)other.sample(kLogits, 99, 99);
  EXPECT_EQ(one.sample(kLogits, 4, 17), other.sample(kLogits, 4, 17));
}

TEST(Sampler, RefusesValuesThatMeanNothing) {
  const auto refuse = [](const SamplingOptions& options, const std::vector<std::string>& words) {
    expect_error([&] { Sampler sampler(options); }, ErrorCode::usage, words);
  };
  refuse({.top_k = -1}, {"top_k", "-1"});
  refuse({.top_p = 1.5}, {"top_p", "1.5"});
  refuse({.top_p = -0.1}, {"top_p", "-0.1"});
  refuse({.top_p = std::nan("")}, {"top_p", "nan"});
  refuse({.temperature = -1.0}, {"temperature", "-1"});
  refuse({.temperature = std::nan("")}, {"temperature", "nan"});
  refuse({.temperature = HUGE_VAL}, {"temperature", "inf"});
}

TEST(Sampler, RefusesLogitsThatAreNoNumbers) {
  const float nan = std::nanf("");
  for (const std::vector<float>& logits :
       {std::vector<float>{0.0f, nan}, {nan, 0.0f}, {0.0f, HUGE_VALF}, {-HUGE_VALF, -HUGE_VALF}}) {
    for (double temperature : {0.0, 1.0})
      expect_error([&] { Sampler({.temperature = temperature}).sample(logits, 1, 1); }, ErrorCode::invalid,
                   {"logits", "not finite"});
  }
}

TEST(Sampler, LogProbabilityIsLogSoftmax) {
  const std::vector<float> logits{0.0f, std::log(3.0f), -HUGE_VALF};
  EXPECT_NEAR(log_probability(logits, 0), std::log(0.25), 1e-7);
  EXPECT_NEAR(log_probability(logits, 1), std::log(0.75), 1e-7);
  EXPECT_EQ(log_probability(logits, 2), -HUGE_VAL);
}

}  // namespace
}  // namespace lamina

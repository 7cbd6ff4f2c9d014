#include "train/schedule.h"

#include <gtest/gtest.h>

namespace lamina {
namespace {

// 10 steps of linear decay from 1e-5: 10, 9, …, 1 times 1e-6.
TEST(Schedule, LinearUsesEveryRateOnce) {
  const LearningRate rate{.lr = 1e-5, .schedule = Schedule::linear, .steps = 10};
  for (int64_t step = 1; step <= 10; ++step)
    EXPECT_NEAR(learning_rate(rate, step), static_cast<double>(11 - step) * 1e-6, 1e-18) << step;
}

TEST(Schedule, WarmupRisesAndThenDecays) {
  const LearningRate rate{.lr = 8.0, .schedule = Schedule::linear, .warmup = 3, .steps = 11};
  for (int64_t step = 1; step <= 3; ++step)
    EXPECT_DOUBLE_EQ(learning_rate(rate, step), 2.0 * static_cast<double>(step));
  for (int64_t step = 4; step <= 11; ++step)
    EXPECT_DOUBLE_EQ(learning_rate(rate, step), static_cast<double>(12 - step));
}

TEST(Schedule, MinimumIsWhereTheStepAfterTheLastWouldBe) {
  for (Schedule schedule : {Schedule::linear, Schedule::cosine}) {
    const LearningRate rate{.lr = 1.0, .min_lr = 0.25, .schedule = schedule, .warmup = 2, .steps = 102};
    EXPECT_DOUBLE_EQ(learning_rate(rate, 3), 1.0);
    EXPECT_NEAR(learning_rate(rate, 53), 0.625, 1e-12);  // half of the way
    EXPECT_NEAR(learning_rate(rate, 103), 0.25, 1e-12);
    for (int64_t step = 4; step <= 102; ++step)
      EXPECT_LT(learning_rate(rate, step), learning_rate(rate, step - 1)) << schedule_name(schedule) << step;
  }
}

TEST(Schedule, ConstantStaysAfterWarmup) {
  const LearningRate rate{.lr = 3.0, .warmup = 2, .steps = 5};
  EXPECT_DOUBLE_EQ(learning_rate(rate, 1), 1.0);
  for (int64_t step = 3; step <= 5; ++step) EXPECT_EQ(learning_rate(rate, step), 3.0);
}

TEST(Schedule, WsdStaysAndThenFallsOverTheLastSteps) {
  const LearningRate rate{
      .lr = 5.0, .min_lr = 1.0, .schedule = Schedule::wsd, .warmup = 4, .steps = 20, .decay_steps = 4};
  for (int64_t step = 1; step <= 4; ++step) EXPECT_DOUBLE_EQ(learning_rate(rate, step), static_cast<double>(step));
  for (int64_t step = 5; step <= 17; ++step) EXPECT_EQ(learning_rate(rate, step), 5.0) << step;
  EXPECT_EQ(learning_rate(rate, 18), 4.0);
  EXPECT_EQ(learning_rate(rate, 19), 3.0);
  EXPECT_EQ(learning_rate(rate, 20), 2.0);  // the step after the last one would use 1
  LearningRate linear = rate, whole = rate;
  linear.schedule = Schedule::linear;
  whole.decay_steps = 16;  // all that follows the warm-up
  for (int64_t step = 1; step <= 20; ++step) EXPECT_EQ(learning_rate(whole, step), learning_rate(linear, step)) << step;
}

TEST(Schedule, BeyondTheLastStepIsTheMinimum) {
  for (const Schedule schedule : {Schedule::linear, Schedule::cosine, Schedule::wsd})
    for (const int64_t step : {5, 6, 100}) {
      const LearningRate rate{.lr = 1.0, .min_lr = 0.25, .schedule = schedule, .steps = 4, .decay_steps = 2};
      EXPECT_EQ(learning_rate(rate, step), 0.25) << schedule_name(schedule) << step;
    }
}

TEST(Schedule, NamesGoBothWays) {
  for (Schedule schedule : {Schedule::constant, Schedule::linear, Schedule::cosine, Schedule::wsd})
    EXPECT_EQ(parse_schedule(schedule_name(schedule)), schedule);
  EXPECT_FALSE(parse_schedule("square"));
}

}  // namespace
}  // namespace lamina

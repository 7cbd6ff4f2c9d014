// Placement: always valid, never below the bound, never above the sum of sizes; drawings above the small cases.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"
#include "plan/planner.h"

namespace lamina {
namespace {

bool valid(std::span<const Interval> intervals, const Placement& placement) {
  for (size_t i = 0; i < intervals.size(); ++i)
    for (size_t j = i + 1; j < intervals.size(); ++j) {
      if (intervals[i].last < intervals[j].first || intervals[j].last < intervals[i].first) continue;
      const int64_t a = placement.offsets[i], b = placement.offsets[j];
      if (a < b + intervals[j].bytes && b < a + intervals[i].bytes) return false;
    }
  return true;
}

//  | bbb
//  | aaa ccc
TEST(Place, ReusesWhatIsFree) {
  const std::vector<Interval> intervals{{0, 1, 64}, {0, 1, 64}, {2, 3, 128}};
  const Placement placement = place(intervals);
  EXPECT_EQ(placement.height, 128);
  EXPECT_TRUE(valid(intervals, placement));
}

//  | c   c      The long one must go below or above both short ones, not between them.
//  | aaaaa
TEST(Place, LongLivedOneFirst) {
  const std::vector<Interval> intervals{{0, 0, 192}, {0, 4, 64}, {4, 4, 192}, {2, 2, 128}};
  const Placement placement = place(intervals);
  EXPECT_EQ(placement.height, 256);
  EXPECT_TRUE(valid(intervals, placement));
}

TEST(Place, RandomProblemsAreValidAndBounded) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    std::vector<Interval> intervals(1 + rng.below(60));
    int64_t sum = 0;
    for (Interval& interval : intervals) {
      interval.first = static_cast<int32_t>(rng.below(50));
      interval.last = interval.first + static_cast<int32_t>(rng.below(20));
      interval.bytes = 64 * static_cast<int64_t>(1 + rng.below(40));
      sum += interval.bytes;
    }
    int64_t bound = 0;
    for (int32_t time = 0; time < 70; ++time) {
      int64_t live = 0;
      for (const Interval& interval : intervals)
        if (interval.first <= time && time <= interval.last) live += interval.bytes;
      bound = std::max(bound, live);
    }
    const Placement placement = place(intervals);
    ASSERT_TRUE(valid(intervals, placement)) << "seed " << seed;
    ASSERT_GE(placement.height, bound);
    ASSERT_LE(placement.height, sum);
    for (size_t i = 0; i < intervals.size(); ++i)
      ASSERT_LE(placement.offsets[i] + intervals[i].bytes, placement.height);
  }
}

}  // namespace
}  // namespace lamina

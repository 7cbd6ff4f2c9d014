// Placement: always valid, never below the bound, never above the sum of sizes; drawings above the small cases.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/rng.h"
#include "plan/place_search.h"
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

// The most bytes alive at once: nothing can be lower. It is reached where an interval begins.
int64_t most_alive(std::span<const Interval> intervals) {
  int64_t most = 0;
  for (const Interval& start : intervals) {
    int64_t live = 0;
    for (const Interval& interval : intervals)
      if (interval.first <= start.first && start.first <= interval.last) live += interval.bytes;
    most = std::max(most, live);
  }
  return most;
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
    const Placement placement = place(intervals);
    ASSERT_TRUE(valid(intervals, placement)) << "seed " << seed;
    ASSERT_GE(placement.height, most_alive(intervals));
    ASSERT_LE(placement.height, sum);
    for (size_t i = 0; i < intervals.size(); ++i)
      ASSERT_LE(placement.offsets[i] + intervals[i].bytes, placement.height);
  }
}

struct Box {
  int32_t first, last;
  int64_t low, high;
};

// A rectangle of time × space, cut at random until it has so many boxes: across, along, or as a pinwheel, which no cut
// through the whole can make. All of it is covered, so that its height is the best that a placement can have.
//
//   +-----+---+      |  a  | b |
//   |  a  |   |      +--+--+   |
//   +--+--+ b |      |  |e |   |
//   |d |e |---+      |d +--+---+
//   |  +--+ c |      |  |   c  |
class Cutter {
 public:
  Cutter(uint64_t seed, bool pinwheels) : rng_(seed), pinwheels_(pinwheels) {}

  std::vector<Box> cut(int32_t times, int64_t height, size_t count) {
    std::vector<Box> boxes{{0, times - 1, 0, height}};
    for (int failed = 0; boxes.size() < count && failed < 1000; ++failed) {
      const size_t i = largest_of_three(boxes);
      const Box box = boxes[i];
      std::vector<Box> parts = cut_one(box);
      if (parts.empty()) continue;
      failed = 0;
      boxes[i] = parts.back();
      parts.pop_back();
      boxes.insert(boxes.end(), parts.begin(), parts.end());
    }
    return boxes;
  }

 private:
  int64_t between(int64_t low, int64_t high) {  // both excluded
    return low + 1 + static_cast<int64_t>(rng_.below(static_cast<uint64_t>(high - low - 1)));
  }

  size_t largest_of_three(const std::vector<Box>& boxes) {
    size_t best = 0;
    double most = -1.0;
    for (int i = 0; i < 3; ++i) {
      const size_t at = rng_.below(boxes.size());
      const double area = static_cast<double>(boxes[at].high - boxes[at].low) * (boxes[at].last - boxes[at].first + 1);
      if (area > most) best = at, most = area;
    }
    return best;
  }

  std::vector<Box> cut_one(const Box& b) {
    const int32_t length = b.last - b.first + 1;
    const int64_t height = b.high - b.low;
    switch (rng_.below(pinwheels_ ? 3 : 2)) {
      case 0: {
        if (length < 2) return {};
        const auto t = static_cast<int32_t>(between(b.first, b.last + 1));
        return {{b.first, t - 1, b.low, b.high}, {t, b.last, b.low, b.high}};
      }
      case 1: {
        if (height < 2) return {};
        const int64_t h = between(b.low, b.high);
        return {{b.first, b.last, b.low, h}, {b.first, b.last, h, b.high}};
      }
      default: {
        if (length < 3 || height < 3) return {};
        const auto t1 = static_cast<int32_t>(between(b.first, b.last)),
                   t2 = static_cast<int32_t>(between(t1, b.last + 1));
        const int64_t h1 = between(b.low, b.high - 1), h2 = between(h1, b.high);
        return {{b.first, t2 - 1, h2, b.high},
                {t2, b.last, h1, b.high},
                {t1, b.last, b.low, h1},
                {b.first, t1 - 1, b.low, h2},
                {t1, t2 - 1, h1, h2}};
      }
    }
  }

  Rng rng_;
  bool pinwheels_;
};

// Boxes of a rectangle as a problem, in the order in which they begin.
std::vector<Interval> problem_of(const std::vector<Box>& boxes) {
  std::vector<Interval> out;
  for (const Box& box : boxes) out.push_back({box.first, box.last, 64 * (box.high - box.low)});
  std::stable_sort(out.begin(), out.end(), [](const Interval& a, const Interval& b) { return a.first < b.first; });
  return out;
}

TEST(Place, FillsARectangleThatWasCutApart) {
  constexpr int64_t kHeight = 1000;
  for (bool pinwheels : {false, true})
    for (size_t count : {size_t{10}, size_t{30}, pinwheels ? size_t{40} : size_t{100}})
      for (uint64_t seed = 0; seed < 10; ++seed) {
        const std::vector<Interval> intervals =
            problem_of(Cutter(seed, pinwheels).cut(static_cast<int32_t>(count), kHeight, count));
        ASSERT_GE(intervals.size(), count);
        const Placement placement = place(intervals);
        EXPECT_TRUE(valid(intervals, placement));
        EXPECT_LE(placement.height, 64 * kHeight * 101 / 100) << count << " boxes, seed " << seed << pinwheels;
        EXPECT_EQ(placement.offsets, place(intervals).offsets);
      }
}

// Problems in the form of MiniMalloc's (id,lower,upper,size; upper excluded), from the folder that LAMINA_PLACEMENTS
// names. How high each becomes, over its bound, is printed.
TEST(Place, ProblemsOfAFolder) {
  const char* folder = std::getenv("LAMINA_PLACEMENTS");
  if (folder == nullptr) GTEST_SKIP() << "LAMINA_PLACEMENTS names no folder of .csv files";
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".csv") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  ASSERT_FALSE(files.empty()) << folder;
  for (const std::filesystem::path& path : files) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    ASSERT_EQ(line, "id,lower,upper,size") << path;
    std::vector<Interval> intervals;
    while (std::getline(file, line)) {
      Interval& interval = intervals.emplace_back();
      ASSERT_EQ(std::sscanf(line.c_str(), "%*[^,],%d,%d,%ld", &interval.first, &interval.last, &interval.bytes), 3);
      --interval.last;
    }
    std::stable_sort(intervals.begin(), intervals.end(),
                     [](const Interval& a, const Interval& b) { return a.first < b.first; });
    const Placement placement = place(intervals);
    EXPECT_TRUE(valid(intervals, placement)) << path;
    const int64_t bound = most_alive(intervals);
    EXPECT_GE(placement.height, bound) << path;
    std::printf("%s: %zu intervals, height / bound %.4f\n", path.filename().c_str(), intervals.size(),
                static_cast<double>(placement.height) / static_cast<double>(bound));
  }
}

TEST(PlaceWithin, GivesNothingBelowTheBoundAndNothingWithoutWork) {
  const std::vector<Interval> intervals = problem_of(Cutter(1, true).cut(20, 100, 20));
  EXPECT_FALSE(place_within(intervals, 64 * 99, 1000000));
  EXPECT_FALSE(place_within(intervals, 64 * 100, 4));
  const std::optional<Placement> found = place_within(intervals, 64 * 100, 1000000);
  ASSERT_TRUE(found);
  EXPECT_TRUE(valid(intervals, *found));
  EXPECT_EQ(found->height, 64 * 100);
}

}  // namespace
}  // namespace lamina

// Placement of intervals of time × space, drawn for three of them:
//
//   offset ^   [  c  ]
//          |  [    b    ]        Intervals that overlap in time must not overlap in offset.
//          |[  a  ]   [ a' ]
//          +-----------------> time
//
// Greedy: in a given order, each interval takes the lowest gap that fits among those placed already and alive with it.
// Orders differ in what they are good at, so several are tried and the lowest result wins; training steps are stack-like
// and one of them usually meets the bound; where none does, what stuck out is placed first in a few more rounds. It does
// not search: that is for an exact solver.
#include <algorithm>
#include <array>
#include <numeric>

#include "plan/planner.h"

namespace lamina {
namespace {

constexpr int kPromotions = 6;  // rounds per order

int64_t lower_bound_bytes(std::span<const Interval> intervals) {
  std::vector<std::pair<int32_t, int64_t>> events;
  for (const Interval& interval : intervals) {
    events.emplace_back(interval.first, interval.bytes);
    events.emplace_back(interval.last + 1, -interval.bytes);
  }
  std::sort(events.begin(), events.end());  // a release sorts before a start at the same time
  int64_t live = 0, peak = 0;
  for (const auto& [time, change] : events) peak = std::max(peak, live += change);
  return peak;
}

Placement place_in_order(std::span<const Interval> intervals, const std::vector<size_t>& order) {
  Placement out;
  out.offsets.assign(intervals.size(), 0);
  std::vector<size_t> placed;  // sorted by offset
  placed.reserve(intervals.size());
  for (size_t i : order) {
    const Interval& interval = intervals[i];
    int64_t offset = 0;
    for (size_t other : placed) {
      const Interval& there = intervals[other];
      if (there.last < interval.first || interval.last < there.first) continue;
      if (out.offsets[other] - offset >= interval.bytes) break;
      offset = std::max(offset, out.offsets[other] + there.bytes);
    }
    out.offsets[i] = offset;
    out.height = std::max(out.height, offset + interval.bytes);
    const auto at = std::upper_bound(placed.begin(), placed.end(), offset,
                                     [&](int64_t value, size_t p) { return value < out.offsets[p]; });
    placed.insert(at, i);
  }
  return out;
}

// Moves what ends above the bound to the front of the order, where it finds lower gaps; the rest keeps its order.
std::vector<size_t> promote(const std::vector<size_t>& order, std::span<const Interval> intervals,
                            const Placement& placement, int64_t bound) {
  std::vector<size_t> out = order;
  std::stable_partition(out.begin(), out.end(),
                        [&](size_t i) { return placement.offsets[i] + intervals[i].bytes > bound; });
  return out;
}

}  // namespace

Placement place(std::span<const Interval> intervals) {
  const int64_t bound = lower_bound_bytes(intervals);
  const auto length = [&](size_t i) { return intervals[i].last - intervals[i].first; };
  const auto by = [&](auto key) {
    std::vector<size_t> order(intervals.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
    return order;
  };
  const std::array orders{
      by([&](size_t i) { return std::pair{intervals[i].first, -length(i)}; }),
      by([&](size_t i) { return std::pair{-length(i), -intervals[i].bytes}; }),
      by([&](size_t i) { return std::pair{-intervals[i].bytes, -length(i)}; }),
      by([&](size_t i) { return -intervals[i].bytes * (length(i) + 1); }),
      by([&](size_t i) { return std::pair{-intervals[i].last, intervals[i].first}; }),
  };
  Placement best;
  best.height = INT64_MAX;
  for (std::vector<size_t> order : orders) {
    for (int round = 0; round <= kPromotions && best.height > bound; ++round) {
      Placement candidate = place_in_order(intervals, order);
      order = promote(order, intervals, candidate, bound);
      if (candidate.height < best.height) best = std::move(candidate);
    }
  }
  return best;
}

}  // namespace lamina

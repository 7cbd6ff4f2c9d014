// Placement of intervals of time × space, drawn for three of them:
//
//   offset ^   [  c  ]
//          |  [    b    ]        Intervals that overlap in time must not overlap in offset.
//          |[  a  ]   [ a' ]
//          +-----------------> time
//
// Greedy: in a given order, each interval takes the lowest gap that fits among those placed already and alive with it.
// Orders differ in what they are good at, so several are tried and the lowest result wins; training steps are
// stack-like and one of them usually meets the bound. A training step has two stacks: what is born after the peak and
// lives long (gradients, up to their update) grows from the top, while activations are freed from there:
//
//   ceiling | a3 | g3 g3 g3
//           | a2 a2 | g2 g2
//           | a1 a1 a1 | g1
//
// Where nothing meets the bound, what stuck out is placed first in a few more rounds. Where the best of all that is
// more than a hundredth above the bound, place_search.h is asked for less, with a budget that no training step needs.
#include <algorithm>
#include <array>
#include <numeric>

#include "plan/place_search.h"
#include "plan/planner.h"

namespace lamina {
namespace {

constexpr int kPromotions = 6;            // rounds per order
constexpr int64_t kNearEnough = 100;      // parts of the bound of which one more is not searched for
constexpr int64_t kSearchWork = 2000000;  // looks at an interval, for each height that is tried
constexpr int64_t kGoodEnough = 1 << 10;  // parts of the bound of which one more ends the search

struct Peak {
  int64_t bytes = 0;
  int32_t time = 0;
};

Peak peak_of(std::span<const Interval> intervals) {
  std::vector<std::pair<int32_t, int64_t>> events;
  for (const Interval& interval : intervals) {
    events.emplace_back(interval.first, interval.bytes);
    events.emplace_back(interval.last + 1, -interval.bytes);
  }
  std::sort(events.begin(), events.end());  // a release sorts before a start at the same time
  int64_t live = 0;
  Peak peak;
  for (const auto& [time, change] : events) {
    live += change;
    if (live > peak.bytes) peak = {live, time};
  }
  return peak;
}

// Those that are placed from the top. Where the peak is at the loss: what is born after it and alive for more than half
// of what then remains. Where it is at the norm of all gradients: what is alive there or later.
std::vector<bool> born_after(std::span<const Interval> intervals, Peak peak) {
  int32_t end = 0;
  for (const Interval& interval : intervals) end = std::max(end, interval.last);
  std::vector<bool> out;
  for (const Interval& interval : intervals)
    out.push_back(interval.first >= peak.time && 2 * (interval.last - interval.first) > end - interval.first);
  return out;
}

std::vector<bool> alive_after(std::span<const Interval> intervals, Peak peak) {
  std::vector<bool> out;
  for (const Interval& interval : intervals) out.push_back(interval.last >= peak.time);
  return out;
}

// `from_top[i]`: take the highest gap below the ceiling instead of the lowest.
Placement place_in_order(std::span<const Interval> intervals, const std::vector<size_t>& order,
                         const std::vector<bool>& from_top, int64_t ceiling) {
  Placement out;
  out.offsets.assign(intervals.size(), 0);
  std::vector<size_t> placed;  // sorted by offset
  placed.reserve(intervals.size());
  for (size_t i : order) {
    const Interval& interval = intervals[i];
    int64_t end = 0;       // of what lies below
    int64_t highest = -1;  // gap so far
    for (size_t other : placed) {
      const Interval& there = intervals[other];
      if (there.last < interval.first || interval.last < there.first) continue;
      if (out.offsets[other] - end >= interval.bytes) {
        if (!from_top[i]) break;
        highest = out.offsets[other] - interval.bytes;
      }
      end = std::max(end, out.offsets[other] + there.bytes);
    }
    if (from_top[i] && ceiling - end >= interval.bytes) highest = ceiling - interval.bytes;
    const int64_t offset = highest >= 0 ? highest : end;
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

std::array<std::vector<size_t>, 5> orders_of(std::span<const Interval> intervals) {
  const auto length = [&](size_t i) { return intervals[i].last - intervals[i].first; };
  const auto by = [&](auto key) {
    std::vector<size_t> order(intervals.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
    return order;
  };
  return {
      by([&](size_t i) {
        return std::pair{intervals[i].first, -length(i)};
      }),
      by([&](size_t i) {
        return std::pair{-length(i), -intervals[i].bytes};
      }),
      by([&](size_t i) {
        return std::pair{-intervals[i].bytes, -length(i)};
      }),
      by([&](size_t i) { return -intervals[i].bytes * (length(i) + 1); }),
      by([&](size_t i) {
        return std::pair{-intervals[i].last, intervals[i].first};
      }),
  };
}

// From the bound upwards, in steps that double: the first height that the search reaches.
Placement searched(std::span<const Interval> intervals, int64_t bound, Placement best) {
  for (int64_t above = 0; bound + above < best.height; above = above == 0 ? bound / kNearEnough + 1 : 2 * above)
    if (std::optional<Placement> found = place_within(intervals, bound + above, kSearchWork)) return *found;
  return best;
}

Placement greedy(std::span<const Interval> intervals, Peak peak) {
  Placement best;
  best.height = INT64_MAX;
  const auto take = [&](const Placement& candidate) {
    if (candidate.height < best.height) best = candidate;
    return best.height - peak.bytes <= peak.bytes / kGoodEnough;
  };
  const std::array<std::vector<size_t>, 5> orders = orders_of(intervals);
  const std::array<std::vector<bool>, 3> tops = {born_after(intervals, peak), alive_after(intervals, peak),
                                                 std::vector<bool>(intervals.size(), false)};
  std::vector<Placement> starts;  // of each top and order
  for (const std::vector<bool>& top : tops)
    for (const std::vector<size_t>& order : orders) {
      starts.push_back(place_in_order(intervals, order, top, peak.bytes));
      if (take(starts.back())) return best;
    }
  auto candidate = starts.begin();
  for (const std::vector<bool>& top : tops)
    for (std::vector<size_t> order : orders) {
      for (int round = 0; round < kPromotions; ++round) {
        order = promote(order, intervals, *candidate, peak.bytes);
        *candidate = place_in_order(intervals, order, top, peak.bytes);
        if (take(*candidate)) return best;
      }
      ++candidate;
    }
  return best;
}

}  // namespace

Placement place(std::span<const Interval> intervals) {
  const Peak peak = peak_of(intervals);
  Placement best = greedy(intervals, peak);
  if (best.height - peak.bytes <= peak.bytes / kNearEnough) return best;
  return searched(intervals, peak.bytes, std::move(best));
}

}  // namespace lamina

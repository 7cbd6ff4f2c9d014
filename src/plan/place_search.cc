// Depth-first search over skylines. Time is cut into sections at every birth and death; the skyline is how high each
// section is filled. The lowest section has two kinds of successors:
//
//   offset ^            |d d|
//          |a a a|      |d d|     place: an interval that lies flat on its floor, as on the one between a and d
//          |a a a|______|d d|     waste: nothing fits flat, so the floor rises to the next height where something does
//          +---------------------> time
//
// What is left to place in a section and what was wasted there may not exceed the height: with little slack this cuts
// most branches at once. Of the sections as low as the lowest, the one with the fewest choices is taken. After a while
// without success the search starts again from the top with another preference among choices.
#include "plan/place_search.h"

#include <algorithm>
#include <vector>

namespace lamina {
namespace {

constexpr int kPreferences = 4;

class Skyline {
 public:
  Skyline(std::span<const Interval> intervals, int64_t height) : intervals_(intervals), height_(height) {
    std::vector<int32_t> times;
    for (const Interval& interval : intervals) times.insert(times.end(), {interval.first, interval.last + 1});
    std::sort(times.begin(), times.end());
    times.erase(std::unique(times.begin(), times.end()), times.end());
    const auto section = [&](int32_t time) {
      return static_cast<int32_t>(std::lower_bound(times.begin(), times.end(), time) - times.begin());
    };
    sections_ = times.size() - 1;
    covering_.resize(sections_);
    for (size_t i = 0; i < intervals.size(); ++i) {
      begin_.push_back(section(intervals[i].first));
      end_.push_back(section(intervals[i].last + 1));
      for (int32_t s = begin_[i]; s < end_[i]; ++s)
        covering_[static_cast<size_t>(s)].push_back(static_cast<int32_t>(i));
    }
  }

  // Whether a placement was found; `placement` then holds it.
  bool search(int preference, int64_t work, Placement& placement) {
    preference_ = preference;
    work_ = work;
    floor_.assign(sections_, 0);
    left_.assign(sections_, 0);
    offset_.assign(intervals_.size(), -1);
    unplaced_ = intervals_.size();
    for (size_t s = 0; s < sections_; ++s) {
      for (int32_t i : covering_[s]) left_[s] += intervals_[static_cast<size_t>(i)].bytes;
      if (left_[s] > height_) return false;
    }
    if (!run()) return false;
    placement = {offset_, 0};
    for (size_t i = 0; i < intervals_.size(); ++i)
      placement.height = std::max(placement.height, offset_[i] + intervals_[i].bytes);
    return true;
  }

 private:
  // One decision: which choices are left, and how to take it back.
  struct Frame {
    std::vector<int32_t> choices;  // intervals, the best one last; −1: waste
    int32_t section = 0;
    int32_t taken = -2;     // −2: none yet
    int64_t old_floor = 0;  // of a waste: what it was
  };

  bool run() {
    std::vector<Frame> stack;
    stack.push_back(decide());
    while (!stack.empty()) {
      Frame& frame = stack.back();
      if (frame.taken != -2) take_back(frame);
      bool moved = false;
      while (!moved && !frame.choices.empty() && work_ > 0) {
        frame.taken = frame.choices.back();
        frame.choices.pop_back();
        moved = take(frame);
        if (!moved) frame.taken = -2;
      }
      if (!moved) {
        stack.pop_back();
        if (work_ <= 0) return false;
        continue;
      }
      if (unplaced_ == 0) return true;
      stack.push_back(decide());
    }
    return false;
  }

  bool flat(int32_t i, int64_t floor) {
    const auto at = static_cast<size_t>(i);
    for (int32_t s = begin_[at]; s < end_[at]; ++s)
      if (floor_[static_cast<size_t>(s)] != floor) return false;
    return true;
  }

  std::vector<int32_t> flat_ones(size_t section) {
    std::vector<int32_t> out;
    work_ -= static_cast<int64_t>(covering_[section].size());
    for (int32_t i : covering_[section])
      if (offset_[static_cast<size_t>(i)] < 0 && flat(i, floor_[section])) out.push_back(i);
    return out;
  }

  Frame decide() {
    int64_t lowest = INT64_MAX;
    for (size_t s = 0; s < sections_; ++s)
      if (left_[s] > 0) lowest = std::min(lowest, floor_[s]);
    Frame out;
    bool found = false;
    for (size_t s = 0; s < sections_; ++s) {
      if (left_[s] == 0 || floor_[s] != lowest) continue;
      std::vector<int32_t> choices = flat_ones(s);
      if (found && choices.size() >= out.choices.size()) continue;
      out.choices = std::move(choices);
      out.section = static_cast<int32_t>(s);
      found = true;
      if (out.choices.empty()) break;
    }
    std::sort(out.choices.begin(), out.choices.end(), [&](int32_t a, int32_t b) { return rank(a) < rank(b); });
    out.choices.insert(out.choices.begin(), -1);
    return out;
  }

  // Larger is tried first.
  std::pair<int64_t, int64_t> rank(int32_t i) const {
    const Interval& interval = intervals_[static_cast<size_t>(i)];
    const int64_t length = interval.last - interval.first + 1;
    switch (preference_) {
      case 0: return {length, interval.bytes};
      case 1: return {interval.bytes, length};
      case 2: return {length * interval.bytes, length};
      default: return {-interval.bytes, length};
    }
  }

  bool take(Frame& frame) {
    if (frame.taken >= 0) return put(static_cast<size_t>(frame.taken));
    const auto s = static_cast<size_t>(frame.section);
    const int64_t next = next_floor(s);
    if (next + left_[s] > height_) return false;
    frame.old_floor = floor_[s];
    floor_[s] = next;
    return true;
  }

  bool put(size_t i) {
    const int64_t floor = floor_[static_cast<size_t>(begin_[i])], bytes = intervals_[i].bytes;
    for (int32_t s = begin_[i]; s < end_[i]; ++s)
      if (floor + left_[static_cast<size_t>(s)] > height_) return false;
    raised_.push_back({});
    for (int32_t s = begin_[i]; s < end_[i]; ++s) {
      raised_.back().push_back(floor_[static_cast<size_t>(s)]);
      floor_[static_cast<size_t>(s)] = floor + bytes;
      left_[static_cast<size_t>(s)] -= bytes;
    }
    offset_[i] = floor;
    --unplaced_;
    return true;
  }

  void take_back(Frame& frame) {
    if (frame.taken >= 0) {
      const auto i = static_cast<size_t>(frame.taken);
      for (int32_t s = begin_[i]; s < end_[i]; ++s) {
        floor_[static_cast<size_t>(s)] = raised_.back()[static_cast<size_t>(s - begin_[i])];
        left_[static_cast<size_t>(s)] += intervals_[i].bytes;
      }
      raised_.pop_back();
      offset_[i] = -1;
      ++unplaced_;
    } else {
      floor_[static_cast<size_t>(frame.section)] = frame.old_floor;
    }
    frame.taken = -2;
  }

  // The lowest height above its floor at which something unplaced would lie flat.
  int64_t next_floor(size_t section) {
    int64_t next = INT64_MAX / 2;
    for (int32_t i : covering_[section]) {
      const auto at = static_cast<size_t>(i);
      if (offset_[at] >= 0) continue;
      int64_t own = 0;
      for (int32_t s = begin_[at]; s < end_[at]; ++s) own = std::max(own, floor_[static_cast<size_t>(s)]);
      if (own > floor_[section]) next = std::min(next, own);
    }
    return next;
  }

  std::span<const Interval> intervals_;
  int64_t height_;
  size_t sections_ = 0;
  std::vector<int32_t> begin_, end_;            // sections of an interval
  std::vector<std::vector<int32_t>> covering_;  // intervals of a section
  std::vector<int64_t> floor_, left_;           // of a section: its skyline, bytes to be placed
  std::vector<int64_t> offset_;                 // −1: not placed
  std::vector<std::vector<int64_t>> raised_;    // floors below what was placed, in order
  size_t unplaced_ = 0;
  int preference_ = 0;
  int64_t work_ = 0;
};

}  // namespace

std::optional<Placement> place_within(std::span<const Interval> intervals, int64_t height, int64_t work) {
  if (intervals.empty()) return Placement{};
  Skyline skyline(intervals, height);
  Placement out;
  for (int preference = 0; preference < kPreferences; ++preference)
    if (skyline.search(preference, work / kPreferences, out)) return out;
  return std::nullopt;
}

}  // namespace lamina

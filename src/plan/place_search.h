// Placement by bounded search, for the problems where no greedy order comes near the lower bound.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "plan/planner.h"

namespace lamina {

// A placement no higher than `height`, or none where the search found none within `work` looks at an interval. The
// amount of work is counted, not timed: equal problems give equal placements.
std::optional<Placement> place_within(std::span<const Interval> intervals, int64_t height, int64_t work);

}  // namespace lamina

// Moves the numbers of one parameter from where they lie in one tensor to where they lie in another. Bits, not values:
// it knows the width of an element and no type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "io/name_profile.h"

namespace lamina {

// A parameter (K, N) of which the first `columns` of N are moved: what is beyond them in the target stays.
struct Move {
  ParameterView from, to;
  int64_t rows = 1;     // K
  int64_t columns = 0;  // of N
  bool operator==(const Move&) const = default;
};

// `width`: bytes of an element, 2 or 4. Both spans hold all that the views reach.
void rearrange(const Move& move, int64_t width, std::span<const std::byte> from, std::span<std::byte> to);

}  // namespace lamina

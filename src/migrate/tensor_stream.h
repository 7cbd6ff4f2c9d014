// Sends the bytes of one planned tensor where they shall go: moved, cast, looked at for NaN and infinity, and hashed on
// the way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "migrate/conversion_plan.h"

namespace lamina {

struct Streamed {
  std::string hash;        // XXH3, 128 bits, of what was sent
  int64_t non_finite = 0;  // elements that are NaN or infinite in what was sent
};

// `sink` takes the target's packed bytes in order. Throws Error(invalid) where a finite number is beyond the target's
// type.
Streamed stream_tensor(const PlannedTensor& planned, const std::function<void(std::span<const std::byte>)>& sink);

}  // namespace lamina

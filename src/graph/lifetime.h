// When each piece of storage is alive. Storage is that of a root value; views and in-place results extend its life.
//
//   node:      0   1   2   3
//   a          [-------]            first = 0 (its producer), last = 2 (its last reader, or a write through it)
//   b              [-------]
#pragma once

#include <vector>

#include "graph/graph.h"

namespace lamina {

struct Lifetime {
  ValueId root;
  int64_t bytes = 0;  // aligned to kAlignment
  int32_t first = 0;
  int32_t last = 0;  // inclusive
};

constexpr int64_t kAlignment = 64;

int64_t storage_bytes(const Type& type);  // aligned

// Of every computed root that is not an output of the graph, by first use. Inputs, outputs and persistent values have
// places of their own.
std::vector<Lifetime> transient_lifetimes(const Graph& graph);

struct LivePeak {
  int64_t bytes = 0;
  int32_t node = -1;  // the index of a node at which it is reached
};
LivePeak live_peak(const std::vector<Lifetime>& lifetimes, size_t nodes);

}  // namespace lamina

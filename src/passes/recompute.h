// What the backward side of a program can make again in place of keeping it. Which of it is worth the time, the caller
// decides: here nothing is known of costs.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace lamina {

// One node whose results would no longer be kept for the backward side.
struct RecomputeItem {
  Op op{};
  std::vector<NodeId> nodes;  // that node, and those before it whose results are not kept either
  int64_t bytes = 0;          // of results that are no longer kept
  int32_t gap = 0;            // nodes that run between their last use forward and their first one backward
};

// In order of execution. Nodes with an id from `backward` on are the backward side. Everything flows through some
// values (the residual stream, after each addition to it); they are checkpoints, and every `stride`-th of them is kept:
// what lies between two of them is made again from the first one, never from further back.
std::vector<RecomputeItem> recompute_items(const Graph& graph, NodeId backward, int32_t stride);

// Checkpoints that the backward side reads.
int32_t count_checkpoints(const Graph& graph, NodeId backward);

}  // namespace lamina

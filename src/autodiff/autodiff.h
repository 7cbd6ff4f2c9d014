// Reverse-mode differentiation, symbol to symbol: appends the backward nodes to the graph. Knows no op: each op's
// schema says how its gradient is made.
#pragma once

#include <span>
#include <vector>

#include "graph/graph.h"

namespace lamina {

// `loss` has one element, `seed` is its gradient (one element: a loss scale). Returns the gradient of each value of
// `wrt`; none where the loss does not depend on it. No node is emitted for values that do not lead to `wrt` (masks,
// positions, ids). Contributions to one value are summed by `add`, in reverse order of use.
std::vector<ValueId> differentiate(Graph& graph, ValueId loss, ValueId seed, std::span<const ValueId> wrt);

}  // namespace lamina

// Which results the training program makes again for its backward side in place of keeping them: the loop between the
// pass (which can) and the plan (which knows what it saves and costs). Part of the compiler.
#pragma once

#include <string>
#include <vector>

#include "kernels/kernel.h"
#include "passes/pass.h"
#include "plan/plan.h"

namespace lamina {

struct RecomputeOptions {
  enum Mode : uint8_t {
    none,       // everything is kept
    automatic,  // without a limit what costs next to nothing; with one, the cheapest plan that fits
    listed,     // all results of these kinds, but for the checkpoints between layers
  } mode = none;
  std::vector<std::string> kinds = {};  // names of ops
  int64_t memory_limit = 0;             // bytes of the whole plan; 0: none
  int threads = 1;                      // scratch of each counts for the limit
  bool curve = false;                   // fill RecomputeReport::curve
};

// A plan that could have been chosen. Predicted with typical rates, so that a choice is the same on every machine.
struct RecomputePoint {
  int64_t total_bytes = 0;
  double slowdown = 0.0;         // extra time over the time of a step that recomputes nothing
  std::string what = "nothing";  // or "25 layernorm, 12 gelu"
};

struct RecomputeReport {
  RecomputePoint chosen;
  std::vector<RecomputePoint> curve;  // from nothing to the smallest: each costs more and needs less
  double curve_ms = 0.0;              // what it took
};

struct RecomputeProblem {
  const Graph& graph;  // the training program before memory_passes
  const Plan& plan;    // all programs, with nothing recomputed
  const PassContext& context;
  const PipelineOptions& pipeline;
  const Arithmetics& arithmetics;
};

// The nodes to recompute. Throws Error(usage) for a kind that has no effect, and Error(memory) that names the smallest
// possible size where no plan fits the limit.
std::vector<NodeId> choose_recompute(const RecomputeProblem& problem, const RecomputeOptions& options,
                                     RecomputeReport& report);

}  // namespace lamina

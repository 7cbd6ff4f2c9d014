// The compiler: from a model and what is wanted of it to one static plan. compile.cc is the table of contents of
// Lamina.
#pragma once

#include <vector>

#include "kernels/kernel.h"
#include "model/config.h"
#include "model/precision.h"
#include "model/programs.h"
#include "passes/pass.h"
#include "plan/plan.h"
#include "recompute.h"

namespace lamina {

constexpr int64_t kMostTokens = int64_t{1} << 27;  // of a step

struct CompileOptions {
  int64_t batch = 1;  // capacity in rows of the training and evaluation programs
  int64_t seq = 1;    // and in tokens per row
  // Training. With accumulate 1 there is one program, `step`, in which a gradient takes space only from birth to
  // update. Above 1, or where the gradients are to be read, `micro_step` adds to persistent sums "grad.<parameter>" and
  // `update` applies and clears them.
  bool train = true;
  int64_t accumulate = 1;
  bool keep_gradients = false;
  UpdateOptions update = {};
  bool eval = false;       // program `eval`: the loss without dropout
  bool forward = false;    // program `forward`: logits (B, T, V)
  bool residuals = false;  // and the residual stream (model/programs.h)
  // Generation: programs `prefill` (blocks of prompt_block tokens) and `decode` (one token) over caches for this many
  // rows; 0: none.
  int64_t generate_batch = 0;
  int64_t prompt_block = 64;
  Isa isa = Isa::portable;
  PrecisionMap precision = {};   // of operands of products; none: fp32
  Arithmetics arithmetics = {};  // of products with 16-bit operands
  PipelineOptions pipeline = {};
  RecomputeOptions recompute = {};  // of the training program
};

struct Compiled {
  Plan plan;
  std::vector<Graph> graphs;       // of the programs, as they were planned
  std::vector<PassRecord> passes;  // node counts before and after each
  // Of the training program without its optimizer, and before the passes that run on the whole of it.
  int64_t forward_nodes = 0;
  int64_t forward_nodes_before = 0;
  int64_t backward_nodes = 0;
  int64_t backward_nodes_before = 0;
  int64_t recomputed_nodes = 0;  // besides those
  RecomputeReport recompute;
  double compile_ms = 0.0;  // without the curve of RecomputeReport
};

// Throws Error(invalid) for a bad config or a batch and seq that do not fit it. Deterministic.
Compiled compile(const ModelConfig& config, const CompileOptions& options);

}  // namespace lamina

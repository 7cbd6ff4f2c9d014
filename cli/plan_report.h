// A plan in words and as JSON: for `plan` and `inspect plan`.
#pragma once

#include "command.h"
#include "compile.h"
#include "observe/memory_picture.h"
#include "plan/cost.h"
#include "train/options.h"
#include "train/weights.h"

namespace lamina::cli {

// A model compiled as `train` would, and what it takes to describe it.
struct CompiledModel {
  ModelSource model;
  CompileOptions options;
  Compiled compiled;
  MemoryPicture memory;
  int threads = 1;
  std::string precision_name;
  std::vector<PartPrecision> precision;
};

// `curve`: with the plans that could have been chosen.
CompiledModel compile_model(const ShapeOptions& shape, bool curve = false);

// Throws Error(memory) where the plan needs more than --memory-limit.
void check_memory_limit(const ShapeOptions& shape, const CompiledModel& model);

// What a step will take on this machine: its rates are measured now, in about half a second.
struct Prediction {
  Rates rates;
  double step_ms = 0.0;                  // of all micro-batches and the update
  double operations = 0.0, bytes = 0.0;  // likewise
};
Prediction predict(const CompiledModel& model);
std::string prediction_text(const Prediction& prediction);
std::string recompute_text(const CompiledModel& model);

// Which part takes operands of which type, and what multiplies them.
std::string precision_text(const CompiledModel& model);
std::string nodes_text(const CompiledModel& model);   // before and after each pass
std::string memory_text(const CompiledModel& model);  // regions, classes, the peak and what is alive there
Json classes_json(const MemoryPicture& memory);
Json recompute_json(const CompiledModel& model);
Json plan_summary_json(const CompiledModel& model);  // the keys of `plan --json` that need no measurement

}  // namespace lamina::cli

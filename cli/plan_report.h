// A plan in words and as JSON: for `plan` and `inspect plan`.
#pragma once

#include "command.h"
#include "compile.h"
#include "observe/memory_picture.h"
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
};

CompiledModel compile_model(const ShapeOptions& shape);

// Throws Error(memory) where the plan needs more than --memory-limit.
void check_memory_limit(const ShapeOptions& shape, const CompiledModel& model);

std::string nodes_text(const CompiledModel& model);   // before and after each pass
std::string memory_text(const CompiledModel& model);  // regions, classes, the peak and what is alive there
Json classes_json(const MemoryPicture& memory);
Json plan_summary_json(const CompiledModel& model);  // the keys of `plan --json`

}  // namespace lamina::cli

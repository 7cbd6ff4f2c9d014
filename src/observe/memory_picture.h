// What the memory of a plan is spent on at its fullest moment: the step of a program at which the arena holds most.
// Made from the plan alone, before anything runs. It draws nothing about time: for that, a run has to be traced.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace lamina {

struct MemoryClass {
  std::string name;  // "parameters", "gradients", "optimizer", "activations", "workspace", "io"
  int64_t bytes = 0;
};

struct MemoryTensor {
  std::string name;
  std::string tensor_class;
  std::string shape;
  int64_t bytes = 0;
};

struct MemoryPicture {
  std::string program;               // whose arena is the largest
  std::string step;                  // the step that owns the peak; empty where nothing is transient
  std::vector<MemoryClass> classes;  // all regions and the scratch of all threads, at that step
  std::vector<MemoryTensor> live;    // transient tensors at that step, largest first
  int64_t live_bytes = 0;            // their sum
};

MemoryPicture memory_picture(const Plan& plan, int threads);

std::string bytes_text(int64_t bytes);  // "1.50 GiB"

}  // namespace lamina

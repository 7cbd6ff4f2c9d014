// The folder of a run: whether one may begin or go on there, and what lamina.json says about it. What each step writes
// is in metrics.h, the state in checkpoint.h.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "kernels/kernel.h"
#include "model/precision.h"
#include "train/data.h"
#include "train/options.h"
#include "train/weights.h"

namespace lamina {

// Throws Error(invalid) where the folder holds something, Error(io) where it is no folder.
void require_new_folder(const std::string& path);

// What a run that goes on keeps of its lamina.json.
struct StoredRun {
  std::string id;  // empty: there is no run yet
  nlohmann::json resumed = nlohmann::json::array();
};

// Of the run in this folder. Throws Error(invalid) where it holds other things than a run, where lamina.json is not
// what a run writes, and where there are checkpoints that nobody can tell the run of.
StoredRun open_run_folder(const std::string& path);

// Every row of a table of options by its name, with _ for -.
nlohmann::json options_json(const TrainOptions& options);

// What lamina.json says: enough to run it again.
struct RunDescription {
  const TrainOptions& options;
  const ModelSource& source;
  const ModelConfig& config;
  const std::vector<ParameterSpec>& specs;
  const Data& data;
  const Plan& plan;
  const std::string& recompute;  // what the plan makes again, in words
  const std::vector<PartPrecision>& precision;
  const Arithmetics& arithmetics;
  int64_t seq = 0;
  int64_t steps = 0;
  int64_t decay_steps = 0;
  int threads = 0;
};

nlohmann::json describe_run(const RunDescription& run);

// HuggingFace tensors that decay or those that do not, layers drawn together: "2 tensors, 99 values: wte.weight
// h.*.attn.c_attn.weight".
std::string decay_text(const std::vector<ParameterSpec>& specs, bool decay);

}  // namespace lamina

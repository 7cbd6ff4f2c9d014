// A whole run of training: options in, run folder out. It knows how files, data, tokenizer, schedule and steps come
// together; how a step runs is in step.h, how people see it in cli/.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "train/options.h"
#include "train/record.h"

namespace lamina {

struct TrainHooks {
  std::function<void(const std::string&)> say = [](const std::string&) {};  // a line for people
  std::function<void(const StepRecord&)> step = [](const StepRecord&) {};   // after each step
  std::function<void()> begin = [] {};                                      // just before anything is written
  std::function<int()> stop_signal = [] { return 0; };  // not 0: stop after the current step and save
};

struct TrainResult {
  std::string out;
  std::string run_id;
  std::string plan_digest;
  int64_t parameters = 0;
  int64_t steps = 0;           // done, by this process and those before it
  int64_t skipped = 0;         // of them
  int64_t tokens = 0;          // valid targets of all steps
  int64_t resumed_from = 0;    // the step of the checkpoint; 0: a new run
  std::optional<double> loss;  // of the last step that was not skipped
  std::optional<double> valid_loss;
  std::optional<double> best_valid_loss;
  int64_t best_step = 0;
  double tokens_per_s = 0.0;  // over the steps of this process alone
  double peak_fraction = 0.0;
  double limit_fraction = 0.0;
  double peak_gflops_before = 0.0;
  double peak_gflops_after = 0.0;
  int64_t plan_bytes = 0;
  int signal = 0;  // that stopped the run
};

// Throws Error. What was saved before an error stays whole.
TrainResult train(const TrainOptions& options, const TrainHooks& hooks);

}  // namespace lamina

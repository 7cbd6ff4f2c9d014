// What is known of one step of a run once it is over: for the log files, the progress line and whoever listens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lamina {

struct StepRecord {
  int64_t step = 0;
  int64_t steps = 0;   // of the whole run
  int64_t tokens = 0;  // valid targets of this step
  double loss = 0.0;   // not a number where there was no target
  double lr = 0.0;
  double grad_norm = 0.0;
  double loss_scale = 1.0;
  bool finite = true;           // false: the step was skipped
  std::string not_finite = {};  // then: "loss", or the HuggingFace name of the tensor whose gradient it was
  double step_ms = 0.0;
  double tokens_per_s = 0.0;
  double peak_fraction = 0.0;
  double limit_fraction = 0.0;            // of the peak of the arithmetic in use: what people are shown
  std::optional<double> valid_loss = {};  // after this step
};

inline std::string what_is_not_finite(const StepRecord& record) {
  return record.not_finite == "loss" ? "the loss" : "the gradient of " + record.not_finite;
}

}  // namespace lamina

// Whole steps of training on made-up tokens, one at a time, each with its time.
#pragma once

#include <vector>

#include "train/options.h"
#include "train/step.h"

namespace lamina::cli {

// Rows of ids that mean nothing, for a whole step.
struct MadeUpRows {
  std::vector<int32_t> ids;
  std::vector<Row> rows;

  MadeUpRows(int64_t count, int64_t seq, int64_t vocab_size);
};

class TimedSteps {
 public:
  // Binds a plan for training that was compiled for `shape` and gives it GPT-2's initial weights.
  TimedSteps(Plan plan, const ModelConfig& config, const ShapeOptions& shape, int threads);

  double step_ms();
  ThreadTeam& team() { return session_.team(); }

 private:
  MadeUpRows made_up_;
  Session session_;
  TrainStep train_;
  int64_t done_ = 0;
};

}  // namespace lamina::cli

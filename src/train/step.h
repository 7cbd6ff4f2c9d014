// One step of training and one batch of evaluation on a session: puts rows of tokens where the programs read them, runs
// the programs, reads the results. It knows no file, no schedule and no epoch. Buffers are resolved once, here; a step
// allocates nothing and looks nothing up.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/session.h"
#include "train/loss_scale.h"

namespace lamina {

// One row of a batch. `targets[i]` is what follows `tokens[i]`; a negative one is ignored. `start` leaves that many
// places before the tokens (left padding); places before and behind see nothing and count for nothing. `borders` are
// the places in `tokens`, rising, where a further document begins: it sees nothing before itself, and its positions
// count from 0 again. Which target lies across a border the row's maker knows, and gives as a negative one.
// `key_begin`, where not empty, has for each token the first one that it sees (one behind itself: nothing), within what
// borders allow. `positions`, where not empty, has theirs; else they count from the last token that sees itself alone.
struct Row {
  std::span<const int32_t> tokens;
  std::span<const int32_t> targets;
  int64_t start = 0;
  std::span<const int32_t> borders = {};
  std::span<const int32_t> key_begin = {};
  std::span<const int32_t> positions = {};
};

inline constexpr int32_t kIgnored = -100;  // as a target

int64_t count_targets(std::span<const Row> rows);

// The inputs that training and evaluation share. An input that the plan does not contain (dropout is 0) gets a buffer
// of its own, so that nothing has to ask.
class BatchInputs {
 public:
  explicit BatchInputs(Session& session);

  int64_t rows() const { return rows_; }
  int64_t seq() const { return seq_; }

  // Throws Error(invalid) that names row and position for an id outside the vocabulary, and for rows that do not fit.
  void check(std::span<const Row> rows, int64_t most_rows) const;
  // At most rows(); the rest of the batch is empty. The sample number of row r is first_sample + r.
  void fill(std::span<const Row> rows, int64_t first_sample);
  void set_target_weight(float weight) { target_weight_[0] = weight; }
  float loss() const { return loss_[0]; }
  void set_loss(float loss) { loss_[0] = loss; }  // for `update`, which sees what all micro-batches made

 private:
  void fill_row(int64_t r, const Row& row);
  void empty(int64_t r, int64_t begin, int64_t end);
  void see_from(int64_t r, int64_t begin, int64_t end);
  void set_positions(int64_t r, const Row& row);
  void check_row(const Row& row, int64_t r) const;
  void check_ids(std::span<const int32_t> ids, int64_t row, const char* what, bool may_be_ignored) const;

  int64_t rows_ = 0, seq_ = 0, vocab_ = 0, most_positions_ = 0;
  std::vector<int64_t> own_longs_;
  std::span<int32_t> tokens_, positions_, key_begin_, targets_;
  std::span<int64_t> sample_;
  std::span<float> target_weight_, loss_;
};

struct TrainStepOptions {
  uint64_t seed = 0;
  int64_t accumulate = 1;  // what the plan was compiled for
  double beta1 = 0.9;      // as well
  double beta2 = 0.999;
  bool dynamic_loss_scale = false;  // for gradients in fp16; else the scale is 1
};

struct StepResult {
  double loss = 0.0;       // mean over the valid targets of the whole step
  double grad_norm = 0.0;  // of that mean's gradient, before any clipping
  int64_t tokens = 0;      // valid targets; 0: nothing was done
  double loss_scale = 1.0;
  bool finite = true;     // false: the step was skipped, weights and moments are as they were
  bool overflow = false;  // then: the loss is finite, its gradient is not
};

class TrainStep {
 public:
  // The session's plan has `step`, or `micro_step` and `update`.
  TrainStep(Session& session, const TrainStepOptions& options);

  int64_t capacity() const { return inputs_.rows() * options_.accumulate; }  // rows of one step
  int64_t seq() const { return inputs_.seq(); }

  // At most capacity() rows, taken in order into micro-batches; micro-batches without a row are left out. `step` counts
  // from 1 and keys the dropout. Throws Error(invalid) for rows that do not fit, before anything has changed.
  StepResult step(std::span<const Row> rows, int64_t step, double lr);

  // The two halves, for plans that keep gradients: the sums "grad.<parameter>" can be read in between.
  StepResult backward(std::span<const Row> rows, int64_t step);
  void update(double lr, StepResult& result);

  // Updates that were applied: skipped steps do not count. Part of the state of a run.
  int64_t updates() const { return updates_; }
  void set_updates(int64_t updates) { updates_ = updates; }

  // None where it is not dynamic. Part of the state of a run as well.
  const std::optional<LossScale>& loss_scale() const { return scale_; }
  void set_loss_scale(const LossScale& scale) { scale_ = scale; }

  // The parameter whose gradient was not finite in the step before; of several, the first one on the way back from the
  // loss. Empty where all were finite.
  std::string_view bad_gradient() const;

 private:
  void set_hyper(double lr);
  void finish(StepResult& result);

  Session& session_;
  TrainStepOptions options_;
  BatchInputs inputs_;
  ProgramId gradient_program_ = ProgramId::none;  // `step` or `micro_step`
  ProgramId update_program_ = ProgramId::none;
  std::vector<int64_t> own_rng_;
  std::span<int64_t> rng_;
  std::span<float> loss_scale_, hyper_, grad_norm_;
  std::vector<std::pair<std::string, std::span<float>>> square_sums_;  // by parameter, in the model's order
  int64_t updates_ = 0;
  std::optional<LossScale> scale_;
};

// Throws Error(invalid) where so many steps in a row, up to `step`, were not finite that a run should end.
void check_skips(int64_t in_a_row, int64_t most, int64_t step);

// A step that is not finite where weights are updated in the backward pass (UpdateOptions::in_backward): the weights
// are of no use any more.
struct AppliedStep {
  int64_t step = 0;
  std::string what;  // was not finite: "the loss" or "the gradient of …"
  double loss = 0.0, grad_norm = 0.0;
  std::string go_on;  // how
};
[[noreturn]] void refuse_applied_step(const AppliedStep& step);

struct EvalResult {
  double loss_sum = 0.0;
  int64_t tokens = 0;
  double mean() const { return tokens > 0 ? loss_sum / static_cast<double>(tokens) : 0.0; }
};

// The program `eval`: the loss without dropout.
class EvalStep {
 public:
  explicit EvalStep(Session& session);

  int64_t rows() const { return inputs_.rows(); }
  int64_t seq() const { return inputs_.seq(); }
  void add(std::span<const Row> rows, EvalResult& total);  // any number of rows

 private:
  Session& session_;
  BatchInputs inputs_;
  ProgramId program_;
};

}  // namespace lamina

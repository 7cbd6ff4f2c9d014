// How people see a run: one line that is redrawn on a terminal, elsewhere a line now and then.
#pragma once

#include <chrono>

#include "train/trainer.h"

namespace lamina::cli {

class Progress {
 public:
  explicit Progress(int64_t log_every);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step(const StepRecord& record);
  void say(const std::string& line);

 private:
  using Clock = std::chrono::steady_clock;

  void clear_bar();
  void draw_bar(const StepRecord& record);

  int64_t log_every_;
  bool terminal_;
  bool colour_;
  bool drawn_ = false;
  int64_t steps_before_ = -1;  // of earlier processes
  Clock::time_point start_ = Clock::now();
  Clock::time_point next_draw_{};
};

}  // namespace lamina::cli

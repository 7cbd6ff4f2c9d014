// The learning rate as a pure function of the step: nothing is counted, so nothing can be counted twice after a stop.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace lamina {

enum class Schedule { constant, linear, cosine, wsd };

std::string_view schedule_name(Schedule schedule);
std::optional<Schedule> parse_schedule(std::string_view name);

struct LearningRate {
  double lr = 1e-3;
  double min_lr = 0.0;  // what the rate falls to; the step after the last one would use it
  Schedule schedule = Schedule::constant;
  int64_t warmup = 0;       // steps
  int64_t steps = 1;        // of the whole run
  int64_t decay_steps = 0;  // of wsd: the last ones, in which it falls
};

// Steps count from 1. While s <= W: lr * s / (W + 1). Then, of N steps, with the part f = (N - s + 1) / (N - W) still
// to go: constant lr, linear min + (lr - min) * f, cosine min + (lr - min) * (1 + cos(pi * (1 - f))) / 2. wsd (warm-up,
// stable, decay) stays at lr and is linear over the last D steps, f = (N - s + 1) / D; with D = N - W it is linear.
// Steps beyond N, which a loop in Python may take, have f = 0.
double learning_rate(const LearningRate& options, int64_t step);

}  // namespace lamina

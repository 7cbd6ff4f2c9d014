#include "train/schedule.h"

#include <array>
#include <cmath>
#include <numbers>

namespace lamina {
namespace {

constexpr std::array<std::string_view, 3> kNames{"constant", "linear", "cosine"};

}  // namespace

std::string_view schedule_name(Schedule schedule) { return kNames[static_cast<size_t>(schedule)]; }

std::optional<Schedule> parse_schedule(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<Schedule>(i);
  return std::nullopt;
}

double learning_rate(const LearningRate& options, int64_t step) {
  const auto number = [](int64_t value) { return static_cast<double>(value); };
  if (step <= options.warmup) return options.lr * number(step) / number(options.warmup + 1);
  const double left = number(options.steps - step + 1) / number(options.steps - options.warmup);
  switch (options.schedule) {
    case Schedule::constant: return options.lr;
    case Schedule::linear: return options.min_lr + (options.lr - options.min_lr) * left;
    case Schedule::cosine:
      return options.min_lr + (options.lr - options.min_lr) * 0.5 * (1.0 + std::cos(std::numbers::pi * (1.0 - left)));
  }
  return options.lr;
}

}  // namespace lamina

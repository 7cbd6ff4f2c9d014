#include "train/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace lamina {
namespace {

constexpr std::array<std::string_view, 4> kNames{"constant", "linear", "cosine", "wsd"};

}  // namespace

std::string_view schedule_name(Schedule schedule) { return kNames[static_cast<size_t>(schedule)]; }

std::optional<Schedule> parse_schedule(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<Schedule>(i);
  return std::nullopt;
}

double learning_rate(const LearningRate& options, int64_t step) {
  const auto number = [](int64_t value) { return static_cast<double>(value); };
  if (step <= options.warmup) return options.lr * number(step) / (number(options.warmup) + 1.0);
  const int64_t to_go = std::max<int64_t>(options.steps - step + 1, 0);
  const double span = options.lr - options.min_lr;
  const double left = number(to_go) / number(options.steps - options.warmup);
  switch (options.schedule) {
    case Schedule::constant: return options.lr;
    case Schedule::linear: return options.min_lr + span * left;
    case Schedule::cosine: return options.min_lr + span * 0.5 * (1.0 + std::cos(std::numbers::pi * (1.0 - left)));
    case Schedule::wsd:
      return to_go > options.decay_steps ? options.lr
                                         : options.min_lr + span * number(to_go) / number(options.decay_steps);
  }
  return options.lr;
}

}  // namespace lamina

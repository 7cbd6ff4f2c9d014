#include "timed_steps.h"

#include <chrono>

#include "base/rng.h"
#include "train/init.h"

namespace lamina::cli {

MadeUpRows::MadeUpRows(int64_t count, int64_t seq, int64_t vocab_size) : ids(static_cast<size_t>(count * (seq + 1))) {
  Rng rng(1);
  for (int32_t& id : ids) id = static_cast<int32_t>(rng.below(static_cast<uint64_t>(vocab_size)));
  const size_t width = static_cast<size_t>(seq);
  for (size_t r = 0; r < static_cast<size_t>(count); ++r) {
    const std::span<const int32_t> own = std::span(ids).subspan(r * (width + 1), width + 1);
    rows.push_back({own.first(width), own.subspan(1)});
  }
}

TimedSteps::TimedSteps(Plan plan, const ModelConfig& config, const ShapeOptions& shape, int threads)
    : made_up_(shape.batch * shape.accumulate, resolve_seq(shape, config), config.vocab_size),
      session_(std::move(plan), threads, memory_limit_bytes(shape.memory_limit)),
      train_(session_, {.accumulate = shape.accumulate, .beta1 = shape.betas[0], .beta2 = shape.betas[1]}) {
  initialise(session_, parameter_specs(config), 1);
}

double TimedSteps::step_ms() {
  const auto start = std::chrono::steady_clock::now();
  train_.step(made_up_.rows, ++done_, 1e-4);
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace lamina::cli

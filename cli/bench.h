// The parts of `lamina bench`; each adds itself below it.
#pragma once

#include "command.h"
#include "train/options.h"
#include "train/weights.h"

namespace lamina::cli {

void add_bench_kernels(const Command& bench);
void add_bench_step(const Command& bench);
void add_bench_ablation(const Command& bench);
void add_bench_peers(const Command& bench);

// Of steps that are timed: clipped, and without dropout whatever the config says, unless told otherwise.
struct TimedOptions : ShapeOptions {
  TimedOptions() {
    dropout = 0.0;
    clip = 1.0;
  }
};

struct StepTimes {
  std::vector<double> ms;  // at least one

  double least() const;
  double median() const;
};

// What one run of whole steps says of itself, whoever made them. `peak_gflops` is that of the threads in use.
Json steps_json(const ModelSource& model, const ShapeOptions& shape, int64_t seq, int threads, const StepTimes& times,
                double peak_gflops);

// One result for programs or for people: as JSON on standard output, with the text on standard error, or the text
// alone.
void report(bool json, const Json& result, const std::string& text);

// The most memory this process ever held, as the system counts it; 0 where it does not say.
int64_t process_peak_bytes();

}  // namespace lamina::cli

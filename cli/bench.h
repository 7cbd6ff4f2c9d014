// The parts of `lamina bench`; each adds itself below it.
#pragma once

#include "command.h"

namespace lamina::cli {

void add_bench_kernels(CLI::App& bench, Action& action);
void add_bench_step(CLI::App& bench, Action& action);

// The most memory this process ever held, as the system counts it; 0 where it does not say.
int64_t process_peak_bytes();

}  // namespace lamina::cli

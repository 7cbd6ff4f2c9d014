// The parts of `lamina bench`; each adds itself below it.
#pragma once

#include "command.h"

namespace lamina::cli {

void add_bench_kernels(const Command& bench);
void add_bench_step(const Command& bench);
void add_bench_peers(const Command& bench);

// The most memory this process ever held, as the system counts it; 0 where it does not say.
int64_t process_peak_bytes();

}  // namespace lamina::cli

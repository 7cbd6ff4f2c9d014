// What this machine can do at best, measured now: the denominators of every fraction that is shown.
#pragma once

#include <cstdint>

#include "base/cpu.h"
#include "base/thread_team.h"

namespace lamina {

// Gflop/s of fp32 multiply-adds of one rung (portable: products and sums), all threads of the team together, nothing
// but registers. Short windows for about `seconds`; the best one counts, so that neighbours on the machine do not.
double fma_peak_gflops(Isa isa, ThreadTeam& team, double seconds);

// The same, the rate sustained over the whole of `seconds`.
double fma_sustained_gflops(Isa isa, ThreadTeam& team, double seconds);

// GB/s of reading `bytes` of memory, more than the caches hold, all threads together; the best of some passes.
double memory_read_gb_s(Isa isa, ThreadTeam& team, double seconds, int64_t bytes = int64_t{512} << 20);

// GB/s of bytes read and written back in place, both counted: what an optimizer's update is bound by.
double memory_update_gb_s(Isa isa, ThreadTeam& team, double seconds, int64_t bytes = int64_t{512} << 20);

}  // namespace lamina

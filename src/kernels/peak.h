// What this machine can do at best, measured now: the denominators of every fraction that is shown.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/cpu.h"
#include "base/thread_team.h"
#include "kernels/kernel.h"

namespace lamina {

struct MemoryLoops;

// Gflop/s of fp32 multiply-adds of one rung (portable: products and sums), all threads of the team together, nothing
// but registers. Short windows for about `seconds`; the best one counts, so that neighbours on the machine do not.
double fma_peak_gflops(Isa isa, ThreadTeam& team, double seconds);

// The same of products in another arithmetic; none where the processor has no instructions for it.
std::optional<double> product_peak_gflops(Isa isa, Arithmetic arithmetic, ThreadTeam& team, double seconds);

// As fma_peak_gflops, the rate sustained over the whole of `seconds`.
double fma_sustained_gflops(Isa isa, ThreadTeam& team, double seconds);

// Memory of more than the caches hold. Windows of some milliseconds go through it piece by piece, so that each finds it
// cold; all threads of the team together. Throws Error(memory) where there is not so much.
class MemoryProbe {
 public:
  MemoryProbe(Isa isa, ThreadTeam& team, int64_t bytes = int64_t{512} << 20);
  ~MemoryProbe();
  MemoryProbe(const MemoryProbe&) = delete;
  MemoryProbe& operator=(const MemoryProbe&) = delete;

  // GB/s of the best window in about `seconds`, one at least: of bytes read, and of bytes read and written where each
  // element is made from itself (an optimizer's update, which no cache can help).
  double read_gb_s(double seconds);
  double in_place_gb_s(double seconds);

 private:
  double best_window(double seconds, void (*task)(void*, int64_t, int) noexcept);

  const MemoryLoops& loops_;
  ThreadTeam& team_;
  float* data_ = nullptr;
  int64_t pieces_;
  int64_t next_ = 0;          // where the next window begins
  std::vector<float> sinks_;  // one per piece
};

}  // namespace lamina

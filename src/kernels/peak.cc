#include "kernels/peak.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/peak_loops.h"

namespace lamina {
namespace {

constexpr int64_t kIterations = 50000;        // some 0.1 to 0.3 ms
constexpr int64_t kPiece = int64_t{1} << 18;  // floats that a thread reads at a time

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct FmaJob {
  const PeakLoops* loops;
  int64_t rounds;  // of kIterations
  std::vector<float> sinks;
};

void fma_task(void* context, int64_t task, int) noexcept {
  FmaJob& job = *static_cast<FmaJob*>(context);
  for (int64_t i = 0; i < job.rounds; ++i) job.sinks[static_cast<size_t>(task)] += job.loops->multiply_add(kIterations);
}

// Seconds of one window in which each thread of the team does job.rounds rounds.
double fma_window(ThreadTeam& team, FmaJob& job) {
  const double start = now();
  team.run(team.size(), fma_task, &job);
  return now() - start;
}

double fma_flops(const ThreadTeam& team, const FmaJob& job) {
  return job.loops->flops_per_iteration * static_cast<double>(kIterations * job.rounds * team.size());
}

struct MemoryJob {
  const PeakLoops* loops;
  float* data;
  std::vector<float> sinks;  // one per piece
};

void read_task(void* context, int64_t task, int) noexcept {
  MemoryJob& job = *static_cast<MemoryJob*>(context);
  job.sinks[static_cast<size_t>(task)] = job.loops->read(job.data + task * kPiece, kPiece);
}

void update_task(void* context, int64_t task, int) noexcept {
  const MemoryJob& job = *static_cast<MemoryJob*>(context);
  job.loops->update(job.data + task * kPiece, kPiece);
}

// Bytes per second of passes over so much memory, the best of some.
double best_pass(Isa isa, ThreadTeam& team, double seconds, int64_t bytes, void (*task)(void*, int64_t, int) noexcept) {
  const int64_t pieces = std::max(int64_t{1}, bytes / (kPiece * static_cast<int64_t>(sizeof(float))));
  const size_t size = static_cast<size_t>(pieces * kPiece) * sizeof(float);
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw_error(ErrorCode::memory, "not enough memory to measure its bandwidth: {} bytes", size);
  madvise(memory, size, MADV_HUGEPAGE);
  float* data = static_cast<float*>(memory);
  std::fill(data, data + pieces * kPiece, 1.0f);  // a page that was never written is not read from memory
  MemoryJob job{&peak_loops(isa), data, std::vector<float>(static_cast<size_t>(pieces))};
  double best = 1e9;
  const double end = now() + seconds;
  do {
    const double start = now();
    team.run(pieces, task, &job);
    best = std::min(best, now() - start);
  } while (now() < end);
  munmap(memory, size);
  return static_cast<double>(size) / best;
}

}  // namespace

double fma_peak_gflops(Isa isa, ThreadTeam& team, double seconds) {
  FmaJob job{&peak_loops(isa), 2, std::vector<float>(static_cast<size_t>(team.size()))};
  double best = fma_window(team, job);
  for (const double end = now() + seconds; now() < end;) best = std::min(best, fma_window(team, job));
  return fma_flops(team, job) / best * 1e-9;
}

double fma_sustained_gflops(Isa isa, ThreadTeam& team, double seconds) {
  FmaJob job{&peak_loops(isa), 2, std::vector<float>(static_cast<size_t>(team.size()))};
  const double window = fma_window(team, job);
  job.rounds = std::max(int64_t{1}, static_cast<int64_t>(2.0 * seconds / window));
  return fma_flops(team, job) / fma_window(team, job) * 1e-9;
}

double memory_read_gb_s(Isa isa, ThreadTeam& team, double seconds, int64_t bytes) {
  return best_pass(isa, team, seconds, bytes, read_task) * 1e-9;
}

double memory_update_gb_s(Isa isa, ThreadTeam& team, double seconds, int64_t bytes) {
  return 2.0 * best_pass(isa, team, seconds, bytes, update_task) * 1e-9;
}

}  // namespace lamina

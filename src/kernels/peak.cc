#include "kernels/peak.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/error.h"
#include "kernels/arithmetic.h"
#include "kernels/cpu/peak_loops.h"

namespace lamina {
namespace {

constexpr int64_t kIterations = 50000;        // some 0.1 to 0.3 ms
constexpr int64_t kPiece = int64_t{1} << 18;  // floats that a thread takes at a time
constexpr int64_t kPieceBytes = kPiece * static_cast<int64_t>(sizeof(float));
constexpr int64_t kWindowPieces = 8;  // some 0.5 ms: as long as the shorter kernels run

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

}  // namespace

double fma_peak_gflops(Isa isa, ThreadTeam& team, double seconds) {
  return *product_peak_gflops(isa, Arithmetic::f32, team, seconds);
}

std::optional<double> product_peak_gflops(Isa isa, Arithmetic arithmetic, ThreadTeam& team, double seconds) {
  if (!has_instructions(isa, arithmetic)) return std::nullopt;
  FmaJob job{&peak_loops(isa, arithmetic), 2, std::vector<float>(static_cast<size_t>(team.size()))};
  double best = fma_window(team, job);
  for (const double end = now() + seconds; now() < end;) best = std::min(best, fma_window(team, job));
  return fma_flops(team, job) / best * 1e-9;
}

double fma_sustained_gflops(Isa isa, ThreadTeam& team, double seconds) {
  FmaJob job{&peak_loops(isa, Arithmetic::f32), 2, std::vector<float>(static_cast<size_t>(team.size()))};
  const double window = fma_window(team, job);
  job.rounds = std::max(int64_t{1}, static_cast<int64_t>(2.0 * seconds / window));
  return fma_flops(team, job) / fma_window(team, job) * 1e-9;
}

MemoryProbe::MemoryProbe(Isa isa, ThreadTeam& team, int64_t bytes)
    : loops_(memory_loops(isa)), team_(team), pieces_(std::max(kWindowPieces, bytes / kPieceBytes)) {
  const size_t size = static_cast<size_t>(pieces_ * kPieceBytes);
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw_error(ErrorCode::memory, "not enough memory to measure its bandwidth: {} bytes", size);
  madvise(memory, size, MADV_HUGEPAGE);
  data_ = static_cast<float*>(memory);
  std::fill(data_, data_ + pieces_ * kPiece, 1.0f);  // a page that was never written is not read from memory
  sinks_.resize(static_cast<size_t>(pieces_));
}

MemoryProbe::~MemoryProbe() { munmap(data_, static_cast<size_t>(pieces_ * kPieceBytes)); }

double MemoryProbe::best_window(double seconds, void (*task)(void*, int64_t, int) noexcept) {
  double best = 1e9;
  const double end = now() + seconds;
  do {
    if (next_ + kWindowPieces > pieces_) next_ = 0;
    const double start = now();
    team_.run(kWindowPieces, task, this);
    best = std::min(best, now() - start);
    next_ += kWindowPieces;
  } while (now() < end);
  return static_cast<double>(kWindowPieces * kPieceBytes) / best * 1e-9;
}

double MemoryProbe::read_gb_s(double seconds) {
  return best_window(seconds, [](void* context, int64_t task, int) noexcept {
    MemoryProbe& probe = *static_cast<MemoryProbe*>(context);
    const int64_t piece = probe.next_ + task;
    probe.sinks_[static_cast<size_t>(piece)] = probe.loops_.read(probe.data_ + piece * kPiece, kPiece);
  });
}

double MemoryProbe::in_place_gb_s(double seconds) {
  return 2.0 * best_window(seconds, [](void* context, int64_t task, int) noexcept {
           MemoryProbe& probe = *static_cast<MemoryProbe*>(context);
           probe.loops_.update(probe.data_ + (probe.next_ + task) * kPiece, kPiece);
         });
}

}  // namespace lamina

// One persistent team of threads per process. Work is handed out task by task, so that a thread that loses its core to
// a neighbour loses one task, not a share. Which thread runs a task never changes a result: a task owns its output.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace lamina {

class ThreadTeam {
 public:
  // `threads` counts the caller's. The workers run with denormals flushed to zero and are pinned to no core.
  explicit ThreadTeam(int threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  using Body = void (*)(void* context, int64_t task, int thread) noexcept;

  // Calls body(context, t, thread) once for each t in [0, tasks) and returns when all are done; thread is in
  // [0, size()). tasks < 2^32. Allocates nothing. Must not be called from inside a body.
  void run(int64_t tasks, Body body, void* context) noexcept;

 private:
  struct Job {
    std::atomic<Body> body{nullptr};
    std::atomic<void*> context{nullptr};
    std::atomic<uint32_t> tasks{0};
  };

  void worker(int thread) noexcept;
  void work(int thread) noexcept;

  Job job_;
  // (job number << 32 | next task). A worker claims a task by compare-and-swap, which fails if the job has changed
  // since it read the fields of job_: a worker that comes late can neither miss a change nor hold up the others.
  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<uint32_t> done_{0};
  alignas(64) std::atomic<uint32_t> epoch_{0};  // what idle workers sleep on
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

// Sets flush-to-zero and denormals-are-zero on this thread while alive and restores what was there.
class FlushDenormals {
 public:
  FlushDenormals();
  ~FlushDenormals();
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  uint32_t saved_;
};

}  // namespace lamina

#include "base/thread_team.h"

#include <sched.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "base/error.h"

namespace lamina {
namespace {

constexpr int kSpins = 2000;  // some 20 µs of pauses before an idle worker sleeps

void pause_cpu() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

ThreadTeam::ThreadTeam(int threads) {
  LAMINA_CHECK(threads >= 1, "a team of {} threads", threads);
  workers_.reserve(static_cast<size_t>(threads - 1));
  for (int thread = 1; thread < threads; ++thread) workers_.emplace_back([this, thread] { worker(thread); });
}

ThreadTeam::~ThreadTeam() {
  stop_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (std::thread& thread : workers_) thread.join();
}

void ThreadTeam::run(int64_t tasks, Body body, void* context) noexcept {
  if (tasks <= 1 || workers_.empty()) {
    for (int64_t task = 0; task < tasks; ++task) body(context, task, 0);
    return;
  }
  LAMINA_CHECK(tasks < UINT32_MAX, "{} tasks in one job", tasks);
  // First withdraw the old ticket: whoever sees a field of the new job can then no longer claim a task of the old one.
  const uint64_t number = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
  ticket_.store((number << 32) | UINT32_MAX, std::memory_order_relaxed);
  job_.body.store(body, std::memory_order_release);
  job_.context.store(context, std::memory_order_release);
  job_.tasks.store(static_cast<uint32_t>(tasks), std::memory_order_release);
  done_.store(0, std::memory_order_relaxed);
  ticket_.store((number + 1) << 32, std::memory_order_release);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  work(0);
  for (int spins = 0; done_.load(std::memory_order_acquire) != tasks; ++spins) {
    if (spins < kSpins)
      pause_cpu();
    else
      sched_yield();
  }
}

void ThreadTeam::work(int thread) noexcept {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  for (;;) {
    const uint32_t task = static_cast<uint32_t>(ticket);
    const Body body = job_.body.load(std::memory_order_acquire);
    void* context = job_.context.load(std::memory_order_acquire);
    if (task >= job_.tasks.load(std::memory_order_acquire)) return;
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel)) continue;
    body(context, task, thread);
    done_.fetch_add(1, std::memory_order_release);
    ticket = ticket_.load(std::memory_order_acquire);
  }
}

void ThreadTeam::worker(int thread) noexcept {
  const FlushDenormals flush;
  uint32_t seen = 0;
  while (!stop_.load()) {
    work(thread);
    int spins = 0;
    while (epoch_.load() == seen && ++spins < kSpins) pause_cpu();
    epoch_.wait(seen);
    seen = epoch_.load();
  }
}

#if defined(__x86_64__)
FlushDenormals::FlushDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | 0x8040u); }
FlushDenormals::~FlushDenormals() { _mm_setcsr(saved_); }
#else
FlushDenormals::FlushDenormals() : saved_(0) {}
FlushDenormals::~FlushDenormals() = default;
#endif

}  // namespace lamina

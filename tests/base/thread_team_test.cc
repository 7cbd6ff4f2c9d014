#include "base/thread_team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace lamina {
namespace {

struct Counts {
  std::vector<std::atomic<int>> calls;
  std::atomic<int> bad_thread{0};
  int threads = 0;
  explicit Counts(size_t tasks) : calls(tasks) {}
};

void count(void* context, int64_t task, int thread) noexcept {
  auto& counts = *static_cast<Counts*>(context);
  counts.calls[static_cast<size_t>(task)].fetch_add(1, std::memory_order_relaxed);
  if (thread < 0 || thread >= counts.threads) counts.bad_thread.fetch_add(1);
}

TEST(ThreadTeam, RunsEachTaskOnceWhateverTheNumbers) {
  for (int threads : {1, 2, 3, 4}) {
    ThreadTeam team(threads);
    for (size_t tasks : {0u, 1u, 2u, 3u, 7u, 64u, 1000u}) {
      Counts counts(tasks);
      counts.threads = threads;
      team.run(static_cast<int64_t>(tasks), count, &counts);
      for (const auto& calls : counts.calls) EXPECT_EQ(calls.load(), 1);
      EXPECT_EQ(counts.bad_thread.load(), 0);
    }
  }
}

// Many short jobs of changing size: a worker that comes late to a job must not run a task of the next one twice.
TEST(ThreadTeam, ManyShortJobsInARow) {
  ThreadTeam team(4);
  for (int job = 0; job < 3000; ++job) {
    Counts counts(static_cast<size_t>(2 + job % 5));
    counts.threads = 4;
    team.run(static_cast<int64_t>(counts.calls.size()), count, &counts);
    for (const auto& calls : counts.calls) ASSERT_EQ(calls.load(), 1) << "job " << job;
  }
}

TEST(ThreadTeam, DenormalsAreFlushedInsideAndBackAfterwards) {
  volatile float tiny = 1e-39f;
  {
    const FlushDenormals flush;
#if defined(__x86_64__)
    EXPECT_EQ(tiny * 1.0f, 0.0f);
#endif
  }
  EXPECT_NE(tiny * 1.0f, 0.0f);
}

}  // namespace
}  // namespace lamina

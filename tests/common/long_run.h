// What a long loop may not do: become slower, take memory, open files, start threads.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace lamina::test {

struct ProcessState {
  int64_t resident_bytes = 0;
  int64_t files = 0, threads = 0;
};

inline ProcessState process_state() {
  const auto count = [](const char* folder) {
    return static_cast<int64_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
  };
  int64_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return {resident * sysconf(_SC_PAGESIZE), count("/proc/self/fd"), count("/proc/self/task")};
}

inline double seconds_of(const auto& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// P7: 5,000 calls. After the first 500 nothing grows. At the end the calls are as fast as those of one made anew; the
// two are timed in turn, so that a machine whose speed changes meanwhile changes it for both.
template <typename Make>
void expect_steady(const Make& make) {
  constexpr size_t kCalls = 5000, kPart = 500;
  const auto worn = make();
  ProcessState early;
  for (size_t i = 0; i < kCalls; ++i) {
    if (i == kPart) early = process_state();
    worn();
  }
  const ProcessState late = process_state();
#ifndef __SANITIZE_ADDRESS__  // which keeps freed memory for a while
  EXPECT_LE(late.resident_bytes - early.resident_bytes, int64_t{1} << 20);
#endif
  EXPECT_EQ(late.files, early.files);
  EXPECT_EQ(late.threads, early.threads);
  const auto fresh = make();
  double worn_best = seconds_of(worn), fresh_best = seconds_of(fresh);
  for (size_t i = 1; i < kPart; ++i) {
    worn_best = std::min(worn_best, seconds_of(worn));
    fresh_best = std::min(fresh_best, seconds_of(fresh));
  }
  EXPECT_LE(worn_best, 1.5 * fresh_best);
}

}  // namespace lamina::test

// What a long loop may not do: become slower, take memory, open files, start threads.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

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

// P7: 5,000 calls. After the first 500 nothing grows, and the fastest of the last 500 is as fast as at the beginning.
template <typename Call>
void expect_steady(const Call& call) {
  constexpr size_t kCalls = 5000, kPart = 500;
  std::vector<double> seconds(kCalls);
  ProcessState early;
  for (size_t i = 0; i < kCalls; ++i) {
    if (i == kPart) early = process_state();
    const auto start = std::chrono::steady_clock::now();
    call();
    seconds[i] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  const ProcessState late = process_state();
#ifndef __SANITIZE_ADDRESS__  // which keeps freed memory for a while
  EXPECT_LE(late.resident_bytes - early.resident_bytes, int64_t{1} << 20);
#endif
  EXPECT_EQ(late.files, early.files);
  EXPECT_EQ(late.threads, early.threads);
  const auto first = seconds.begin();
  EXPECT_LE(*std::min_element(seconds.end() - kPart, seconds.end()),
            1.5 * *std::min_element(first + kPart, first + 2 * kPart));
}

}  // namespace lamina::test

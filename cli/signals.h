// SIGINT and SIGTERM. While a StopGuard lives the first one asks for a stop and a second, half a second later or more,
// ends the process at once; without one the first ends it, with exit code 130 or 143 and no half-written file (files
// appear by rename only).
#pragma once

namespace lamina::cli {

void install_signal_handlers();

// The signal that asked for a stop, 0: none.
int stop_signal();

class StopGuard {
 public:
  StopGuard();
  ~StopGuard();
  StopGuard(const StopGuard&) = delete;
  StopGuard& operator=(const StopGuard&) = delete;
};

}  // namespace lamina::cli

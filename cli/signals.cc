#include "signals.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>

namespace lamina::cli {
namespace {

volatile sig_atomic_t guarded = 0;
volatile sig_atomic_t received = 0;
volatile int64_t received_ms = 0;

int64_t now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// One request may come as two signals: timeout(1) sends its own to the program and then to the group that it is in.
bool same_request(int signal) {
  constexpr int64_t kApart = 500;
  return signal == received && now_ms() - received_ms < kApart;
}

extern "C" void on_signal(int signal) {
  if (guarded != 0 && same_request(signal)) return;
  if (guarded == 0 || received != 0) {
    constexpr char kText[] = "lamina: stopped by a signal\n";
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kText, sizeof(kText) - 1);
    _exit(128 + signal);
  }
  received_ms = now_ms();
  received = signal;
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  struct sigaction hang_up {};
  sigaction(SIGHUP, nullptr, &hang_up);
  if (hang_up.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);  // the terminal was closed, and no nohup
  signal(SIGPIPE, SIG_IGN);  // a reader that went away is an error of a write,
  signal(SIGXFSZ, SIG_IGN);  // and so is a file that reached its limit
}

int stop_signal() { return received; }

StopGuard::StopGuard() { guarded = 1; }
StopGuard::~StopGuard() { guarded = 0; }

}  // namespace lamina::cli

#include "worker.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "io/json.h"
#include "signals.h"

extern char** environ;

namespace lamina::cli {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

// `input` and `output` of the new process, or -1: this process's own.
pid_t spawn(const std::string& what, const std::vector<std::string>& command,
            const std::vector<std::string>& environment, int input, int output) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (input >= 0) posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output >= 0 ? output : STDERR_FILENO, STDOUT_FILENO);
  std::vector<std::string> all = environment;  // the first of a name counts
  for (char** at = environ; *at != nullptr; ++at) all.emplace_back(*at);
  pid_t pid = -1;
  const int failed =
      posix_spawnp(&pid, command[0].c_str(), &actions, nullptr, pointers(command).data(), pointers(all).data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) throw_error(ErrorCode::io, "cannot start {}: {}: {}", what, command[0], std::strerror(failed));
  return pid;
}

int wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

std::string ending(int status) {
  return WIFSIGNALED(status) ? fmt::format("signal {}", WTERMSIG(status)) : fmt::format("exit {}", WEXITSTATUS(status));
}

struct Pipe {
  int ends[2] = {-1, -1};  // read, write
  Pipe() {
    if (pipe2(ends, O_CLOEXEC) != 0) throw_error(ErrorCode::io, "cannot make a pipe: {}", std::strerror(errno));
  }
  ~Pipe() {
    for (int end : ends)
      if (end >= 0) close(end);
  }
  int take(int end) { return std::exchange(ends[end], -1); }
};

}  // namespace

Worker::Worker(std::string engine, const std::vector<std::string>& command, const std::vector<std::string>& environment)
    : engine_(std::move(engine)) {
  Pipe in, out;
  pid_ = spawn(engine_, command, environment, in.ends[0], out.ends[1]);
  input_ = in.take(1);
  output_ = out.take(0);
}

Worker::~Worker() {
  if (pid_ >= 0) {  // before its input ends, or it has the last word
    kill(pid_, SIGKILL);
    wait_for(pid_);
  }
  close_input();
  if (output_ >= 0) close(output_);
}

void Worker::close_input() {
  if (input_ >= 0) close(std::exchange(input_, -1));
}

// Adds what comes next to said_; false at its end. Wakes up now and then, since a signal may come before it sleeps.
bool Worker::listen() {
  constexpr int kMilliseconds = 200;
  pollfd waiting{output_, POLLIN, 0};
  while (poll(&waiting, 1, kMilliseconds) <= 0)
    if (stop_signal() != 0) throw_error(ErrorCode::io, "{} was stopped by a signal", engine_);
  char bytes[4096];
  const ssize_t count = ::read(output_, bytes, sizeof(bytes));
  if (count > 0) said_.append(bytes, static_cast<size_t>(count));
  return count > 0;
}

Json Worker::read() {
  size_t end = said_.find('\n');
  while (end == std::string::npos && listen()) end = said_.find('\n');
  if (end != std::string::npos) {
    const std::string line = said_.substr(0, end);
    said_.erase(0, end + 1);
    return parse_json(line, engine_);
  }
  const int status = wait_for(std::exchange(pid_, -1));
  throw_error(ErrorCode::io, "{} ended early: expected a line of JSON, got {}", engine_, ending(status));
}

Json Worker::ask() {
  constexpr char kTurn[] = "step\n";
  if (write(input_, kTurn, sizeof(kTurn) - 1) < 0 && errno != EPIPE)
    throw_error(ErrorCode::io, "cannot ask {}: {}", engine_, std::strerror(errno));
  return read();
}

Json Worker::finish() {
  close_input();
  Json last = read();
  wait_for(std::exchange(pid_, -1));
  return last;
}

void run_command(const std::string& what, const std::vector<std::string>& command, const std::string& hint) {
  const int status = wait_for(spawn(what, command, {}, -1, -1));
  if (status != 0) throw Error(ErrorCode::io, fmt::format("{} failed: {}: {}", what, command[0], ending(status)), hint);
}

}  // namespace lamina::cli

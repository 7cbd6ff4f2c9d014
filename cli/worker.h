// A process that works in turns: it answers lines with lines of JSON, and ends when its input does.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "command.h"

namespace lamina::cli {

class Worker {
 public:
  // Starts `command` with `environment` ("NAME=VALUE") over this process's own; what it says on standard error is
  // people's to read. Throws Error(io) that names the engine.
  Worker(std::string engine, const std::vector<std::string>& command, const std::vector<std::string>& environment);
  ~Worker();  // ends it
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  Json read();  // its next line; throws Error(io) with how it ended where it gives none, or where a signal asks to stop
  Json ask();   // a turn
  Json finish();  // no more turns: its last line

 private:
  void close_input();
  bool listen();

  std::string engine_;
  pid_t pid_ = -1;
  int input_ = -1;
  int output_ = -1;
  std::string said_;  // what it has said and nobody has read
};

// Runs a command to its end. Throws Error(io) that names `what`, with the hint, where it does not end with 0.
void run_command(const std::string& what, const std::vector<std::string>& command, const std::string& hint = {});

}  // namespace lamina::cli

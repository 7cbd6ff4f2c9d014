// What a run says about each step: metrics.jsonl, a line of JSON per step, and the same as an event file of
// TensorBoard. When a run goes on from step s, lines after s are cut off; TensorBoard gets a new file whose first event
// takes the later points of older files back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "io/append_file.h"
#include "train/record.h"

namespace lamina {

class MetricsFile {
 public:
  // Keeps the lines of the first `step` steps. Throws Error(io), as all do.
  MetricsFile(const std::string& path, int64_t step);
  void write(const StepRecord& record);
  void sync() { file_.sync(); }
  // Adds the validation that a signal had cut short to the last line, where that is of `step`.
  void add_valid_loss(int64_t step, double valid_loss);

 private:
  std::string path_;
  AppendFile file_;
};

class EventFile {
 public:
  // In the folder `run`, named behind all event files there, whatever the clock says.
  EventFile(const std::string& run, int64_t step);
  void write(const StepRecord& record);
  void write_valid_loss(int64_t step, double valid_loss);

 private:
  double now() const;
  void write_event(int64_t step, const std::string& field);

  double start_;  // seconds since 1970; time goes on from here by a clock that never goes back
  int64_t begin_ns_;
  std::optional<AppendFile> file_;
};

// CRC-32C (Castagnoli), as TFRecord files have it.
uint32_t crc32c(std::string_view data);

}  // namespace lamina

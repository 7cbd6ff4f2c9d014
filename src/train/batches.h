// From a sequence of ids to the rows of each step. Windows lie end to end, the target of a window's last token is the
// first token of the next one, so that an epoch makes every id but the first a target exactly once:
//
//   ids      0 1 2 3 4 5 6 7 8 9         T = 4
//   window 0 |- - - -|                   targets 1 2 3 4
//   window 1         |- - - -|           targets 5 6 7 8
//   window 2                 |-|         targets 9: the short last one
//
// An epoch is a permutation of the windows; a step that an epoch does not fill is short. The rows of a step are a pure
// function of (seed, step): there is no position to save.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "train/step.h"
#include "train/token_stream.h"

namespace lamina {

struct BatchOptions {
  int64_t seq = 1;
  int64_t rows = 1;                   // of one step
  std::optional<uint64_t> seed = {};  // none: the windows come in order
  bool whole_window = true;           // fewer ids than one window and its last target are an error, else fewer than 2
  std::string what = "data";          // names the data in that error
};

class Batches {
 public:
  // Throws Error(invalid) with both numbers for too few ids.
  Batches(TokenStream ids, const BatchOptions& options);

  int64_t windows() const { return windows_; }
  int64_t targets() const { return ids_.size() - 1; }  // of an epoch
  int64_t steps_per_epoch() const { return (windows_ + options_.rows - 1) / options_.rows; }

  // Steps count from 1. Valid until the next call. Allocates nothing.
  std::span<const Row> rows(int64_t step);

 private:
  TokenStream ids_;
  BatchOptions options_;
  int64_t windows_;
  std::vector<int32_t> buffer_;  // (rows, seq + 1)
  std::vector<Row> rows_;
};

}  // namespace lamina

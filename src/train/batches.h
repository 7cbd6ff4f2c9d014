// From sequences of ids to the rows of each step. Windows lie end to end, the target of a window's last token is the
// first token of the next one, so that an epoch makes every id but the first a target exactly once:
//
//   ids      0 1 2 3 4 5 6 7 8 9         T = 4
//   window 0 |- - - -|                   targets 1 2 3 4
//   window 1         |- - - -|           targets 5 6 7 8
//   window 2                 |-|         targets 9: the short last one
//
// An epoch is a permutation of the windows; a step that an epoch does not fill is short. Of several sources each has
// windows and epochs of its own, and every step is full (mixture.h). The rows of a step are a pure function of (seed,
// step): there is no position to save.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "train/mixture.h"
#include "train/step.h"
#include "train/token_stream.h"

namespace lamina {

struct BatchOptions {
  int64_t seq = 1;
  int64_t rows = 1;                   // of one step
  std::optional<uint64_t> seed = {};  // none: the windows come in order
  bool whole_window = true;           // fewer ids than one window and its last target are an error, else fewer than 2
  std::optional<int32_t> document_end =
      {};                     // isolates documents: each ends with this id, and what follows it is no target
  std::string what = "data";  // names the data of a single stream in an error
};

// Takes the targets out that follow the end of a document, and writes where the next ones begin in front of `borders`,
// which has a place for each token. Returns the part that was written.
std::span<const int32_t> isolate_documents(std::span<const int32_t> tokens, int32_t end, std::span<int32_t> targets,
                                           std::span<int32_t> borders);

class Batches {
 public:
  // Throws Error(invalid) that names the source for too few ids, with both numbers, and for ids without any target.
  Batches(std::vector<Source> sources, const BatchOptions& options);
  Batches(TokenStream ids, const BatchOptions& options);

  // An epoch of several sources is as many rows as they have windows together.
  int64_t windows() const { return all_windows_; }
  int64_t steps_per_epoch() const { return (all_windows_ + options_.rows - 1) / options_.rows; }

  // Steps count from 1. Valid until the next call. Allocates nothing.
  std::span<const Row> rows(int64_t step);

 private:
  void fill(int64_t r, size_t source, int64_t index);

  std::vector<Source> sources_;
  std::vector<int64_t> windows_;  // of each source
  int64_t all_windows_ = 0;
  BatchOptions options_;
  Mixture mixture_;
  std::vector<int32_t> ids_;                // (rows, seq + 1)
  std::vector<int32_t> targets_, borders_;  // (rows, seq)
  std::vector<Row> rows_;
};

}  // namespace lamina

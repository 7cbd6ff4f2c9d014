// Rows of ids through the programs `prefill` and `decode`, each row with its own length. Keys and values of what was
// appended stay in the session's caches. It chooses no ids: it gives the logits behind the last id of each row.
//
//   cache of a row   |not used|k0 k1 k2 k3 …|free        |
//                    0        first         first+length  n_positions
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/session.h"

namespace lamina {

class Decoder {
 public:
  // The plan was compiled with generate_batch > 0. Everything is resolved here; appending allocates nothing.
  explicit Decoder(Session& session);

  int64_t rows() const { return rows_; }
  int64_t capacity() const { return capacity_; }  // ids that a row can hold
  int64_t vocab() const { return vocab_; }

  // Row `row` is empty again. Its keys start at place `first` of its cache (left padding; 0 for everyone else).
  void reset(int64_t row, int64_t first = 0);
  int64_t length(int64_t row) const { return state(row).length; }

  // Appends ids[r] to row r; an empty span leaves a row as it is, and so do rows behind the last span. Ids are below
  // vocab(); a row holds at most capacity() - first ids. `poll` is called between the blocks of long prompts; where it
  // throws, every row has to be reset.
  void append(std::span<const std::span<const int32_t>> ids, const std::function<void()>& poll = {});

  // Behind the last id of a row that is not empty: what the next one may be.
  std::span<const float> logits(int64_t row) const;

 private:
  struct Row {
    int64_t first = 0;
    int64_t length = 0;
    std::span<const int32_t> pending;
  };
  struct Program {
    ProgramId id;
    int64_t block;  // tokens of a row in one run
    std::span<int32_t> tokens, positions, past, count, first_key, last;
    std::span<const float> logits;
  };

  Program resolve(const char* name);
  const Row& state(int64_t row) const;
  void run(Program& program);

  Session& session_;
  int64_t rows_ = 0, capacity_ = 0, vocab_ = 0;
  Program prefill_, decode_;
  std::vector<Row> state_;
  std::vector<float> logits_;  // (rows, V): a program gives only those of rows that it moved
};

}  // namespace lamina

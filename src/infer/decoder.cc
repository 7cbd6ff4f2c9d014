#include "infer/decoder.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace lamina {

Decoder::Decoder(Session& session) : session_(session), prefill_(resolve("prefill")), decode_(resolve("decode")) {
  const Shape& logits = session.tensor("decode.logits").shape;
  rows_ = logits[0];
  vocab_ = logits[1];
  capacity_ = session.tensor("cache.0.k").shape[1];
  state_.resize(static_cast<size_t>(rows_));
  logits_.resize(static_cast<size_t>(rows_ * vocab_));
}

Decoder::Program Decoder::resolve(const char* name) {
  const std::string prefix = std::string(name) + ".";
  const auto ints = [&](const char* input) { return session_.ints(prefix + input); };
  Program program;
  program.id = session_.program(name);
  if (program.id == ProgramId::none) throw_error(ErrorCode::invalid, "the plan cannot generate: no program {}", name);
  program.block = session_.tensor(prefix + "tokens").shape[1];
  program.tokens = ints("tokens");
  program.positions = ints("positions");
  program.past = ints("past");
  program.count = ints("count");
  program.first_key = ints("first_key");
  program.last = ints("last");
  program.logits = session_.floats(prefix + "logits");
  return program;
}

const Decoder::Row& Decoder::state(int64_t row) const {
  LAMINA_CHECK(row >= 0 && row < rows_, "row {} of {}", row, rows_);
  return state_[static_cast<size_t>(row)];
}

void Decoder::reset(int64_t row, int64_t first) {
  LAMINA_CHECK(row >= 0 && row < rows_ && first >= 0 && first < capacity_, "row {}, first place {}", row, first);
  state_[static_cast<size_t>(row)] = {first, 0, {}};
}

void Decoder::append(std::span<const std::span<const int32_t>> ids, const std::function<void()>& poll) {
  LAMINA_CHECK(static_cast<int64_t>(ids.size()) <= rows_, "{} rows, the plan has {}", ids.size(), rows_);
  size_t longest = 0;
  for (size_t r = 0; r < ids.size(); ++r) {
    Row& row = state_[r];
    LAMINA_CHECK(row.first + row.length + static_cast<int64_t>(ids[r].size()) <= capacity_, "row {} is full", r);
    for (int32_t id : ids[r]) LAMINA_CHECK(id >= 0 && id < vocab_, "id {} of {}", id, vocab_);
    row.pending = ids[r];
    longest = std::max(longest, ids[r].size());
  }
  while (longest > 0) {
    Program& program = longest > 1 ? prefill_ : decode_;
    run(program);
    longest -= std::min(longest, static_cast<size_t>(program.block));
    if (longest > 0 && poll) poll();
  }
}

// Moves each row by at most a block. Rows without pending ids have count 0: nothing enters their cache and their logits
// mean nothing, but what the program reads for them has to be valid.
void Decoder::run(Program& program) {
  const auto block = static_cast<size_t>(program.block);
  for (size_t r = 0; r < state_.size(); ++r) {
    const Row& row = state_[r];
    const size_t count = std::min(row.pending.size(), block);
    for (size_t i = 0; i < block; ++i) {
      program.tokens[r * block + i] = i < count ? row.pending[i] : 0;
      program.positions[r * block + i] = i < count ? static_cast<int32_t>(row.length) + static_cast<int32_t>(i) : 0;
    }
    program.past[r] = count > 0 ? static_cast<int32_t>(row.first + row.length) : 0;
    program.count[r] = static_cast<int32_t>(count);
    program.first_key[r] = count > 0 ? static_cast<int32_t>(row.first) : 0;
    program.last[r] = count > 0 ? static_cast<int32_t>(count) - 1 : 0;
  }
  session_.run(program.id);
  const auto V = static_cast<size_t>(vocab_);
  for (size_t r = 0; r < state_.size(); ++r) {
    Row& row = state_[r];
    if (row.pending.empty()) continue;
    const size_t count = std::min(row.pending.size(), block);
    row.length += static_cast<int64_t>(count);
    row.pending = row.pending.subspan(count);
    if (row.pending.empty()) std::copy_n(program.logits.data() + r * V, V, logits_.data() + r * V);
  }
}

std::span<const float> Decoder::logits(int64_t row) const {
  LAMINA_CHECK(state(row).length > 0, "row {} is empty", row);
  return std::span(logits_).subspan(static_cast<size_t>(row * vocab_), static_cast<size_t>(vocab_));
}

}  // namespace lamina

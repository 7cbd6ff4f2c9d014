#include "train/batches.h"

#include <algorithm>

#include "base/error.h"
#include "base/rng.h"
#include "train/permutation.h"

namespace lamina {

Batches::Batches(TokenStream ids, int64_t seq, int64_t rows_per_step, std::optional<uint64_t> seed, const char* what)
    : ids_(std::move(ids)), seq_(seq), rows_per_step_(rows_per_step), seed_(seed) {
  if (ids_.size() < seq + 1)
    throw_error(ErrorCode::invalid, "not enough ids: {}, expected at least {} (a window of {} and its last target), got {}",
                what, seq + 1, seq, ids_.size());
  windows_ = (targets() + seq - 1) / seq;
  buffer_.resize(static_cast<size_t>(rows_per_step * (seq + 1)));
  rows_.resize(static_cast<size_t>(rows_per_step));
}

std::span<const Row> Batches::rows(int64_t step) {
  const int64_t epoch = (step - 1) / steps_per_epoch();
  const int64_t first = (step - 1) % steps_per_epoch() * rows_per_step_;
  const int64_t count = std::min(rows_per_step_, windows_ - first);
  const Permutation order(static_cast<uint64_t>(windows_),
                          hash_combine(mix64(seed_.value_or(0)), static_cast<uint64_t>(epoch)));
  for (int64_t r = 0; r < count; ++r) {
    const uint64_t place = static_cast<uint64_t>(first + r);
    const int64_t begin = static_cast<int64_t>(seed_ ? order(place) : place) * seq_;
    const size_t tokens = static_cast<size_t>(std::min(seq_, targets() - begin));
    const std::span<int32_t> own = std::span(buffer_).subspan(static_cast<size_t>(r * (seq_ + 1)), tokens + 1);
    ids_.read(begin, own);
    rows_[static_cast<size_t>(r)] = {own.first(tokens), own.subspan(1)};
  }
  return std::span<const Row>(rows_).first(static_cast<size_t>(count));
}

}  // namespace lamina

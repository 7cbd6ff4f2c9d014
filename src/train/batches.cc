#include "train/batches.h"

#include <algorithm>

#include "base/error.h"
#include "base/rng.h"
#include "train/permutation.h"

namespace lamina {

Batches::Batches(TokenStream ids, const BatchOptions& options) : ids_(std::move(ids)), options_(options) {
  const int64_t seq = options.seq, least = options.whole_window ? seq + 1 : 2;
  if (ids_.size() < least)
    throw_error(ErrorCode::invalid, "not enough ids: {}, expected at least {} (a window and its last target), got {}",
                options.what, least, ids_.size());
  windows_ = (targets() + seq - 1) / seq;
  buffer_.resize(static_cast<size_t>(options.rows * (seq + 1)));
  rows_.resize(static_cast<size_t>(options.rows));
}

std::span<const Row> Batches::rows(int64_t step) {
  const int64_t seq = options_.seq;
  const int64_t epoch = (step - 1) / steps_per_epoch();
  const int64_t first = (step - 1) % steps_per_epoch() * options_.rows;
  const int64_t count = std::min(options_.rows, windows_ - first);
  const Permutation order(static_cast<uint64_t>(windows_),
                          hash_combine(mix64(options_.seed.value_or(0)), static_cast<uint64_t>(epoch)));
  for (int64_t r = 0; r < count; ++r) {
    const uint64_t place = static_cast<uint64_t>(first + r);
    const int64_t begin = static_cast<int64_t>(options_.seed ? order(place) : place) * seq;
    const size_t tokens = static_cast<size_t>(std::min(seq, targets() - begin));
    const std::span<int32_t> own = std::span(buffer_).subspan(static_cast<size_t>(r * (seq + 1)), tokens + 1);
    ids_.read(begin, own);
    rows_[static_cast<size_t>(r)] = {own.first(tokens), own.subspan(1)};
  }
  return std::span<const Row>(rows_).first(static_cast<size_t>(count));
}

}  // namespace lamina

#include "train/batches.h"

#include <algorithm>

#include "base/error.h"
#include "base/rng.h"
#include "train/permutation.h"

namespace lamina {
namespace {

std::vector<double> weights_of(const std::vector<Source>& sources) {
  std::vector<double> out;
  for (const Source& source : sources) out.push_back(source.weight);
  return out;
}

std::vector<Source> one_source(std::string name, TokenStream ids) {
  std::vector<Source> out;
  out.push_back({std::move(name), std::move(ids), 1.0});
  return out;
}

// Whether anything is predicted: an id, not the last one, that does not end a document.
bool has_target(const TokenStream& ids, int32_t document_end) {
  std::vector<int32_t> block(4096);
  for (int64_t at = 0; at < ids.size() - 1; at += std::ssize(block)) {
    block.resize(static_cast<size_t>(std::min<int64_t>(std::ssize(block), ids.size() - 1 - at)));
    ids.read(at, block);
    if (std::any_of(block.begin(), block.end(), [&](int32_t id) { return id != document_end; })) return true;
  }
  return false;
}

}  // namespace

std::span<const int32_t> isolate_documents(std::span<const int32_t> tokens, int32_t end, std::span<int32_t> targets,
                                           std::span<int32_t> borders) {
  size_t found = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] != end) continue;
    targets[i] = kIgnored;
    if (i + 1 < tokens.size()) borders[found++] = static_cast<int32_t>(i + 1);
  }
  return borders.first(found);
}

Batches::Batches(TokenStream ids, const BatchOptions& options)
    : Batches(one_source(options.what, std::move(ids)), options) {}

Batches::Batches(std::vector<Source> sources, const BatchOptions& options)
    : sources_(std::move(sources)), options_(options), mixture_(weights_of(sources_), options.seed.value_or(0)) {
  const int64_t seq = options.seq, least = options.whole_window ? seq + 1 : 2;
  for (const Source& source : sources_) {
    if (source.ids.size() < least)
      throw_error(ErrorCode::invalid, "not enough ids: {}, expected at least {} (a window and its last target), got {}",
                  source.name, least, source.ids.size());
    if (options.document_end && !has_target(source.ids, *options.document_end))
      throw_error(ErrorCode::invalid, "nothing to predict: {}, expected a document of 2 ids or more, got none",
                  source.name);
    windows_.push_back((source.ids.size() - 1 + seq - 1) / seq);
    all_windows_ += windows_.back();
  }
  if (sources_.size() == 1) options_.rows = std::min(options.rows, all_windows_);  // a step never holds more
  ids_.resize(static_cast<size_t>(options_.rows * (seq + 1)));
  targets_.resize(static_cast<size_t>(options_.rows * seq));
  borders_.resize(targets_.size());
  rows_.resize(static_cast<size_t>(options_.rows));
}

std::span<const Row> Batches::rows(int64_t step) {
  int64_t count = options_.rows;
  if (sources_.size() == 1) {
    const int64_t epoch = (step - 1) / steps_per_epoch();
    const int64_t first = (step - 1) % steps_per_epoch() * options_.rows;
    count = std::min(count, all_windows_ - first);
    for (int64_t r = 0; r < count; ++r) fill(r, 0, epoch * all_windows_ + first + r);
  } else {
    for (int64_t r = 0; r < count; ++r) {
      const Mixture::Draw draw = mixture_((step - 1) * options_.rows + r);
      fill(r, draw.source, draw.index);
    }
  }
  return std::span<const Row>(rows_).first(static_cast<size_t>(count));
}

// Row r becomes window `index` of a source, counted through all epochs of that source.
void Batches::fill(int64_t r, size_t source, int64_t index) {
  const int64_t seq = options_.seq, windows = windows_[source];
  const TokenStream& ids = sources_[source].ids;
  int64_t place = index % windows;
  if (options_.seed) {
    const uint64_t key = source == 0 ? mix64(*options_.seed) : hash_combine(mix64(*options_.seed), source);
    const Permutation order(static_cast<uint64_t>(windows), hash_combine(key, static_cast<uint64_t>(index / windows)));
    place = static_cast<int64_t>(order(static_cast<uint64_t>(place)));
  }
  const int64_t begin = place * seq;
  const auto count = static_cast<size_t>(std::min(seq, ids.size() - 1 - begin));
  const std::span<int32_t> own = std::span(ids_).subspan(static_cast<size_t>(r * (seq + 1)), count + 1);
  const std::span<int32_t> targets = std::span(targets_).subspan(static_cast<size_t>(r * seq), count);
  ids.read(begin, own);
  std::copy(own.begin() + 1, own.end(), targets.begin());
  Row& row = rows_[static_cast<size_t>(r)];
  row = {.tokens = own.first(count), .targets = targets};
  if (options_.document_end)
    row.borders = isolate_documents(row.tokens, *options_.document_end, targets,
                                    std::span(borders_).subspan(static_cast<size_t>(r * seq), count));
}

}  // namespace lamina

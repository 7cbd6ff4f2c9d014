#include "train/attention_mask.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"
#include "io/widen.h"
#include "train/step.h"

namespace lamina {
namespace {

template <typename T>
void copy_strided(const void* data, int64_t first, int64_t stride, std::span<double> out) {
  const T* from = static_cast<const T*>(data) + first;
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<double>(from[static_cast<int64_t>(i) * stride]);
}

void widen_strided(const char* dtype, const void* data, int64_t first, int64_t stride, std::span<double> out) {
  std::vector<uint16_t> words(out.size());
  const uint16_t* from = static_cast<const uint16_t*>(data) + first;
  for (size_t i = 0; i < words.size(); ++i) words[i] = from[static_cast<int64_t>(i) * stride];
  std::vector<float> wide(words.size());
  widen(dtype, std::as_bytes(std::span(words)), wide.data());
  std::copy(wide.begin(), wide.end(), out.begin());
}

void copy_elements(const MaskView& mask, int64_t first, int64_t stride, std::span<double> out) {
  switch (mask.type) {
    case MaskType::i8: return copy_strided<int8_t>(mask.data, first, stride, out);
    case MaskType::i16: return copy_strided<int16_t>(mask.data, first, stride, out);
    case MaskType::i32: return copy_strided<int32_t>(mask.data, first, stride, out);
    case MaskType::i64: return copy_strided<int64_t>(mask.data, first, stride, out);
    case MaskType::u8: return copy_strided<uint8_t>(mask.data, first, stride, out);
    case MaskType::u16: return copy_strided<uint16_t>(mask.data, first, stride, out);
    case MaskType::u32: return copy_strided<uint32_t>(mask.data, first, stride, out);
    case MaskType::u64: return copy_strided<uint64_t>(mask.data, first, stride, out);
    case MaskType::f16: return widen_strided("F16", mask.data, first, stride, out);
    case MaskType::bf16: return widen_strided("BF16", mask.data, first, stride, out);
    case MaskType::f32: return copy_strided<float>(mask.data, first, stride, out);
    case MaskType::f64: return copy_strided<double>(mask.data, first, stride, out);
  }
}

// A mask of any form as (rows, queries, keys); `queries` is 1 where one row of keys holds for all of them.
class MaskReader {
 public:
  MaskReader(const MaskView& mask, int64_t rows, int64_t width) : mask_(mask), rows_(rows), width_(width) {
    set_axes();
    values_.resize(static_cast<size_t>(width));
    visible_.resize(static_cast<size_t>(width));
    additive_ = mask.type >= MaskType::f16 && !holds_a_one();
    if (rows == width && mask.shape.size() == 2 && rows > 1) refuse_causal();
  }

  // Of all rows alike.
  bool shared() const { return row_stride_ == 0; }
  bool one_query() const { return queries_ == 1; }

  // A byte for each key: 1 visible, 0 masked. Valid until the next call.
  std::span<const uint8_t> read(int64_t row, int64_t query) {
    load(row, query);
    for (size_t key = 0; key < values_.size(); ++key) {
      const double value = values_[key];
      const bool visible = value == (additive_ ? 0.0 : 1.0);
      if (!visible && !(additive_ ? value <= kMasked : value == 0.0)) refuse_value(row, query, key);
      visible_[key] = visible ? 1 : 0;
    }
    return visible_;
  }

  std::string where(int64_t row, int64_t query) const {
    return one_query() ? fmt::format("row {}", row) : fmt::format("row {}, query {}", row, query);
  }

 private:
  // (T, T) and (B, T) are told apart by the first size, so a mask of one token for each row is the second.
  void set_axes() {
    const std::vector<int64_t>& shape = mask_.shape;
    const size_t rank = shape.size();
    LAMINA_CHECK(mask_.strides.size() == rank, "{} strides of {} dimensions", mask_.strides.size(), rank);
    const bool plain = rank == 2 && (shape[0] == rows_ || shape[0] == 1);
    const bool square = rank == 2 && !plain && shape[0] == width_;
    const bool deep = rank == 3 || (rank == 4 && shape[1] == 1);
    const auto fits = [&](int64_t size, int64_t whole) { return size == whole || size == 1; };
    if (rank < 2 || shape[rank - 1] != width_ || !(plain || square || deep) ||
        (deep && !(fits(shape[0], rows_) && fits(shape[rank - 2], width_))))
      throw_error(ErrorCode::invalid,
                  "attention mask has the wrong shape: expected ({0}, {1}), ({0}, 1, 1, {1}), ({1}, {1}), "
                  "({0}, {1}, {1}) or ({0}, 1, {1}, {1}), got ({2})",
                  rows_, width_, fmt::join(shape, ", "));
    query_stride_ = plain || shape[rank - 2] == 1 ? 0 : mask_.strides[rank - 2];
    queries_ = query_stride_ == 0 ? 1 : width_;  // an expanded array too has one row of keys
    row_stride_ = square || shape[0] == 1 ? 0 : mask_.strides[0];
  }

  void load(int64_t row, int64_t query) {
    copy_elements(mask_, row * row_stride_ + query * query_stride_, mask_.strides.back(), values_);
  }

  bool holds_a_one() {
    for (int64_t row = 0; row < (shared() ? 1 : rows_); ++row) {
      for (int64_t query = 0; query < queries_; ++query) {
        load(row, query);
        if (std::find(values_.begin(), values_.end(), 1.0) != values_.end()) return true;
      }
    }
    return false;
  }

  // As many rows as tokens: a (T, T) mask that holds causality would pass for one row longer than the other.
  void refuse_causal() {
    for (int64_t row = 0; row < rows_; ++row) {
      const std::span<const uint8_t> visible = read(row, 0);
      const auto behind = visible.begin() + row + 1;
      if (visible[static_cast<size_t>(row)] == 0 || std::find(behind, visible.end(), 1) != visible.end()) return;
    }
    throw_error(ErrorCode::invalid,
                "attention mask can be read in two ways: shape ({0}, {0}), expected ({0}, 1, 1, {0}) for the tokens of "
                "each row or (1, {0}, {0}) for what each query sees, got a triangle",
                width_);
  }

  [[noreturn]] void refuse_value(int64_t row, int64_t query, size_t key) const {
    throw_error(ErrorCode::invalid, "attention mask has a value without meaning: {}, key {}, expected {}, got {}",
                where(row, query), key, additive_ ? "0 (visible), or -10000 and less (masked)" : "0 or 1",
                values_[key]);
  }

  const MaskView& mask_;
  int64_t rows_, width_;
  int64_t queries_ = 1, query_stride_ = 0, row_stride_ = 0;
  bool additive_ = false;
  std::vector<double> values_;
  std::vector<uint8_t> visible_;
};

// The place of the first such byte among the first `count`, or `count`.
int64_t find_byte(std::span<const uint8_t> bytes, uint8_t wanted, int64_t from, int64_t count) {
  const void* found = std::memchr(bytes.data() + from, wanted, static_cast<size_t>(count - from));
  return found == nullptr ? count : static_cast<const uint8_t*>(found) - bytes.data();
}

// One row: the run of keys that each query sees.
class RowOfRuns {
 public:
  RowOfRuns(MaskReader& reader, int64_t row, std::span<int32_t> key_begin)
      : reader_(reader), row_(row), key_begin_(key_begin) {}

  void fill() {
    std::span<const uint8_t> visible;
    for (int64_t query = 0; query < std::ssize(key_begin_); ++query) {
      if (query == 0 || !reader_.one_query()) visible = reader_.read(row_, query);
      key_begin_[static_cast<size_t>(query)] = static_cast<int32_t>(first_of_run(visible, query));
    }
    for (const int64_t place : unseen_) check_unseen(place);
  }

 private:
  int64_t first_of_run(std::span<const uint8_t> visible, int64_t query) {
    const int64_t first = find_byte(visible, 1, 0, query + 1);
    if (first > query) return first;  // one behind: it sees nothing
    if (visible[static_cast<size_t>(query)] == 0) {
      unseen_.push_back(query);
      return query + 1;
    }
    const int64_t hole = find_byte(visible, 0, first, query + 1);
    if (hole <= query)
      throw_error(ErrorCode::invalid,
                  "attention mask has a hole: row {}, query {}, key {}, expected all keys from {} to {} visible, got "
                  "this one masked",
                  row_, query, hole, first, query);
    return first;
  }

  // A place that does not see itself counts as padding, which changes nothing for others only if none of them sees it.
  void check_unseen(int64_t place) const {
    for (int64_t query = place + 1; query < std::ssize(key_begin_); ++query)
      if (key_begin_[static_cast<size_t>(query)] <= place)
        throw_error(
            ErrorCode::invalid,
            "attention mask has a hole: row {}, query {}, key {}, expected a query that sees itself or nothing, "
            "since query {} sees it, got only keys before it visible",
            row_, place, place, query);
  }

  MaskReader& reader_;
  int64_t row_;
  std::span<int32_t> key_begin_;
  std::vector<int64_t> unseen_;
};

}  // namespace

std::vector<int32_t> key_begin_of(const MaskView& mask, int64_t rows, int64_t width) {
  MaskReader reader(mask, rows, width);
  const auto count = static_cast<size_t>(width);
  std::vector<int32_t> out(static_cast<size_t>(rows) * count);
  for (int64_t row = 0; row < rows; ++row) {
    const std::span<int32_t> own = std::span(out).subspan(static_cast<size_t>(row) * count, count);
    if (row > 0 && reader.shared())
      std::copy_n(out.begin(), count, own.begin());
    else
      RowOfRuns(reader, row, own).fill();
  }
  return out;
}

void hide_targets(std::span<const int32_t> key_begin, std::span<int32_t> targets) {
  const bool next_ids = key_begin.size() > targets.size();
  for (size_t i = 0; i < targets.size(); ++i) {
    const auto place = static_cast<int32_t>(i);
    if (key_begin[i] > place || (next_ids && key_begin[i + 1] > place)) targets[i] = kIgnored;
  }
}

}  // namespace lamina

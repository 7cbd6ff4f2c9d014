#include "io/tensor_content.h"

#include <libdeflate.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "io/element_type.h"
#include "io/quote.h"
#include "io/utf8.h"

namespace lamina {
namespace {

constexpr size_t kPart = size_t{4} << 20;

// Copies `count` elements that lie `stride` bytes apart.
void copy_strided(const std::byte* from, int64_t stride, int64_t count, size_t width, std::byte* to) {
  for (int64_t i = 0; i < count; ++i, from += stride, to += width) std::memcpy(to, from, width);
}

// Walks the rows (all dimensions but the last) of a strided tensor in order.
class RowWalk {
 public:
  RowWalk(const StoredTensor& tensor, int64_t width) : tensor_(tensor), width_(width), index_(tensor.shape.size()) {}

  const std::byte* row() const { return tensor_.pieces.front().data() + offset_ * width_; }

  void advance() {
    for (size_t d = index_.size() - 1; d-- > 0;) {
      offset_ += tensor_.strides[d];
      if (++index_[d] < tensor_.shape[d]) return;
      offset_ -= tensor_.strides[d] * index_[d];
      index_[d] = 0;
    }
  }

 private:
  const StoredTensor& tensor_;
  int64_t width_;
  std::vector<int64_t> index_;
  int64_t offset_ = 0;  // in elements
};

// Strides mean a rank of 1 at least, and elements: what is empty or a scalar is packed.
void gather(const StoredTensor& tensor, const PartSink& sink) {
  const ElementType* type = find_type(&ElementType::name, tensor.dtype);
  LAMINA_CHECK(type != nullptr && tensor.pieces.size() == 1, "strided tensor {}", tensor.name);
  const auto width = static_cast<size_t>(type->bytes);
  const int64_t columns = tensor.shape.back(), stride = tensor.strides.back() * type->bytes;
  const int64_t rows = tensor.bytes / type->bytes / columns;
  std::vector<std::byte> buffer(std::min(kPart, static_cast<size_t>(tensor.bytes)));
  size_t filled = 0;
  RowWalk walk(tensor, type->bytes);
  for (int64_t row = 0; row < rows; ++row, walk.advance()) {
    for (int64_t at = 0; at < columns;) {
      const auto n = std::min(columns - at, static_cast<int64_t>((buffer.size() - filled) / width));
      copy_strided(walk.row() + at * stride, stride, n, width, buffer.data() + filled);
      filled += static_cast<size_t>(n) * width;
      at += n;
      if (buffer.size() - filled >= width) continue;
      sink(std::span(buffer).first(filled));
      filled = 0;
    }
  }
  if (filled > 0) sink(std::span(buffer).first(filled));
}

// MindSpore's sum of a safetensors file: over names in sorted order, each followed by its bytes.
void check_mindspore_sum(const TensorContent& content, const std::string& stated, const std::string& where) {
  std::vector<const StoredTensor*> sorted;
  for (const StoredTensor& tensor : content.tensors) sorted.push_back(&tensor);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
  uint32_t sum = 0;
  for (const StoredTensor* tensor : sorted) {
    sum = crc32(std::as_bytes(std::span(tensor->name)), sum);
    for (const auto& piece : tensor->pieces) sum = crc32(piece, sum);
  }
  if (std::to_string(sum) != stated)
    throw_error(ErrorCode::invalid, "damaged file: {}: crc_num, expected {} over its tensors, got {}", where,
                quote_text(stated, 40), sum);
}

void check_names(std::vector<std::string_view> names, const std::string& where) {
  for (const std::string_view name : names)
    if (name.size() > kLongestName || find_invalid_utf8(name) != kNoFault || name.find('\0') != std::string_view::npos)
      throw_error(ErrorCode::invalid,
                  "bad name of a tensor: {}: expected UTF-8 of at most {} bytes, none of them zero, got {} bytes {}",
                  where, kLongestName, name.size(), quote_text(name));
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end())
    throw_error(ErrorCode::invalid, "duplicate name: {}: expected each name once, got {} twice", where,
                quote_text(*twice));
}

}  // namespace

std::optional<int64_t> packed_bytes(std::span<const int64_t> shape, int64_t width) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  int64_t product = width;
  for (const int64_t size : shape)
    if (size < 0 || __builtin_mul_overflow(product, size, &product)) return std::nullopt;
  return product;
}

void for_each_part(const StoredTensor& tensor, const PartSink& sink) {
  if (!tensor.strides.empty()) return gather(tensor, sink);
  for (const auto& piece : tensor.pieces)
    for (size_t at = 0; at < piece.size(); at += kPart) sink(piece.subspan(at, std::min(kPart, piece.size() - at)));
}

std::span<const std::byte> packed_data(const StoredTensor& tensor, std::vector<std::byte>& room) {
  if (tensor.strides.empty() && tensor.pieces.size() == 1) return tensor.pieces[0];
  room.clear();
  room.reserve(static_cast<size_t>(tensor.bytes));
  for_each_part(tensor, [&](std::span<const std::byte> part) { room.insert(room.end(), part.begin(), part.end()); });
  return room;
}

void check_names(const TensorContent& content, const std::string& where) {
  std::vector<std::string_view> names;
  names.reserve(content.tensors.size() + content.values.size());
  for (const StoredTensor& tensor : content.tensors) names.push_back(tensor.name);
  for (const StoredValue& value : content.values) names.push_back(value.name);
  check_names(std::move(names), where);
}

void check_names(const std::vector<TensorEntry>& entries, const std::string& where) {
  std::vector<std::string_view> names;
  names.reserve(entries.size());
  for (const TensorEntry& entry : entries) names.push_back(entry.name);
  check_names(std::move(names), where);
}

void check_sums(const TensorContent& content, const std::string& where) {
  for (const StoredSum& sum : content.sums) {
    const uint32_t found = crc32(sum.bytes);
    if (found != sum.crc32)
      throw_error(ErrorCode::invalid, "damaged file: {}: CRC-32 of {}, expected {:08x}, got {:08x}", where, sum.of,
                  sum.crc32, found);
  }
  const auto stated = content.metadata.find("crc_num");
  if (content.format == "safetensors" && stated != content.metadata.end())
    check_mindspore_sum(content, stated->second, where);
}

uint32_t crc32(std::span<const std::byte> bytes, uint32_t before) {
  return libdeflate_crc32(before, bytes.data(), bytes.size());
}

}  // namespace lamina

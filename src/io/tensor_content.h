// What any file of tensors holds, whatever its format: named arrays and a few plain values. A view: it owns names and
// shapes, and its bytes are those of a mapped file. It knows no model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace lamina {

// Bounds on what a stranger's file may make a reader build, far above any real model.
constexpr int64_t kMaxTensors = int64_t{1} << 18;
constexpr size_t kMaxRank = 32;
constexpr size_t kLongestName = 4096;  // bytes

// A tensor without its numbers.
struct TensorEntry {
  std::string name;
  std::string dtype;           // as safetensors spells it: "F32", "BF16", …
  std::vector<int64_t> shape;  // empty: a scalar
};

// Tensors that share storage (a tied head) view the same bytes: their pieces begin at one address.
struct StoredTensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // in elements, never negative; empty: packed, the last dimension fastest
  std::vector<std::span<const std::byte>>
      pieces;         // packed: joined they are the tensor; else one, first to last element
  int64_t bytes = 0;  // when packed
};

// A number, text or truth value beside the tensors. Nested names have dots between them, places of a list are numbers:
// "optimizer.param_groups.0.betas.1". monostate: Python's None.
struct StoredValue {
  std::string name;
  std::variant<std::monostate, bool, int64_t, double, std::string> value;
};

// CRC-32 that the file states of some of its own bytes.
struct StoredSum {
  std::string of;
  std::span<const std::byte> bytes;
  uint32_t crc32;
};

struct TensorContent {
  std::string format;                 // "safetensors", "torch-zip", …: the name in io/formats.cc
  std::vector<StoredTensor> tensors;  // in the order of the file, or of the dictionary that names them
  std::vector<StoredValue> values;
  std::map<std::string, std::string> metadata;  // of formats that have texts for the whole file
  std::vector<StoredSum> sums;
};

// Π shape × width, in the unit of `width`, or nothing where it goes beyond 2^63 - 1. A zero dimension makes it 0,
// whatever the others are.
std::optional<int64_t> packed_bytes(std::span<const int64_t> shape, int64_t width);

// Calls `sink` with the tensor's packed bytes in order, some megabytes at a time: where they lie if they are packed,
// gathered into a buffer if not. A part is valid during the call, and for packed tensors as long as the file.
using PartSink = std::function<void(std::span<const std::byte>)>;
void for_each_part(const StoredTensor& tensor, const PartSink& sink);

// All packed bytes at once: where they lie if they are in one piece, gathered into `room` if not.
std::span<const std::byte> packed_data(const StoredTensor& tensor, std::vector<std::byte>& room);

// Throws Error(invalid) that names the file where a name comes twice, is no UTF-8 or holds a zero byte.
void check_names(const TensorContent& content, const std::string& where);
void check_names(const std::vector<TensorEntry>& entries, const std::string& where);

// Reads all bytes that the file states a sum of. Throws Error(invalid) where one is wrong.
void check_sums(const TensorContent& content, const std::string& where);

// CRC-32 as zip and zlib have it, going on from `before`.
uint32_t crc32(std::span<const std::byte> bytes, uint32_t before = 0);

}  // namespace lamina

// safetensors: eight bytes of header length, a JSON header, then raw little-endian data. The reader believes nothing
// that it has not checked and copies no data; the writer streams. Neither knows what a tensor is for.
//
//   | length u64 | {"__metadata__":{…},"name":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},…}   | data |
//   0            8                                                                        8 + length          end
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_map.h"
#include "io/atomic_file.h"
#include "io/tensor_content.h"

namespace lamina {

struct SafetensorsTensor {
  std::string name;
  std::string dtype;                 // as the format spells it: "F32", "BF16", …
  std::vector<int64_t> shape;        // empty: a scalar
  std::span<const std::byte> bytes;  // not aligned to anything
};

struct Safetensors {
  std::vector<SafetensorsTensor> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
  int64_t data_begin = 0;  // offset of the data in the file
};

struct SafetensorsLimits {
  int64_t header_bytes = 100000000;  // the cap of the reference implementation
};

// Bits of one element, 0 for a type that the format does not have.
int64_t safetensors_bits(std::string_view dtype);

// Checks everything and views the tensors in `file`. Throws Error(invalid) that names the file and the tensor. The
// memory used is in proportion to the header that is really there.
Safetensors parse_safetensors(std::span<const std::byte> file, const std::string& where,
                              const SafetensorsLimits& limits = {});

// The same as what any file of tensors holds.
TensorContent parse_safetensors_content(std::span<const std::byte> file, const std::string& where);

// A mapped file and its tensors.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path, const SafetensorsLimits& limits = {});
  const std::string& path() const { return map_.path(); }
  const std::vector<SafetensorsTensor>& tensors() const { return content_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return content_.metadata; }
  const SafetensorsTensor* find(std::string_view name) const;  // null where there is none
  void forget(const SafetensorsTensor& tensor) const;          // its pages leave the process until they are read again

 private:
  FileMap map_;
  Safetensors content_;
  std::vector<size_t> by_name_;
};

int64_t safetensors_bytes(const TensorEntry& entry);

// Writes the header at once and then takes the data in the order of the entries, cut anywhere. The same entries give
// the same bytes; "format" is "pt" unless the metadata says otherwise. The caller commits the file.
class SafetensorsWriter {
 public:
  SafetensorsWriter(AtomicFile& file, const std::vector<TensorEntry>& entries,
                    std::map<std::string, std::string> metadata = {});
  void write(std::span<const std::byte> bytes);
  void finish();  // all announced bytes must be there

 private:
  AtomicFile& file_;
  int64_t missing_ = 0;
};

}  // namespace lamina

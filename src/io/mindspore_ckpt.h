// MindSpore's .ckpt: a row of records of protocol buffers without magic or header, one for each parameter or part of
// one.
//
//   record   0x0A, length, Value { 1 tag: name   2 tensor { 1 dims   2 tensor_type   3 tensor_content } }
//   trailer  "crc_num" and ten bytes, big-endian: the CRC-32 of all before; optional
//
// A tensor above 512 MiB is several records in a row under one name, each with all its dims. MindSpore checks no
// lengths; this reader checks all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/atomic_file.h"
#include "io/tensor_content.h"

namespace lamina {

// Whether the bytes begin as such a file does, or as one that MindSpore encrypted.
bool looks_like_ckpt(std::span<const std::byte> file);

// Texts (of append_dict) become values, all else tensors. Throws Error(invalid) that names `where` and the tensor.
TensorContent parse_ckpt(std::span<const std::byte> file, const std::string& where);

struct CkptOptions {
  bool crc = true;
  int64_t chunk = int64_t{512} << 20;  // bytes of a record's content
};

// Writes records and takes their data in the order of the entries, cut anywhere. MindSpore loads what it writes, so
// entries whose name or type MindSpore does not know are refused before anything is written: Error(unsupported). The
// caller commits the file.
class CkptWriter {
 public:
  CkptWriter(AtomicFile& file, std::vector<TensorEntry> entries, const CkptOptions& options = {});
  void write(std::span<const std::byte> bytes);
  void finish();  // all announced bytes must be there

 private:
  void begin();  // writes what stands before data until data is due
  void put(std::span<const std::byte> bytes);

  AtomicFile& file_;
  std::vector<TensorEntry> entries_;
  CkptOptions options_;
  size_t next_ = 0;      // the entry whose record is written next
  int64_t left_ = 0;     // bytes of its data that no record has announced yet
  int64_t missing_ = 0;  // bytes of the record that are still to come
  uint32_t sum_ = 0;
};

}  // namespace lamina

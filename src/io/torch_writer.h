// A file as torch.save writes it since 1.6, that torch.load(weights_only=True) takes: one flat dictionary of tensors,
// or the state of an optimizer, in a zip archive with every storage at a multiple of 64 bytes. The same entries and
// bytes give the same file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/atomic_file.h"
#include "io/tensor_content.h"

namespace lamina {

struct TorchOptions {
  int64_t wide = 0xFFFFFFFF;  // sizes and places from here on are written as zip64
  // Parameters of each group of an optimizer: the file is then what torch.save writes of an AdamW's state_dict(), and
  // the entries are "state.0.step", "state.0.exp_avg", … by parameter. Settings of the groups are AdamW's defaults.
  std::vector<int64_t> groups = {};
};

// Takes the data in the order of the entries, cut anywhere. An entry whose type torch does not have is refused before
// anything is written: Error(unsupported). The caller commits the file.
class TorchWriter {
 public:
  TorchWriter(AtomicFile& file, std::vector<TensorEntry> entries, const TorchOptions& options = {});
  void write(std::span<const std::byte> bytes);
  void finish();  // all announced bytes must be there; writes the directory

 private:
  // An entry of the archive.
  struct Member {
    std::string name;
    int64_t offset = 0, size = 0;
    uint32_t crc32 = 0;
  };

  void open(const std::string& name, int64_t size);
  void put(std::span<const std::byte> bytes);
  void close();
  void add(const std::string& name, std::string_view content);
  void next();  // opens storages until data is due
  uint32_t narrow(int64_t value) const;
  std::string directory() const;

  AtomicFile& file_;
  std::vector<TensorEntry> entries_;
  TorchOptions options_;
  size_t storage_ = 0;   // the entry whose storage is opened next
  int64_t missing_ = 0;  // bytes of the open member that are still to come
  std::vector<Member> members_;
};

}  // namespace lamina

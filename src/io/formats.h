// Every format of tensors that is read or written, in one place: a file is recognised by its first bytes, never by its
// name. A format is a row of the table in the source.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/file_map.h"
#include "io/atomic_file.h"
#include "io/mindspore_ckpt.h"
#include "io/safetensors.h"
#include "io/tensor_content.h"
#include "io/torch_writer.h"

namespace lamina {

// The tensors of a file in memory. Throws Error that names `where` and what the file is: a Git LFS pointer, a page, an
// archive, a pickle that would execute something, or a damaged file of a known format.
TensorContent parse_tensors(std::span<const std::byte> file, const std::string& where);

// A mapped file and what it holds.
class TensorFile {
 public:
  explicit TensorFile(const std::string& path);
  const std::string& path() const { return map_.path(); }
  const TensorContent& content() const { return content_; }
  void forget(const StoredTensor& tensor) const;  // its pages leave the process until they are read again

 private:
  FileMap map_;
  TensorContent content_;
};

// The files that hold the weights of a model folder: one of model.safetensors, pytorch_model.bin and model.ckpt, or the
// shards that an index names. The folder's other files play no part.
struct WeightFiles {
  std::vector<TensorFile> files;
  std::vector<std::string> warnings;  // a line each, for people
};

// A folder, an index or a single file. Shards are checked against their index both ways: each tensor is in exactly the
// shard that the index says. Throws Error that names what is missing.
WeightFiles open_weights(const std::string& path);

// ---- writing

enum class WeightFormat { safetensors, mindspore_safetensors, torch, mindspore_ckpt };

struct WriteOptions {
  std::vector<int64_t> torch_groups = {};  // a torch file holds the state of an optimizer: see TorchOptions
};

// Writes any of them: takes the data in the order of the entries, cut anywhere. What the format cannot hold (a type, a
// name) is refused before a byte is written: Error(unsupported). Equal entries and bytes give equal files. The caller
// commits the file.
class TensorWriter {
 public:
  TensorWriter(WeightFormat format, AtomicFile& file, const std::vector<TensorEntry>& entries,
               const WriteOptions& options = {});
  void write(std::span<const std::byte> bytes);
  void finish();  // all announced bytes must be there

 private:
  std::variant<SafetensorsWriter, TorchWriter, CkptWriter> writer_;
};

}  // namespace lamina

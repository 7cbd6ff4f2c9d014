// Folders `step-N` that are there whole or not at all: files beside a manifest with their sizes and hashes. Written
// under a hidden name, flushed, then renamed; read only after every byte was compared. It does not know what is
// trained: the state is an object of JSON that it carries.
//
//   checkpoints/step-20/  manifest.json  config.json  model.safetensors  …
//   checkpoints/.step-30.4711-0.tmp/     a save that has not ended, or never will
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace lamina {

constexpr int64_t kCheckpointVersion = 1;

struct CheckpointFile {
  int64_t bytes = 0;
  std::string hash;                            // XXH3, 128 bits, in hex
  std::map<std::string, std::string> tensors;  // of a safetensors file, so that damage can be named

  bool operator==(const CheckpointFile&) const = default;
};

struct Manifest {
  int64_t step = 0;
  std::string run_id;
  std::map<std::string, CheckpointFile> files;  // all but the manifest itself
  nlohmann::json state;

  bool operator==(const Manifest&) const = default;
};

// The manifest carries the hash of its own content, so that a flipped bit in it is found as well.
std::string manifest_text(const Manifest& manifest);
std::string manifest_hash(const nlohmann::json& content);  // of what stands there, whatever the version

// Throws Error(invalid) for what is damaged, Error(unsupported) for a sound one of a newer version.
Manifest parse_manifest(std::string_view text, const std::string& where);
Manifest read_manifest(const std::string& checkpoint);

// Compares sizes first, then every byte with its hash. Throws Error that names the file and, where it can, the tensor.
void check_files(const std::string& checkpoint, const Manifest& manifest);

// Whether a checkpoint of this run may take the place: throws Error(invalid) where one of another run stands there.
// What is damaged is nobody's.
void require_free_place(const std::string& checkpoint, const std::string& run_id);

class CheckpointWriter {
 public:
  CheckpointWriter(const std::string& folder, int64_t step);  // in `folder`, which is there
  ~CheckpointWriter();                                        // without commit: nothing is left
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  const std::string& path() const { return temporary_; }  // where the files are to be written, each flushed
  // Takes the place of a damaged one of the same step; throws Error(invalid) where another run's stands there.
  void commit(const std::string& run_id, const nlohmann::json& state);

 private:
  std::string folder_, temporary_, target_;
  int64_t step_;
};

struct CheckpointPlace {
  int64_t step = 0;
  std::string path;
};

// By name alone, the newest first. A folder that is not there holds none.
std::vector<CheckpointPlace> list_checkpoints(const std::string& folder);

// Gone from its name at once, from the disk after that.
void remove_checkpoint(const std::string& path);

// What a process that was killed has left in the folder: temporaries of files and of checkpoints. Returns how many.
int64_t remove_temporaries(const std::string& folder);

}  // namespace lamina

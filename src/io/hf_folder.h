// Weights of a HuggingFace GPT-2: model.safetensors, or shards and their index, in a folder or named as a file; and the
// same folder written. What is loaded is complete and exact, or there is an error with a table. No arithmetic, no
// session: parameters leave and enter as strided views of fp32, so that the caller packs without a second copy.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "io/hf_names.h"
#include "io/load_error.h"
#include "io/safetensors.h"
#include "model/config.h"
#include "model/parameters.h"

namespace lamina {

struct LoadReport {
  int64_t used = 0;                   // tensors of the model that have a source
  int64_t wanted = 0;                 // tensors of the model
  std::vector<std::string> removed;   // what was taken off the names: "_orig_mod."
  std::vector<std::string> ignored;   // constant buffers of older files
  std::vector<std::string> warnings;  // a line each, for people
  std::string summary() const;        // "28 of 28 tensors, 0 left over"
};

// Element (k, n) of a parameter (K, N) is data[k * stride_k + n * stride_n]; of a vector (N), data[n * stride_n].
// It is valid during the call only.
using ParameterSink = std::function<void(size_t spec, const float* data, int64_t stride_k, int64_t stride_n)>;
// The same with data to be filled.
using ParameterSource = std::function<void(size_t spec, float* data, int64_t stride_k, int64_t stride_n)>;

class HfWeights {
 public:
  // Opens and checks everything: names, shapes, types, layer count, index, tie. Reads no weights but a tied head's.
  // `path`: a folder, a .safetensors file or an index. Throws Error or LoadError.
  HfWeights(const std::string& path, const ModelConfig& config);

  const LoadReport& report() const { return report_; }

  // Calls `sink` once for each parameter; `specs` are parameter_specs() of the same config. Parameters that share a
  // tensor (q, k, v) come one after the other. Pages of the file leave the process as they are used up; beside them,
  // memory for one tensor is taken where the file is not aligned fp32.
  void read(const std::vector<ParameterSpec>& specs, const ParameterSink& sink) const;

 private:
  struct Source {
    const SafetensorsFile* file;
    const SafetensorsTensor* tensor;
  };

  void open(const std::string& path);
  void open_index(const std::string& index_path);
  void match(const ModelConfig& config);
  void check_tie(const ModelConfig& config, const NameMatch& match);
  void warn_of_types(const NameMatch& match);
  void warn_of_strays(const std::string& folder, const std::string& why);

  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::vector<Source> sources_;                          // all tensors of all files
  std::vector<std::pair<std::string, Source>> by_name_;  // the model's, sorted by name without front part
  LoadReport report_;
};

// Writes `path` (usually FOLDER/model.safetensors) with HuggingFace's names and packing, one tensor in memory at a
// time. A tied head is not written. Equal weights give equal bytes.
void save_hf_weights(const std::string& path, const std::vector<ParameterSpec>& specs, const ParameterSource& source);

// The folder, made if missing: config.json, generation_config.json, model.safetensors, each replaced by rename.
void save_hf_folder(const std::string& folder, const ModelConfig& config, const ParameterSource& source);

}  // namespace lamina

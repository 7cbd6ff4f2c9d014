// The weights of a GPT-2 in any format and under any names that are read: a folder, shards and their index, or a file.
// What is loaded is complete and exact, or there is an error with a table. No arithmetic, no session: parameters leave
// as strided views of fp32, so that the caller packs without a second copy; tensors as they lie in the file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "io/formats.h"
#include "io/load_error.h"
#include "io/model_names.h"
#include "model/config.h"
#include "model/parameters.h"

namespace lamina {

struct LoadReport {
  int64_t used = 0;                          // tensors of the model that have a source
  int64_t wanted = 0;                        // tensors of the model
  std::vector<std::string> removed;          // what was taken off the names: "_orig_mod."
  std::vector<std::string> ignored;          // constant buffers of older files
  std::vector<std::string> state;            // moments, counters and their like, of training
  std::vector<std::string> allowed;          // left behind because the caller said so
  std::string narrow;                        // which tensors are not fp32, with the first of them; or empty
  std::vector<std::string> warnings;         // a line each, for people; `narrow` is none of them
  std::vector<std::string> loading() const;  // the same and `narrow`, where weights are widened to fp32
  std::string summary() const;               // "28 of 28 tensors, 0 left over"
  std::string text() const;                  // the same, and what was taken off and ignored, on one line
};

// Element (k, n) of a parameter (K, N) is data[k * stride_k + n * stride_n]; of a vector (N), data[n * stride_n].
// It is valid during the call only.
using ParameterSink = std::function<void(size_t spec, const float* data, int64_t stride_k, int64_t stride_n)>;

// How a file is to be understood where it does not say.
struct WeightsOptions {
  std::string names = {};               // a profile's id; empty: the one that the names and shapes fit
  std::vector<std::string> allow = {};  // tensors that may be left behind: names, with * for any letters
  bool biases = true;                   // false: those that are missing are zero
};

// A tensor of the model and where it lies.
struct ModelTensor {
  ProfileTensor what;
  const TensorFile* file;      // null: zero
  const StoredTensor* stored;  // null: zero
};

class ModelWeights {
 public:
  // Opens and checks everything: names, shapes, types, layer count, index, tie. Reads no weights but a tied head's.
  // Throws Error or LoadError.
  ModelWeights(const std::string& path, const ModelConfig& config)
      : ModelWeights(open_weights(path), path, config, {}) {}
  ModelWeights(WeightFiles files, const std::string& path, const ModelConfig& config, const WeightsOptions& options);

  const LoadReport& report() const { return report_; }
  const NameProfile& names() const { return *names_; }
  const std::string& format() const { return files_.front().content().format; }
  const std::vector<TensorFile>& files() const { return files_; }
  const std::vector<ModelTensor>& tensors() const { return tensors_; }  // in the order of the profile
  const StoredTensor* tied_head() const { return tied_head_; }  // one that was there, equal to the table; or null

  // Calls `sink` once for each parameter, with its place in parameter_specs() of the config. Parameters that share a
  // tensor (q, k, v) come one after the other. Pages of the file leave the process as they are used up; beside them,
  // memory for one tensor is taken where the file is not aligned fp32.
  void read(const ParameterSink& sink) const;

 private:
  struct Source {
    const TensorFile* file;
    const StoredTensor* tensor;
  };

  void choose_names(const std::vector<FileTensor>& tensors, const WeightsOptions& options);
  void check_tie(const Source& head, const Source& table) const;
  std::string narrow_tensors() const;

  std::string path_;
  std::vector<TensorFile> files_;
  const NameProfile* names_ = nullptr;
  std::vector<ModelTensor> tensors_;
  const StoredTensor* tied_head_ = nullptr;
  LoadReport report_;
};

// Whether `name` fits `pattern`, in which * stands for any letters.
bool fits_pattern(std::string_view pattern, std::string_view name);

// Whether a tensor of this name is a moment, a counter or another part of the state of training, and none of a model.
bool is_training_state(std::string_view name);

}  // namespace lamina

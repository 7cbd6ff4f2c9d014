// The folder of a run: what was set (lamina.json), a line per step (metrics.jsonl), and the model as a HuggingFace
// folder.
#pragma once

#include <cstdio>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "train/data.h"
#include "train/options.h"
#include "train/trainer.h"
#include "train/weights.h"

namespace lamina {

// Throws Error(invalid) where the folder holds something, Error(io) where it is no folder.
void require_new_folder(const std::string& path);

// Every row of a table of options by its name, with _ for -.
nlohmann::json options_json(const TrainOptions& options);

// What lamina.json says: enough to run it again.
struct RunDescription {
  const TrainOptions& options;
  const ModelSource& source;
  const ModelConfig& config;
  const std::vector<ParameterSpec>& specs;
  const Data& data;
  const Plan& plan;
  int64_t seq = 0;
  int64_t steps = 0;
  int threads = 0;
};

nlohmann::json describe_run(const RunDescription& run);

// HuggingFace tensors that decay and those that do not, layers drawn together: "h.*.attn.c_attn.weight".
struct DecayGroup {
  std::vector<std::string> names;
  int64_t tensors = 0;
  int64_t values = 0;
};
DecayGroup decay_group(const std::vector<ParameterSpec>& specs, bool decay);

class MetricsFile {
 public:
  explicit MetricsFile(const std::string& path);  // throws Error(io), as write does
  void write(const StepRecord& record);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace lamina

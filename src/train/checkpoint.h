// The whole state of a run between two steps, as a folder: weights and tokenizer as a HuggingFace model folder, both
// moments in optimizer.safetensors under the names of parameters, counters and settings in the manifest. Nothing else
// decides a later step: rates, order of the data and dropout are functions of the step.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "io/tokenizer.h"
#include "model/config.h"
#include "model/parameters.h"
#include "runtime/session.h"
#include "train/loss_scale.h"

namespace lamina {

// What is counted from step to step.
struct TrainState {
  int64_t step = 0;                          // the last one that was taken
  int64_t updates = 0;                       // steps that were not skipped: AdamW's count
  int64_t tokens = 0;                        // valid targets so far
  int64_t skipped = 0;                       // steps
  int64_t skips_in_a_row = 0;                // up to now
  std::optional<LossScale> loss_scale = {};  // where it is dynamic
  std::optional<double> loss = {};           // of the last step that was not skipped
  std::optional<double> valid_loss = {};     // the last one
  bool evaluation_due = false;               // a signal cut the validation after `step` short
  std::optional<double> best_valid_loss = {};
  int64_t best_step = 0;

  bool operator==(const TrainState&) const = default;
};

nlohmann::json state_json(const TrainState& state);
// Throws Error(invalid) that names `where` and the key.
TrainState parse_state(const nlohmann::json& value, const std::string& where);

struct CheckpointSource {
  const Session& session;
  const ModelConfig& config;
  const std::vector<ParameterSpec>& specs;
  const Tokenizer* tokenizer = nullptr;  // null: the model has none
};

// Where the checkpoints of a run lie.
std::string checkpoints_folder(const std::string& run);

// `settings` come back with the checkpoint; see resume.h.
void save_checkpoint(const std::string& folder, const std::string& run_id, const CheckpointSource& source,
                     const TrainState& state, const nlohmann::json& settings);

struct FoundCheckpoint {
  std::string path;
  TrainState state;
  nlohmann::json settings;     // all of them, to be compared
  std::string tokenizer, isa;  // of them; empty: not said
};

// The newest whole checkpoint of this run; a line for each one that was passed over. None where there is none of this
// run; throws Error where there are and not one is whole, where one cannot be read, or where a newer version wrote it.
std::optional<FoundCheckpoint> find_checkpoint(const std::string& folder, const std::string& run_id,
                                               const std::function<void(const std::string&)>& say);

// For people: "--resume goes on from RUN/checkpoints/step-20", by the newest name, or that there is none.
std::string how_to_go_on(const std::string& run);

// Weights and moments into the session. Throws Error that names what does not fit.
void load_checkpoint(const std::string& path, Session& session, const ModelConfig& config,
                     const std::vector<ParameterSpec>& specs);

// Deletes checkpoints of this run up to `newest`, all but the last `keep` of them and the one of `best`.
void keep_checkpoints(const std::string& folder, const std::string& run_id, int64_t keep, int64_t newest, int64_t best);

}  // namespace lamina

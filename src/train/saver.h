// Saves a run: the model folder that people load, a checkpoint to go on from, and the end of those that are kept no
// longer. When it is time to save, the trainer knows.
#pragma once

#include <functional>
#include <string>

#include "train/checkpoint.h"

namespace lamina {

struct SaverOptions {
  std::string out;  // the run folder
  std::string run_id;
  CheckpointSource source;
  nlohmann::json settings;
  int64_t keep = 1;  // newest checkpoints
  std::function<void(const std::string&)> say;
};

class Saver {
 public:
  // Steps done and steps of the whole run. Throws Error(invalid) where a checkpoint of another run lies in between.
  Saver(SaverOptions options, int64_t step, int64_t steps);

  // The checkpoint comes last: where it stands, all the rest does. Throws Error(invalid) for weights that are not
  // finite, and nothing has changed.
  void save(const TrainState& state);
  // A full disk must not end a run that could still be saved elsewhere or later: it is said, and false comes back.
  // Weights that are not finite end it.
  bool try_save(const TrainState& state);

 private:
  void check_weights(const TrainState& state) const;
  void write(const TrainState& state) const;

  SaverOptions options_;
};

}  // namespace lamina

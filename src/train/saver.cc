#include "train/saver.h"

#include "base/error.h"
#include "io/atomic_file.h"
#include "io/checkpoint_folder.h"
#include "io/tokenizer_files.h"
#include "train/weights.h"

namespace lamina {

Saver::Saver(SaverOptions options, int64_t step, int64_t steps) : options_(std::move(options)) {
  const std::string folder = checkpoints_folder(options_.out);
  make_folder(folder);
  for (const CheckpointPlace& place : list_checkpoints(folder))
    if (place.step > step && place.step <= steps) require_free_place(place.path, options_.run_id);
}

void Saver::save(const TrainState& state) {
  check_weights(state);
  write(state);
}

void Saver::check_weights(const TrainState& state) const {
  const std::string found = find_non_finite(options_.source.session, options_.source.specs);
  if (found.empty()) return;
  throw Error(
      ErrorCode::invalid,
      fmt::format("weights of no use are not saved: step {}: {}; {}", state.step, found, how_to_go_on(options_.out)),
      "a smaller --lr or a --warmup may avoid it");
}

void Saver::write(const TrainState& state) const {
  const CheckpointSource& source = options_.source;
  save_model(source.session, options_.out, source.config, source.specs);
  if (source.tokenizer != nullptr) save_tokenizer(options_.out, *source.tokenizer, source.config.n_positions);
  const std::string folder = checkpoints_folder(options_.out);
  save_checkpoint(folder, options_.run_id, source, state, options_.settings);
  try {
    keep_checkpoints(folder, options_.run_id, options_.keep, state.step, state.best_step);
  } catch (const Error& error) {  // all is saved
    options_.say(fmt::format("warning: an old checkpoint was not removed: {}", error.what()));
  }
}

bool Saver::try_save(const TrainState& state) {
  check_weights(state);
  try {
    write(state);
    return true;
  } catch (const std::exception& error) {  // memory may be short as well
    options_.say(fmt::format("warning: not saved: {}; the run goes on", error.what()));
    return false;
  }
}

}  // namespace lamina

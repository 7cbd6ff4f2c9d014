#include "train/checkpoint.h"

#include <cstring>

#include "base/error.h"
#include "io/atomic_file.h"
#include "io/checkpoint_folder.h"
#include "io/json.h"
#include "io/quote.h"
#include "io/safetensors.h"
#include "io/tokenizer_files.h"
#include "train/weights.h"

namespace lamina {
namespace {

using Json = nlohmann::json;

constexpr const char* kMoments[] = {"m", "v"};
constexpr const char* kOptimizer = "/optimizer.safetensors";

Json optional_json(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json scale_json(const std::optional<LossScale>& scale) {
  return scale ? Json{{"scale", scale->scale}, {"good_steps", scale->good_steps}} : Json(nullptr);
}

// None in checkpoints from before there was one.
std::optional<LossScale> parse_scale(const JsonReader& read) {
  if (!read.present() || read.is_null()) return std::nullopt;
  const JsonReader scale = read["scale"];
  const LossScale out{.scale = scale.as<double>(), .good_steps = read["good_steps"].count()};
  if (!(out.scale >= 1.0)) scale.refuse("a number from 1 on");
  return out;
}

std::vector<int64_t> sizes_of(const Shape& shape) {
  std::vector<int64_t> out;
  for (int i = 0; i < shape.rank; ++i) out.push_back(shape[i]);
  return out;
}

std::string moment_name(const char* which, const ParameterSpec& spec) { return fmt::format("{}.{}", which, spec.name); }

void save_moments(const std::string& path, const CheckpointSource& source) {
  std::vector<TensorEntry> entries;
  for (const char* which : kMoments)
    for (const ParameterSpec& spec : source.specs)
      entries.push_back({moment_name(which, spec), "F32", sizes_of(spec.shape)});
  AtomicFile file(path);
  SafetensorsWriter writer(file, entries);
  std::vector<float> values;
  for (const char* which : kMoments)
    for (const ParameterSpec& spec : source.specs) {
      values.resize(static_cast<size_t>(spec.shape.elements()));
      source.session.read(moment_name(which, spec), values.data(), spec.shape.last(), 1);
      writer.write(std::as_bytes(std::span(values)));
    }
  writer.finish();
  file.commit();
}

void load_moments(const std::string& path, Session& session, const std::vector<ParameterSpec>& specs) {
  const SafetensorsFile file(path);
  std::vector<float> values;
  for (const char* which : kMoments)
    for (const ParameterSpec& spec : specs) {
      const std::string name = moment_name(which, spec);
      const SafetensorsTensor* tensor = file.find(name);
      if (tensor == nullptr)
        throw_error(ErrorCode::invalid, "bad checkpoint: {}: tensor {} is missing: expected F32 {}, got nothing", path,
                    name, shape_text(sizes_of(spec.shape)));
      if (tensor->dtype != "F32" || tensor->shape != sizes_of(spec.shape))
        throw_error(ErrorCode::invalid, "bad checkpoint: {}: tensor {}: expected F32 {}, got {} {}", path, name,
                    shape_text(sizes_of(spec.shape)), tensor->dtype, shape_text(tensor->shape));
      values.resize(static_cast<size_t>(spec.shape.elements()));
      std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
      session.write(name, {values.data(), spec.shape.last(), 1});
      file.forget(*tensor);
    }
}

}  // namespace

Json state_json(const TrainState& state) {
  return {{"step", state.step},
          {"updates", state.updates},
          {"tokens", state.tokens},
          {"skipped", state.skipped},
          {"skips_in_a_row", state.skips_in_a_row},
          {"loss_scale", scale_json(state.loss_scale)},
          {"loss", optional_json(state.loss)},
          {"valid_loss", optional_json(state.valid_loss)},
          {"evaluation_due", state.evaluation_due},
          {"best_valid_loss", optional_json(state.best_valid_loss)},
          {"best_step", state.best_step}};
}

TrainState parse_state(const Json& value, const std::string& where) {
  const JsonReader read(value, "bad checkpoint: " + where);
  return {.step = read["step"].count(),
          .updates = read["updates"].count(),
          .tokens = read["tokens"].count(),
          .skipped = read["skipped"].count(),
          .skips_in_a_row = read["skips_in_a_row"].count(),
          .loss_scale = parse_scale(read["loss_scale"]),
          .loss = read["loss"].number(),
          .valid_loss = read["valid_loss"].number(),
          .evaluation_due = read["evaluation_due"].as<bool>(),
          .best_valid_loss = read["best_valid_loss"].number(),
          .best_step = read["best_step"].count()};
}

std::string checkpoints_folder(const std::string& run) { return run + "/checkpoints"; }

void save_checkpoint(const std::string& folder, const std::string& run_id, const CheckpointSource& source,
                     const TrainState& state, const Json& settings) {
  CheckpointWriter writer(folder, state.step);
  save_model(source.session, writer.path(), source.config, source.specs);
  if (source.tokenizer != nullptr) save_tokenizer(writer.path(), *source.tokenizer, source.config.n_positions);
  save_moments(writer.path() + kOptimizer, source);
  writer.commit(run_id, {{"progress", state_json(state)}, {"settings", settings}});
}

std::optional<FoundCheckpoint> find_checkpoint(const std::string& folder, const std::string& run_id,
                                               const std::function<void(const std::string&)>& say) {
  std::string damage;  // of the newest one
  for (const CheckpointPlace& place : list_checkpoints(folder)) {
    try {
      const Manifest manifest = read_manifest(place.path);
      if (manifest.run_id != run_id) {
        say(fmt::format("checkpoint of another run left alone: {}: expected run {}, got {}", place.path,
                        run_id.empty() ? "none" : run_id, quote_text(manifest.run_id)));
        continue;
      }
      check_files(place.path, manifest);
      const JsonReader read(manifest.state, "bad checkpoint: " + place.path);
      const JsonReader settings = read["settings"];
      FoundCheckpoint found{.path = place.path,
                            .state = parse_state(read["progress"].object(), place.path),
                            .settings = settings.object(),
                            .tokenizer = settings["tokenizer"].as_or(std::string()),
                            .isa = settings["isa"].as_or(std::string())};
      for (const int64_t step : {manifest.step, found.state.step})
        if (step != place.step)
          throw_error(ErrorCode::invalid, "bad checkpoint: {}: step, expected {} as its name says, got {}", place.path,
                      place.step, step);
      return found;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::invalid) throw;  // a file that cannot be read now may be whole
      if (damage.empty()) damage = error.what();
      say(fmt::format("warning: {}; passed over", error.what()));
    }
  }
  if (!damage.empty())
    throw Error(ErrorCode::invalid, "no whole checkpoint to go on from: " + damage,
                "remove the checkpoints to start again at step 1");
  return std::nullopt;
}

std::string how_to_go_on(const std::string& run) {
  const std::vector<CheckpointPlace> places = list_checkpoints(checkpoints_folder(run));
  return places.empty() ? "there is no checkpoint to go on from" : "--resume goes on from " + places.front().path;
}

void load_checkpoint(const std::string& path, Session& session, const ModelConfig& config,
                     const std::vector<ParameterSpec>& specs) {
  std::vector<std::string> warnings;  // of an own file there are none
  load_weights(session, path, config, specs, warnings);
  load_moments(path + kOptimizer, session, specs);
}

void keep_checkpoints(const std::string& folder, const std::string& run_id, int64_t keep, int64_t newest,
                      int64_t best) {
  int64_t kept = 0;
  for (const CheckpointPlace& place : list_checkpoints(folder)) {
    if (place.step > newest) continue;
    try {
      if (read_manifest(place.path).run_id != run_id) continue;
    } catch (const Error&) {
      continue;  // nobody can say whose it is
    }
    if (kept++ < keep || place.step == best) continue;
    remove_checkpoint(place.path);
  }
}

}  // namespace lamina

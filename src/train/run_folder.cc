#include "train/run_folder.h"

#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/version.h"
#include "io/checkpoint_folder.h"
#include "io/folder.h"
#include "io/hf_config.h"
#include "io/json.h"
#include "train/precision.h"
#include "train/resume.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::string run_id(const Json& description) {
  Json part = {
      {"config", description["config"]}, {"data", description["data"]}, {"plan", description["plan"]["numbers"]}};
  const Json& options = description["options"];
  for (const char* key : {"model", "data", "steps", "epochs"}) part["options"][key] = options[key];
  for (const auto& [key, value] : options.items())
    if (!is_free_option(key)) part["options"][key] = value;
  const std::string text = part.dump(-1, ' ', false, Json::error_handler_t::replace);
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

// What the order of rows depends on besides the ids.
std::string sources_text(const Data& data) {
  std::string out;
  for (const Source& source : data.sources)
    out += fmt::format("{}{} ids of weight {}", out.empty() ? "" : ", ", source.ids.size(), source.weight);
  return out;
}

Json kernels_json(const Plan& plan) {
  std::set<std::string> ids;
  for (const PlanProgram& program : plan.programs)
    for (const PlanStep& step : program.steps) ids.insert(step.kernel);
  return ids;
}

// HuggingFace tensors, layers drawn together.
struct DecayGroup {
  std::vector<std::string> names;
  int64_t tensors = 0;
  int64_t values = 0;
};

DecayGroup decay_group(const std::vector<ParameterSpec>& specs, bool decay) {
  DecayGroup out;
  std::set<std::string> tensors;
  for (const ParameterSpec& spec : specs) {
    if (spec.decay != decay) continue;
    out.values += spec.shape.elements();
    if (!tensors.insert(spec.hf.name).second) continue;
    ++out.tensors;
    std::string name = spec.hf.name;
    if (spec.layer >= 0) name = "h.*" + name.substr(name.find('.', 2));
    if (std::find(out.names.begin(), out.names.end(), name) == out.names.end()) out.names.push_back(name);
  }
  return out;
}

}  // namespace

void require_new_folder(const std::string& path) {
  if (!path_exists(path)) return;
  if (std::error_code ignored; !fs::is_directory(path, ignored))
    throw_error(ErrorCode::io, "cannot make a run folder: --out {}: expected a folder, got a file", path);
  const std::vector<std::string> names = list_folder(path);
  if (!names.empty())
    throw Error(ErrorCode::invalid,
                fmt::format("run folder is not empty: --out {}, expected a new or empty folder, got one that holds {}",
                            path, names.front()),
                "--resume goes on with the run in it; or name another folder");
}

StoredRun open_run_folder(const std::string& path) {
  const std::string description = path + "/lamina.json";
  if (path_exists(description)) {
    const Json root = read_json(description);
    const JsonReader read(root, "not what a run writes: " + description);
    StoredRun out{.id = read["run_id"].as<std::string>()};
    if (read["resumed"].present()) out.resumed = read["resumed"].list();
    return out;
  }
  for (const std::string& name : list_folder(path)) {
    const bool begun = name == "checkpoints" && list_checkpoints(path + "/" + name).empty();
    if (!begun && !name.starts_with('.'))
      throw_error(ErrorCode::invalid, "not a run folder: --out {}: expected lamina.json in it, got {}", path, name);
  }
  return {};
}

Json options_json(const TrainOptions& options) {
  Json out = Json::object();
  for_each_option(options, [&](const OptionRow& row, const auto& field) {
    std::string key = row.name;
    std::replace(key.begin(), key.end(), '-', '_');
    if constexpr (requires { field.has_value(); })
      out[key] = field ? Json(*field) : Json(nullptr);
    else
      out[key] = field;
  });
  return out;
}

Json describe_run(const RunDescription& run) {
  const DecayGroup decays = decay_group(run.specs, true), rests = decay_group(run.specs, false);
  Json out = {{"format", 1},
              {"command", "train"},
              {"lamina", kVersion},
              {"compiler", __VERSION__},
              {"options", options_json(run.options)},
              {"resolved",
               {{"seq", run.seq},
                {"steps", run.steps},
                {"decay_steps", run.decay_steps},
                {"threads", run.threads},
                {"vocab_size", run.config.vocab_size},
                {"tokens_per_step", run.options.batch * run.options.accumulate * run.seq}}},
              {"start", run.source.folder.empty() ? "initialised" : "weights of " + run.source.folder},
              {"config", Json::parse(hf_config_text(run.config))},
              {"parameters", parameter_count(run.config)},
              {"decay", {{"yes", decays.names}, {"no", rests.names}}},
              {"data",
               {{"kind", run.data.is_text ? "text" : "tokens"},
                {"train_ids", run.data.train.size()},
                {"sources", sources_text(run.data)},
                {"valid_ids", run.data.valid.size()},
                {"train_fingerprint", fingerprint(run.data.train)},
                {"valid_fingerprint", fingerprint(run.data.valid)}}},
              {"tokenizer", run.data.tokenizer_source},
              {"precision", run.options.precision},
              {"precision_map", precision_map_json(run.precision)},
              {"arithmetic", arithmetics_json(run.precision, run.arithmetics)},
              {"plan",
               {{"digest", run.plan.digest},
                {"numbers", run.plan.numbers},
                {"recompute", run.recompute},
                {"isa", isa_name(run.plan.isa)},
                {"kernels", kernels_json(run.plan)},
                {"bytes", run.plan.total_bytes(run.threads)}}},
              {"peak_fraction_of", "fp32 multiply-adds of all threads, measured for 0.25 s before the first step"}};
  out["run_id"] = run_id(out);
  return out;
}

std::string decay_text(const std::vector<ParameterSpec>& specs, bool decay) {
  const DecayGroup group = decay_group(specs, decay);
  std::string names;
  for (const std::string& name : group.names) names += " " + name;
  return fmt::format("{} tensors, {} values:{}", group.tensors, group.values, names);
}

}  // namespace lamina

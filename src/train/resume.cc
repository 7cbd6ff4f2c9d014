#include "train/resume.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "io/json.h"

namespace lamina {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kFree[] = {
    "out",    "threads", "memory_limit", "log_every", "eval_every", "save_every",    "keep",           "max_skips",
    "resume", "model",   "data",         "tokenizer", "token_type", "invalid_utf8",  "valid_fraction", "vocab_size",
    "valid",  "steps",   "epochs",       "seq",       "dropout",    "allow_changes", "recompute",      "precision"};

bool is_dropout(const std::string& key) { return key.ends_with("_pdrop"); }

std::string difference(const std::string& name, const Json& stored, const Json& given) {
  return fmt::format("{}: stored {}, given {}", name, json_text(stored), json_text(given));
}

// Names and values of both objects that differ; a missing key is null.
template <typename F>
void for_each_difference(const Json& stored, const Json& given, F&& f) {
  std::set<std::string> keys;
  for (const Json* side : {&stored, &given})
    if (side->is_object())
      for (const auto& [key, value] : side->items()) keys.insert(key);
  const auto value_of = [](const Json& side, const std::string& key) {
    return side.is_object() ? side.value(key, Json()) : Json();
  };
  for (const std::string& key : keys) {
    const Json before = value_of(stored, key), now = value_of(given, key);
    if (before != now) f(key, before, now);
  }
}

std::string option_name(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return "--" + key;
}

LearningRate rate_of(const Json& settings) {
  const JsonReader read(settings, "settings");
  const JsonReader options = read["options"];
  return {.lr = options["lr"].as<double>(),
          .min_lr = options["min_lr"].as<double>(),
          .schedule = parse_schedule(options["schedule"].as<std::string>()).value_or(Schedule::constant),
          .warmup = options["warmup"].as<int64_t>(),
          .steps = read["steps"].as<int64_t>(),
          .decay_steps = read["decay_steps"].as_or(int64_t{0})};
}

// Two steps tell about all before them: a rate rises without regard to the number of steps, is level, and then falls on
// a curve that two points fix. So the time does not grow with what a file claims.
bool same_rates(const Json& stored, const Json& given, int64_t steps_done) {
  const LearningRate before = rate_of(stored), now = rate_of(given);
  for (int64_t step = std::max<int64_t>(steps_done - 1, 1); step <= steps_done; ++step)
    if (learning_rate(before, step) != learning_rate(now, step)) return false;
  return true;
}

// A stored value of another type than ours is a difference, and so is a missing one.
bool same_rates_or_unreadable(const Json& stored, const Json& given, int64_t steps_done) {
  try {
    return same_rates(stored, given, steps_done);
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

bool is_free_option(std::string_view key) {
  return std::find(std::begin(kFree), std::end(kFree), key) != std::end(kFree);
}

Json deciding_settings(const Json& description) {
  Json options = Json::object();
  for (const auto& [key, value] : description["options"].items())
    if (!is_free_option(key) && key != "decay_steps") options[key] = value;
  const Json &resolved = description["resolved"], &plan = description["plan"];
  return {{"options", std::move(options)},
          {"config", description["config"]},
          {"data", description["data"]},
          {"tokenizer", description["tokenizer"]},
          {"seq", resolved["seq"]},
          {"steps", resolved["steps"]},
          {"decay_steps", resolved["decay_steps"]},
          {"precision", description["precision"] == "fp32" ? description["precision"] : description["precision_map"]},
          {"arithmetic", description["arithmetic"]},
          {"isa", plan["isa"]},
          {"plan", plan["numbers"]}};
}

Changes compare_settings(const Json& stored, const Json& given, int64_t steps_done) {
  Changes out;
  const auto part = [](const Json& settings, const char* key) {
    const Json absent = std::string_view(key) == "arithmetic" ? Json::object() : Json();  // before there was a choice
    return settings.is_object() ? settings.value(key, absent) : absent;
  };
  for_each_difference(part(stored, "config"), part(given, "config"),
                      [&](const std::string& key, const Json& before, const Json& now) {
                        (is_dropout(key) ? out.others : out.model).push_back(difference(key, before, now));
                      });
  for_each_difference(part(stored, "options"), part(given, "options"),
                      [&](const std::string& key, const Json& before, const Json& now) {
                        if (before.is_null() && now == false) return;  // off, as it was before there was this switch
                        out.others.push_back(difference(option_name(key), before, now));
                      });
  for_each_difference(part(stored, "data"), part(given, "data"),
                      [&](const std::string& key, const Json& before, const Json& now) {
                        out.others.push_back(difference("data, " + key, before, now));
                      });
  for (const char* key : {"seq", "precision", "arithmetic", "isa"})
    if (part(stored, key) != part(given, key))
      out.others.push_back(difference(key, part(stored, key), part(given, key)));
  const bool more_or_fewer = part(stored, "steps") != part(given, "steps");
  const bool other_decay = part(stored, "decay_steps") != part(given, "decay_steps");
  if ((more_or_fewer || other_decay) && !same_rates_or_unreadable(stored, given, steps_done)) {
    if (more_or_fewer) out.others.push_back(difference("--steps", part(stored, "steps"), part(given, "steps")));
    if (other_decay)
      out.others.push_back(difference("--decay-steps", part(stored, "decay_steps"), part(given, "decay_steps")));
  }
  // Whatever is named above makes another plan; alone it is another version's.
  if (out.model.empty() && out.others.empty() && part(stored, "plan") != part(given, "plan"))
    out.others.push_back(difference("plan", part(stored, "plan"), part(given, "plan")));
  return out;
}

void refuse_changes(const Changes& changes, bool accept, const std::string& checkpoint) {
  const auto joined = [](const std::vector<std::string>& lines) {
    std::string out;
    for (const std::string& line : lines) out += (out.empty() ? "" : "; ") + line;
    return out;
  };
  if (!changes.model.empty())
    throw_error(ErrorCode::invalid, "checkpoint of another model: {}: {}", checkpoint, joined(changes.model));
  if (!changes.others.empty() && !accept)
    throw Error(ErrorCode::invalid,
                fmt::format("settings differ from those of the checkpoint: {}: {}", checkpoint, joined(changes.others)),
                "--allow-changes goes on with what is given now");
}

}  // namespace lamina

#include "migrate/verify.h"

#include <algorithm>
#include <cmath>
#include <future>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "base/rng.h"
#include "io/hf_config.h"
#include "migrate/verify_mistakes.h"

namespace lamina {
namespace {

using Json = nlohmann::json;
using Tasks = std::vector<std::function<void()>>;

// Side by side where there are threads for it: the reference has none of its own.
void run_all(const Tasks& tasks, int threads) {
  std::vector<std::future<void>> running;
  for (const auto& task : tasks)
    running.push_back(std::async(threads > 1 ? std::launch::async : std::launch::deferred, task));
  for (std::future<void>& one : running) one.get();
}

// Keys of two JSON objects whose values differ, with both.
std::vector<std::string> differences(const Json& a, const Json& b) {
  std::vector<std::string> out;
  Json all = a;
  all.update(b);
  const auto text = [](const Json& from, const std::string& key) {
    return from.contains(key) ? from[key].dump() : std::string("absent");
  };
  for (const auto& [key, value] : all.items())
    if (text(a, key) != text(b, key))
      out.push_back(fmt::format("{}: {} in A, {} in B", key, text(a, key), text(b, key)));
  return out;
}

Json object(const std::string& text) { return text.empty() ? Json::object() : Json::parse(text); }

class ModelPair {
 public:
  ModelPair(const VerifyModel& a, const VerifyModel& b, const VerifyInputs& inputs, const VerifyOptions& options)
      : a_(a), b_(b), inputs_(inputs), options_(options) {}

  VerifyReport run() {
    compare_weights();
    if (!same_sizes()) return std::move(out_);
    compute();
    notes();
    const double units = 2.0 * kUnit64;
    add("models", "A and B, both in double", truth_, other_, units, options_.tolerance);
    const bool same = out_.equal;
    if (!same) explain();
    options_.say("the fast path of A");
    FastModel fast_a(a_, inputs_, options_.threads);
    add("fast_a", "A in fp32 and in double", own_truth_, fast_a.numbers(), kUnit32 + kUnit64);
    out_.greedy_a = fast_a.greedy();
    options_.say("the fast path of B");
    FastModel fast_b(b_, inputs_, options_.threads);
    if (same) add("fast_b", "B in fp32 and in double", own_other_, fast_b.numbers(), kUnit32 + kUnit64);
    out_.greedy_b = fast_b.greedy();
    return std::move(out_);
  }

 private:
  static std::vector<std::pair<const char*, int64_t>> sizes(const ModelConfig& c) {
    return {{"n_embd", c.n_embd}, {"n_inner", c.inner()}, {"n_positions", c.n_positions}};
  }

  bool same_sizes() {
    const auto ours = sizes(a_.config), theirs = sizes(b_.config);
    for (size_t i = 0; i < ours.size(); ++i) {
      if (ours[i].second == theirs[i].second) continue;
      out_.equal = false;
      out_.first = TensorGap{fmt::format("config.{}", ours[i].first), INFINITY, 0.0, INFINITY};
      out_.where = "the configurations";
      out_.cause_id = ours[i].first;
      out_.cause = fmt::format("{}: {} in A, {} in B", ours[i].first, ours[i].second, theirs[i].second);
      return false;
    }
    return true;
  }

  void compare_weights() {
    const std::vector<ParameterSpec> ours = parameter_specs(a_.config), theirs = parameter_specs(b_.config);
    for (size_t i = 0; i < ours.size(); ++i)
      for (size_t j = 0; j < theirs.size(); ++j) {
        if (ours[i].name != theirs[j].name || ours[i].shape != theirs[j].shape || a_.weights[i] == b_.weights[j])
          continue;
        const Numbers both{{ours[i].name, {std::ssize(a_.weights[i])}, {a_.weights[i].begin(), a_.weights[i].end()}},
                           {"", {std::ssize(b_.weights[j])}, {b_.weights[j].begin(), b_.weights[j].end()}}};
        out_.weights.push_back(*gap_of(both, both[0], both[1]));
      }
  }

  void compute() {
    const WhatIf a(a_), b(b_);
    Numbers plain;
    options_.say(fmt::format("both models in double and A in plain fp32, {} x {} tokens", inputs_.rows, inputs_.seq));
    run_all({[&] { truth_ = reference_numbers<double>(a, inputs_); },
             [&] { other_ = reference_numbers<double>(b, inputs_); },
             [&] { plain = reference_numbers<float>(a, inputs_); }},
            options_.threads);
    tolerances_.emplace(truth_, plain);
    own_truth_ = truth_;
    own_other_ = other_;
    if (a_.config.tie_word_embeddings == b_.config.tie_word_embeddings) return;
    fold_head(truth_);
    fold_head(other_);
    out_.notes.push_back(
        fmt::format("tie_word_embeddings: {} in A, {} in B: the gradients of table and head are added up",
                    a_.config.tie_word_embeddings, b_.config.tie_word_embeddings));
  }

  void add(const char* id, const char* what, const Numbers& first, const Numbers& second, double units,
           std::optional<double> fixed = {}) {
    VerifyComparison made{id, what, compare_numbers(first, second, *tolerances_, units, fixed)};
    if (const TensorGap* gap = first_gap(made.tensors); gap != nullptr && out_.equal) {
      out_.equal = false;
      out_.first = *gap;
      out_.where = what;
    }
    out_.comparisons.push_back(std::move(made));
  }

  Cause search(const VerifyModel& model, const Numbers& truth, const VerifyModel& other, const Numbers& numbers) {
    VerifyOther known{&numbers, kUnit64, other.config, {}};
    const std::vector<ParameterSpec> specs = parameter_specs(other.config);
    for (size_t i = 0; i < specs.size(); ++i) known.weights[specs[i].name] = &other.weights[i];
    return find_cause({model, truth, inputs_, known, *tolerances_, out_.first->tensor,
                       layers_to_look_at(model.config, out_.first->tensor)},
                      options_.say);
  }

  // A mistake may be in either of the two.
  void explain() {
    Cause cause = search(a_, truth_, b_, other_);
    const char* in = "in B";
    int64_t tested = cause.tested;
    if (cause.id.empty()) {
      cause = search(b_, other_, a_, truth_);
      in = "in A";
      tested += cause.tested;
    }
    out_.causes_tested = tested;
    out_.cause_id = cause.id;
    if (!cause.id.empty()) out_.cause = fmt::format("{}, {}", cause.what, in);
  }

  void notes() {
    for (const std::string& line : differences(object(hf_config_text(a_.config)), object(hf_config_text(b_.config))))
      out_.notes.push_back("config.json: " + line);
    const std::vector<std::string> settings = differences(object(a_.settings), object(b_.settings));
    for (const std::string& line : settings)
      out_.notes.push_back("generation_config.json, which changes no logits: " + line);
    if (settings.empty()) return;
    out_.notes.push_back("generation_config.json of A: " + (a_.settings.empty() ? "absent" : a_.settings));
    out_.notes.push_back("generation_config.json of B: " + (b_.settings.empty() ? "absent" : b_.settings));
  }

  const VerifyModel &a_, &b_;
  const VerifyInputs& inputs_;
  const VerifyOptions& options_;
  Numbers truth_, other_, own_truth_, own_other_;
  std::optional<Tolerances> tolerances_;
  VerifyReport out_;
};

void check_shapes(const Numbers& truth, const Witness& witness) {
  int64_t common = 0;
  for (const NamedNumbers& tensor : truth) {
    const NamedNumbers* other = find_numbers(witness.numbers, tensor.name);
    if (other == nullptr) continue;
    ++common;
    std::vector<int64_t> free = other->shape;
    if (tensor.name == "logits" && !free.empty()) free.back() = std::max(free.back(), tensor.shape.back());
    const bool same = tensor.name == "logits"
                          ? free.size() == 3 && free[0] == tensor.shape[0] && free[1] == tensor.shape[1]
                          : free == tensor.shape;
    if (!same)
      throw_error(ErrorCode::invalid, "wrong shape: {}: {}: expected {}, got {}", witness.path, tensor.name,
                  fmt::join(tensor.shape, "x"), fmt::join(other->shape, "x"));
  }
  if (common == 0 && witness.losses.empty())
    throw_error(ErrorCode::invalid, "nothing to compare: {}: expected a tensor such as logits or loss, got none",
                witness.path);
}

}  // namespace

VerifyInputs inputs_of_ids(const ModelConfig& config, int64_t vocab_size, int64_t tokens,
                           const std::vector<int32_t>& ids, const std::string& where) {
  const auto bad = std::find_if(ids.begin(), ids.end(), [&](int32_t id) { return id < 0 || id >= vocab_size; });
  if (bad != ids.end())
    throw_error(ErrorCode::invalid, "bad id: {}: id {} of {}, expected 0 to {}, got {}", where, bad - ids.begin() + 1,
                ids.size(), vocab_size - 1, *bad);
  const int64_t have = std::ssize(ids);
  const int64_t seq = tokens > 0 ? tokens : std::min(have, config.n_positions);
  if (seq > config.n_positions || seq > have || have < 2)
    throw_error(ErrorCode::invalid,
                "tokens out of range: {}: expected at most {} ids (n_positions) and {} (there), got {}", where,
                config.n_positions, have, seq);
  VerifyInputs out{std::min<int64_t>(2, have / seq), seq, {}, {}};
  for (int64_t i = 0; i < out.rows * seq; ++i) {
    out.tokens.push_back(ids[static_cast<size_t>(i)]);
    out.targets.push_back(i + 1 < have ? ids[static_cast<size_t>(i + 1)] : -1);
  }
  return out;
}

VerifyInputs seeded_inputs(const ModelConfig& config, int64_t vocab_size, int64_t tokens, uint64_t seed) {
  constexpr double kOperations = 2.4e10;  // of a pass forward and back: half a minute on one core
  constexpr int64_t kRows = 2, kMost = 64;
  const double fit = kOperations / 6.0 / static_cast<double>(kRows * parameter_count(config));
  int64_t seq = tokens > 0 ? tokens : static_cast<int64_t>(std::clamp(fit, 4.0, static_cast<double>(kMost)));
  if (tokens == 0) seq = std::min(seq, config.n_positions);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i <= kRows * seq; ++i)
    ids.push_back(
        static_cast<int32_t>(mix64(mix64(seed) + static_cast<uint64_t>(i)) % static_cast<uint64_t>(vocab_size)));
  return inputs_of_ids(config, vocab_size, seq, ids, "--tokens");
}

VerifyReport verify_models(const VerifyModel& a, const VerifyModel& b, const VerifyInputs& inputs,
                           const VerifyOptions& options) {
  return ModelPair(a, b, inputs, options).run();
}

VerifyReport verify_witness(const VerifyModel& a, const Witness& witness, const VerifyInputs& inputs,
                            const VerifyOptions& options) {
  VerifyReport out;
  const WhatIf model(a);
  Numbers truth, plain;
  options.say(fmt::format("A in double and in plain fp32, {} x {} tokens", inputs.rows, inputs.seq));
  run_all({[&] { truth = reference_numbers<double>(model, inputs); },
           [&] { plain = reference_numbers<float>(model, inputs); }},
          options.threads);
  check_shapes(truth, witness);
  const Tolerances tolerances(truth, plain);
  const double units = witness.unit + kUnit64;
  const auto add = [&](const char* id, const std::string& what, const Numbers& numbers, double sum,
                       std::optional<double> fixed) {
    VerifyComparison made{id, what, compare_numbers(truth, numbers, tolerances, sum, fixed)};
    const TensorGap* gap = first_gap(made.tensors);
    if (gap != nullptr && out.equal) {
      out.equal = false;
      out.first = *gap;
      out.where = what;
    }
    out.comparisons.push_back(std::move(made));
  };
  add("models", "A in double and the witness", witness.numbers, units, options.tolerance);
  if (out.equal && !witness.losses.empty()) {
    const auto steps = std::ssize(witness.losses);
    const Numbers ours{{"losses", {steps}, reference_losses(a, inputs, steps, witness.lr.value_or(0.0))}};
    TensorGap gap = *gap_of(ours, ours[0], {"losses", {steps}, witness.losses});
    gap.tolerance = options.tolerance.value_or(static_cast<double>(steps) * tolerances.of("loss", units));
    if (!gap.fits()) {
      out.equal = false;
      out.first = gap;
      out.where = "A in double and the witness";
    }
    out.comparisons.back().tensors.push_back(std::move(gap));
  } else if (!out.equal) {
    VerifyOther other{&witness.numbers, witness.unit, {}, {}};
    for (const auto& [name, values] : witness.weights) other.weights[name] = &values;
    const Cause cause = find_cause(
        {a, truth, inputs, other, tolerances, out.first->tensor, layers_to_look_at(a.config, out.first->tensor)},
        options.say);
    out.causes_tested = cause.tested;
    out.cause_id = cause.id;
    out.cause = cause.what;
  }
  options.say("the fast path of A");
  add("fast_a", "A in fp32 and in double", FastModel(a, inputs, options.threads).numbers(), kUnit32 + kUnit64, {});
  return out;
}

Witness make_witness(const VerifyModel& a, const VerifyInputs& inputs, int64_t steps, double lr) {
  Witness out{.path = "", .engine = "lamina, in double", .unit = kUnit64, .hash = inputs.hash(), .inputs = inputs};
  out.numbers = reference_numbers<double>(WhatIf(a), inputs);
  if (steps > 0) {
    out.lr = lr;
    out.losses = reference_losses(a, inputs, steps, lr);
  }
  return out;
}

}  // namespace lamina

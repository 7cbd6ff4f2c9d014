// Two models, both computed here.
#include "migrate/verify.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "io/hf_config.h"
#include "migrate/verify_report.h"
#include "migrate/verify_verdict.h"

namespace lamina {
namespace {

using Json = nlohmann::json;

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
    if (!check_finite(out_, a_, "A") || !check_finite(out_, b_, "B") || !same_sizes()) return std::move(out_);
    notes();
    compute();
    if (!check_finite(out_, truth_, "A in double") || !check_finite(out_, other_, "B in double"))
      return std::move(out_);
    compare();
    return std::move(out_);
  }

 private:
  static std::vector<std::pair<const char*, int64_t>> sizes(const ModelConfig& c) {
    return {{"n_embd", c.n_embd}, {"n_inner", c.inner()}, {"n_positions", c.n_positions}};
  }

  bool same_sizes() {
    constexpr double kInfinite = std::numeric_limits<double>::infinity();
    const auto ours = sizes(a_.config), theirs = sizes(b_.config);
    for (size_t i = 0; i < ours.size(); ++i) {
      if (ours[i].second == theirs[i].second) continue;
      out_.equal = false;
      out_.first = TensorGap{fmt::format("config.{}", ours[i].first), kInfinite, 0.0, kInfinite};
      out_.where = "the configurations";
      out_.cause_id = ours[i].first;
      out_.cause = fmt::format("{}: {} in A, {} in B", ours[i].first, ours[i].second, theirs[i].second);
      return false;
    }
    return true;
  }

  void compare_weights() {
    const std::vector<ParameterSpec> ours = parameter_specs(a_.config), theirs = parameter_specs(b_.config);
    const auto numbers = [](const std::string& name, const std::vector<float>& values) {
      return NamedNumbers{name, {std::ssize(values)}, {values.begin(), values.end()}};
    };
    for (size_t i = 0; i < ours.size(); ++i)
      for (size_t j = 0; j < theirs.size(); ++j) {
        if (ours[i].name != theirs[j].name || ours[i].shape != theirs[j].shape) continue;
        if (a_.weights[i] == b_.weights[j]) continue;
        const NamedNumbers one = numbers(ours[i].name, a_.weights[i]), other = numbers({}, b_.weights[j]);
        out_.weights.push_back(*gap_of({}, one, other));
      }
  }

  void compare() {
    options_.say("A in plain fp32, for the tolerances");
    const Tolerances tolerances = measure_rounding(a_, truth_, inputs_, options_.threads);
    for (Numbers* numbers : {&truth_, &other_}) fold(*numbers);
    constexpr double kUnits = 2.0 * kUnit64;
    add_comparison(out_, "models", "A and B, both in double",
                   compare_numbers(truth_, other_, tolerances, kUnits, options_.tolerance));
    out_.compared = std::ssize(out_.comparisons.front().tensors);
    out_.tensors = std::ssize(truth_);
    const bool same = out_.equal;
    if (same)
      check_untouched_rows(out_, a_, b_, inputs_, options_.tolerance.value_or(tolerances.of("embedding", kUnits)));
    bool finite = fast(a_, truth_, out_.greedy_a, "fast_a", "A", &tolerances);
    // Where the two differ, A's rounding says nothing about B's.
    finite = fast(b_, other_, out_.greedy_b, "fast_b", "B", same ? &tolerances : nullptr) && finite;
    if (!same && finite) explain(tolerances);
    explain_fast(out_, same);
  }

  void compute() {
    options_.say(fmt::format("A and B in double, {} x {} tokens", inputs_.rows, inputs_.seq));
    run_side_by_side({[&] { truth_ = reference_numbers<double>(WhatIf(a_), inputs_); },
                      [&] { other_ = reference_numbers<double>(WhatIf(b_), inputs_); }},
                     options_.threads);
  }

  // A tied model has one gradient where another has two.
  void fold(Numbers& numbers) const {
    if (a_.config.tie_word_embeddings != b_.config.tie_word_embeddings) fold_head(numbers);
  }

  // Whether all that it computes is finite.
  bool fast(const VerifyModel& model, const Numbers& truth, std::vector<std::vector<int32_t>>& greedy, const char* id,
            const char* which, const Tolerances* tolerances) {
    const std::string what = fmt::format("{} in fp32 and in double", which);
    options_.say(what);
    FastModel session(model, inputs_, options_.threads);
    greedy = session.greedy();
    Numbers numbers = session.numbers();
    const bool finite = check_finite(out_, numbers, fmt::format("{} in fp32", which));
    fold(numbers);
    if (tolerances != nullptr)
      add_comparison(out_, id, what, compare_numbers(truth, numbers, *tolerances, kUnit32 + kUnit64));
    return finite;
  }

  Cause search(const VerifyModel& model, const Numbers& truth, const VerifyModel& other, const Numbers& numbers,
               const Tolerances& tolerances) {
    VerifyOther known{&numbers, kUnit64, other.config, {}};
    const std::vector<ParameterSpec> specs = parameter_specs(other.config);
    for (size_t i = 0; i < specs.size(); ++i) known.weights[specs[i].name] = &other.weights[i];
    return find_cause({model, truth, inputs_, known, tolerances, out_.first->tensor}, options_.say);
  }

  // A mistake may be in either of the two.
  void explain(const Tolerances& tolerances) {
    add_cause(out_, search(a_, truth_, b_, other_, tolerances), "in B");
    if (out_.cause.empty()) add_cause(out_, search(b_, other_, a_, truth_, tolerances), "in A");
  }

  void notes() {
    const std::vector<std::string> config =
        differences(object(hf_config_text(a_.config)), object(hf_config_text(b_.config)));
    for (const std::string& line : config) out_.notes.push_back("config.json: " + line);
    const bool folded = a_.config.tie_word_embeddings != b_.config.tie_word_embeddings;
    if (folded) out_.notes.emplace_back("gradients of table and head are added up, since only one side ties them");
    const std::vector<std::string> settings = differences(object(a_.settings), object(b_.settings));
    for (const std::string& line : settings)
      out_.notes.push_back("generation_config.json, which changes no logits: " + line);
    if (settings.empty()) return;
    for (const VerifyModel* model : {&a_, &b_})
      out_.notes.push_back(fmt::format("generation_config.json of {}: {}", model == &a_ ? "A" : "B",
                                       model->settings.empty() ? "absent" : model->settings));
  }

  const VerifyModel &a_, &b_;
  const VerifyInputs& inputs_;
  const VerifyOptions& options_;
  Numbers truth_, other_;
  VerifyReport out_;
};

}  // namespace

VerifyReport verify_models(const VerifyModel& a, const VerifyModel& b, const VerifyInputs& inputs,
                           const VerifyOptions& options) {
  return ModelPair(a, b, inputs, options).run();
}

}  // namespace lamina

// A model, computed here, and the numbers of another program.
#include <algorithm>

#include "base/error.h"
#include "migrate/verify_report.h"
#include "migrate/verify_verdict.h"

namespace lamina {
namespace {

// Logits, and gradients of tables, may have more columns: those of padded rows.
bool fits(const NamedNumbers& ours, const NamedNumbers& theirs) {
  std::vector<int64_t> shape = theirs.shape;
  const bool wide = ours.name == "logits" || ours.name == "grad.embedding.token" || ours.name == "grad.head.weight";
  if (wide && !shape.empty() && shape.back() > ours.shape.back()) shape.back() = ours.shape.back();
  return shape == ours.shape;
}

void check_shapes(const Numbers& truth, const Witness& witness) {
  bool any = !witness.losses.empty();
  for (const NamedNumbers& tensor : truth) {
    const NamedNumbers* other = find_numbers(witness.numbers, tensor.name);
    if (other == nullptr) continue;
    any = true;
    if (!fits(tensor, *other))
      throw_error(ErrorCode::invalid, "wrong shape: {}: {}: expected {}, got {}", witness.path, tensor.name,
                  fmt::join(tensor.shape, "x"), fmt::join(other->shape, "x"));
  }
  if (!any)
    throw_error(ErrorCode::invalid, "nothing to compare: {}: expected a tensor such as logits or loss, got none",
                witness.path);
}

// The losses of several steps: each step rounds once more.
TensorGap losses_gap(const VerifyModel& a, const Witness& witness, const VerifyInputs& inputs, double tolerance) {
  const auto steps = std::ssize(witness.losses);
  if (!witness.lr)
    throw_error(ErrorCode::invalid, "losses without a rate: {}: metadata, expected lr, got none", witness.path);
  const NamedNumbers ours{"losses", {steps}, reference_losses(a, inputs, steps, *witness.lr)};
  TensorGap out = *gap_of({}, ours, {"losses", {steps}, witness.losses});
  out.tolerance = tolerance * static_cast<double>(steps);
  return out;
}

// Of numbers, and of losses where there are any.
std::vector<TensorGap> gaps_of(const VerifyModel& a, const Numbers& truth, const Witness& witness,
                               const VerifyInputs& inputs, const Tolerances& tolerances, const VerifyOptions& options) {
  const double units = witness.unit + kUnit64;
  std::vector<TensorGap> out = compare_numbers(truth, witness.numbers, tolerances, units, options.tolerance);
  if (witness.losses.empty()) return out;
  options.say(fmt::format("{} steps in double", witness.losses.size()));
  out.push_back(losses_gap(a, witness, inputs, options.tolerance.value_or(tolerances.of("loss", units))));
  return out;
}

// Whether all that it computes is finite.
bool compare_fast(VerifyReport& out, const VerifyModel& a, const Numbers& truth, const VerifyInputs& inputs,
                  const Tolerances& tolerances, const VerifyOptions& options) {
  const char* what = "A in fp32 and in double";
  options.say(what);
  const Numbers numbers = FastModel(a, inputs, options.threads).numbers();
  add_comparison(out, "fast_a", what, compare_numbers(truth, numbers, tolerances, kUnit32 + kUnit64));
  return check_finite(out, numbers, "A in fp32");
}

}  // namespace

VerifyReport verify_witness(const VerifyModel& a, const Witness& witness, const VerifyInputs& inputs,
                            const VerifyOptions& options) {
  VerifyReport out;
  if (!check_finite(out, a, "A")) return out;
  options.say(fmt::format("A in double, {} x {} tokens", inputs.rows, inputs.seq));
  const Numbers truth = reference_numbers<double>(WhatIf(a), inputs);
  check_shapes(truth, witness);
  if (!check_finite(out, truth, "A in double")) return out;
  options.say("A in plain fp32, for the tolerances");
  const Tolerances own = measure_rounding(a, truth, inputs, options.threads);
  const Tolerances tolerances =
      witness.softmax_error > 0.0 ? measure_rounding(a, truth, inputs, options.threads, witness.softmax_error) : own;
  const std::vector<TensorGap> gaps = gaps_of(a, truth, witness, inputs, tolerances, options);
  add_comparison(out, "models", "A in double and the witness", gaps);
  out.compared = std::ssize(gaps);
  out.tensors = std::ssize(truth) + (witness.losses.empty() ? 0 : 1);
  const bool same = out.equal, sound = check_finite(out, gaps, "the witness");
  const bool finite = compare_fast(out, a, truth, inputs, own, options) && sound;
  if (!same && finite) {
    VerifyOther other{&witness.numbers, witness.unit, {}, {}};
    for (const auto& [name, values] : witness.weights) other.weights[name] = &values;
    add_cause(out, find_cause({a, truth, inputs, other, tolerances, out.first->tensor}, options.say), "in the witness");
  }
  explain_fast(out, same);
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

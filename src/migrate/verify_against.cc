// A model, computed here, and the numbers of another program.
#include <algorithm>

#include "base/error.h"
#include "migrate/verify_report.h"

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

}  // namespace

VerifyReport verify_witness(const VerifyModel& a, const Witness& witness, const VerifyInputs& inputs,
                            const VerifyOptions& options) {
  options.say(fmt::format("A in double, {} x {} tokens", inputs.rows, inputs.seq));
  const Numbers truth = reference_numbers<double>(WhatIf(a), inputs);
  check_shapes(truth, witness);
  options.say("A in plain fp32, for the tolerances");
  const Tolerances own = measure_rounding(a, truth, inputs, options.threads);
  const Tolerances tolerances =
      witness.softmax_error > 0.0 ? measure_rounding(a, truth, inputs, options.threads, witness.softmax_error) : own;
  const double units = witness.unit + kUnit64;
  VerifyReport out;
  std::vector<TensorGap> gaps = compare_numbers(truth, witness.numbers, tolerances, units, options.tolerance);
  if (!witness.losses.empty()) {
    options.say(fmt::format("{} steps in double", witness.losses.size()));
    gaps.push_back(losses_gap(a, witness, inputs, options.tolerance.value_or(tolerances.of("loss", units))));
  }
  add_comparison(out, "models", "A in double and the witness", std::move(gaps));
  if (!out.equal) {
    VerifyOther other{&witness.numbers, witness.unit, {}, {}};
    for (const auto& [name, values] : witness.weights) other.weights[name] = &values;
    add_cause(out, find_cause({a, truth, inputs, other, tolerances, out.first->tensor}, options.say), "in the witness");
  }
  const char* what = "A in fp32 and in double";
  options.say(what);
  add_comparison(out, "fast_a", what,
                 compare_numbers(truth, FastModel(a, inputs, options.threads).numbers(), own, kUnit32 + kUnit64));
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

// Gradients of whole models against the complex step: f'(x) = Im f(x + i·1e-50) / 1e-50, exact to rounding and without
// a step size to tune. The forward graph runs on complex<double>; the gradients are those of the compiled micro_step,
// run on double, so that autodiff and every pass after it are tested at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <map>
#include <string>

#include "base/rng.h"
#include "compile.h"
#include "passes/pass.h"
#include "reference/interpreter.h"

namespace lamina {
namespace {

using Complex = std::complex<double>;

constexpr int64_t kRows = 3, kTokens = 13;
constexpr double kStep = 1e-50;

ModelConfig odd_config() {
  ModelConfig config;
  config.vocab_size = 97;
  config.n_positions = 17;
  config.n_embd = 24;
  config.n_layer = 2;
  config.n_head = 3;
  config.n_inner = 52;
  config.resid_pdrop = 0.1;
  config.embd_pdrop = 0.2;
  config.attn_pdrop = 0.3;
  config.bos_token_id = config.eos_token_id = 96;
  return config;
}

// Rows of different lengths, one with two documents in it, one that starts late, targets that are ignored in the
// middle.
struct Batch {
  std::vector<int64_t> tokens, targets, positions, key_begin;
  int64_t valid = 0;
};

Batch odd_batch() {
  Batch batch;
  Rng rng(7);
  const int64_t begin[kRows] = {0, 0, 3}, end[kRows] = {13, 9, 12};
  for (int64_t b = 0; b < kRows; ++b)
    for (int64_t t = 0; t < kTokens; ++t) {
      const int64_t start = b == 1 && t >= 5 ? 5 : begin[b];
      const bool ignored = t < start || t >= end[b] || (b == 0 && t == 6);
      batch.tokens.push_back(static_cast<int64_t>(rng.below(97)));
      batch.positions.push_back(std::max<int64_t>(t - start, 0));
      batch.key_begin.push_back(start);
      batch.targets.push_back(ignored ? -1 : static_cast<int64_t>(rng.below(97)));
      batch.valid += !ignored;
    }
  return batch;
}

template <typename S>
void set_inputs(Interpreter<S>& interpreter, const Batch& batch) {
  using Tensor = typename Interpreter<S>::Tensor;
  const auto ints = [&](const char* name, std::vector<int64_t> values) {
    interpreter.set(name, Tensor{{}, {}, std::move(values)});
  };
  const auto scalar = [&](const char* name, double value) { interpreter.set(name, Tensor{{}, {S(value)}, {}}); };
  ints("tokens", batch.tokens);
  ints("targets", batch.targets);
  ints("positions", batch.positions);
  ints("key_begin", batch.key_begin);
  ints("rng", {11, 3});
  ints("sample", {40, 41, 57});
  scalar("target_weight", 1.0 / static_cast<double>(batch.valid));
  scalar("loss_scale", 1.0);
}

using Weights = std::map<std::string, std::vector<double>>;

Weights random_weights(const std::vector<ParameterSpec>& specs) {
  Weights weights;
  Rng rng(5);
  for (const ParameterSpec& spec : specs) {
    std::vector<double>& values = weights[spec.name];
    for (int64_t i = 0; i < spec.shape.elements(); ++i) values.push_back(spec.init_mean + 0.3 * rng.normal());
  }
  return weights;
}

class ComplexLoss {
 public:
  ComplexLoss(const ModelConfig& config, const Weights& weights, const Batch& batch)
      : forward_(build_forward("forward", config, {.batch = kRows, .seq = kTokens, .training = true})),
        weights_(weights) {
    std::vector<PassRecord> records;
    run_passes(forward_.graph, forward_passes(), {}, {}, records);
    set_inputs(interpreter_, batch);
    for (const auto& [name, values] : weights_) set(name, values.size(), 0);
  }

  double derivative(const std::string& name, size_t element) {
    set(name, element, kStep);
    interpreter_.run(forward_.graph);
    const double out = interpreter_.get("loss").values[0].imag() / kStep;
    set(name, element, 0);
    return out;
  }

 private:
  void set(const std::string& name, size_t element, double step) {
    Interpreter<Complex>::Tensor tensor;
    for (double value : weights_.at(name)) tensor.values.emplace_back(value, 0.0);
    if (element < tensor.values.size()) tensor.values[element] += Complex(0.0, step);
    interpreter_.set(name, std::move(tensor));
  }

  ForwardGraph forward_;
  const Weights& weights_;
  Interpreter<Complex> interpreter_;
};

double largest(const std::vector<double>& values) {
  double out = 0.0;
  for (double value : values) out = std::max(out, std::abs(value));
  return out;
}

void expect_gradients_agree(const ModelConfig& config, int samples) {
  const std::vector<ParameterSpec> specs = parameter_specs(config);
  const Weights weights = random_weights(specs);
  const Batch batch = odd_batch();
  const Compiled compiled = compile(config, {.batch = kRows, .seq = kTokens, .keep_gradients = true});
  Interpreter<double> backward;
  set_inputs(backward, batch);
  for (const auto& [name, values] : weights) backward.set(name, {{}, values, {}});
  backward.run(compiled.graphs[0]);

  ComplexLoss loss(config, weights, batch);
  Rng pick(9);
  for (const ParameterSpec& spec : specs) {
    const std::vector<double>& gradient = backward.get("grad." + spec.name).values;
    ASSERT_EQ(static_cast<int64_t>(gradient.size()), spec.shape.elements()) << spec.name;
    double scale = largest(gradient);
    // A bias of all keys shifts all scores of a query alike: its gradient is 0, and rounding is measured in queries'.
    if (const size_t at = spec.name.find(".k.bias"); at != std::string::npos)
      scale = largest(backward.get("grad." + std::string(spec.name).replace(at, 7, ".q.bias")).values);
    EXPECT_GT(scale, 1e-6) << spec.name;
    for (int i = 0; i < samples; ++i) {
      // The largest element first: a sample of zeros would prove little in the sparse tables.
      const auto top = std::max_element(gradient.begin(), gradient.end(),
                                        [](double a, double b) { return std::abs(a) < std::abs(b); });
      const size_t element = i == 0 ? static_cast<size_t>(top - gradient.begin()) : pick.below(gradient.size());
      EXPECT_NEAR(gradient[element], loss.derivative(spec.name, element), 1e-9 * scale) << spec.name << " " << element;
    }
  }
}

struct Variant {
  const char* activation;
  bool tied, scale, inverse;
};

class ComplexStep : public testing::TestWithParam<Variant> {};

TEST_P(ComplexStep, AgreesWithAutodiff) {
  ModelConfig config = odd_config();
  config.activation_function = GetParam().activation;
  config.tie_word_embeddings = GetParam().tied;
  config.scale_attn_weights = GetParam().scale;
  config.scale_attn_by_inverse_layer_idx = GetParam().inverse;
  expect_gradients_agree(config, 3);
}

// Every pair of settings occurs.
INSTANTIATE_TEST_SUITE_P(Settings, ComplexStep,
                         testing::Values(Variant{"gelu_new", true, true, false}, Variant{"gelu", false, true, true},
                                         Variant{"gelu_new", false, false, true}, Variant{"gelu", true, false, false},
                                         Variant{"gelu", true, true, true}, Variant{"gelu_new", false, false, false}));

}  // namespace
}  // namespace lamina

#include "train/step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "io/files.h"
#include "train/tiny_run.h"

namespace lamina {
namespace {

using test::expect_error;
using test::Rows;
using test::tiny_config;
using test::tiny_rows;
using test::TinyRun;

double eval_loss(std::vector<std::vector<int32_t>> ids, int64_t batch, int64_t seq) {
  TinyRun run({.batch = batch, .seq = seq, .train = false, .eval = true});
  Rows rows(std::move(ids));
  EvalResult total;
  EvalStep(run.session()).add(rows.rows(), total);
  return total.mean();
}

TEST(EvalStep, N10_TinyPrompt) {
  const std::vector<int32_t>& prompt = test::tiny_prompt();
  EXPECT_NEAR(eval_loss({prompt}, 1, 16), 4.388856175, 2e-6);
  EXPECT_NEAR(eval_loss({prompt}, 4, 11), 4.388856175, 2e-6);
}

// Padding id = end id: what is ignored is known by place, never by the id. 6 targets, both true ends among them.
TEST(EvalStep, N7_EndsCountAndPaddingDoesNot) {
  EXPECT_NEAR(eval_loss({{5, 17, 96}, {47, 30, 79, 88, 96}}, 2, 5), 5.097026, 2e-6);
}

// N25: the places that pad a panel of the vocabulary are no ids: with equal logits the loss is ln V.
TEST(EvalStep, PaddedVocabularyCountsForNothing) {
  for (const auto& [vocab, loss] : {std::pair<int64_t, double>{97, 4.574711}, {50257, 10.824905}}) {
    ModelConfig config = tiny_config();
    config.vocab_size = vocab;
    TinyRun run({.batch = 2, .seq = 8, .train = false, .eval = true}, config);
    for (const ParameterSpec& spec : run.specs()) run.session().fill(spec.name, 0.0f);
    Rows rows(tiny_rows(2));
    EvalResult total;
    EvalStep(run.session()).add(rows.rows(), total);
    EXPECT_NEAR(total.mean(), loss, 2e-6);
  }
}

// A row's loss does not depend on what stands in the next one.
TEST(EvalStep, N10RowsDoNotSeeOneAnother) {
  TinyRun run({.batch = 2, .seq = 16, .train = false, .eval = true});
  EvalStep step(run.session());
  const std::vector<int32_t>& prompt = test::tiny_prompt();
  const std::vector<int32_t> ignored(prompt.size() - 1, kIgnored);
  std::vector<double> losses;
  for (const int32_t first : {5, 6, 96}) {
    std::vector<int32_t> other = prompt;
    other[0] = first;
    const Row rows[] = {{.tokens = std::span(prompt).first(11), .targets = std::span(prompt).subspan(1)},
                        {.tokens = std::span(other).first(11), .targets = ignored}};
    EvalResult total;
    step.add(rows, total);
    EXPECT_EQ(total.tokens, 11);
    losses.push_back(total.loss_sum);
  }
  EXPECT_NEAR(losses[0] / 11.0, 4.388856175, 2e-6);
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(losses[0], losses[2]);
}

TEST(EvalStep, SumsOverManyRows) {
  TinyRun run({.batch = 3, .seq = 16, .train = false, .eval = true});
  EvalStep step(run.session());
  Rows rows(tiny_rows(8));
  EvalResult together, apart;
  step.add(rows.rows(), together);
  for (const Row& row : rows.rows()) step.add(std::span(&row, 1), apart);
  EXPECT_EQ(together.tokens, 64);
  EXPECT_EQ(apart.tokens, 64);
  EXPECT_NEAR(together.mean(), apart.mean(), 1e-6);
  EXPECT_NEAR(together.mean(), 5.194963, 2e-6);
}

TEST(TrainStep, N11_UnequalMicroBatchesAreWeightedByTargets) {
  for (int64_t accumulate : {1, 2}) {
    TinyRun run({.batch = 2 / accumulate, .seq = 16, .accumulate = accumulate});
    TrainStep step(run.session(), {.accumulate = accumulate});
    Rows rows({{3, 91}, {47, 30, 79, 88}});
    const StepResult result = step.step(rows.rows(), 1, 1e-3);
    EXPECT_NEAR(result.loss, 5.405308, 3e-6) << accumulate;
    EXPECT_EQ(result.tokens, 4);
    EXPECT_TRUE(result.finite);
  }
}

// Rows of one step in 1, 2, 4 and 8 micro-batches: the same losses, norms and weights.
TEST(TrainStep, N13_AccumulationChangesNothing) {
  std::vector<StepResult> expected;
  std::vector<std::vector<float>> weights;
  for (int64_t accumulate : {1, 2, 4, 8}) {
    TinyRun run({.batch = 8 / accumulate, .seq = 8, .accumulate = accumulate});
    TrainStep step(run.session(), {.accumulate = accumulate});
    Rows rows(tiny_rows(8));
    for (int64_t s = 1; s <= 3; ++s) {
      const StepResult result = step.step(rows.rows(), s, 1e-3);
      if (s == 1) {
        EXPECT_NEAR(result.loss, 5.194963, 3e-6);
      }
      if (accumulate == 1) expected.push_back(result);
      const StepResult& other = expected[static_cast<size_t>(s - 1)];
      EXPECT_NEAR(result.loss, other.loss, 1e-6 * other.loss) << accumulate << " step " << s;
      EXPECT_NEAR(result.grad_norm, other.grad_norm, 1e-6 * other.grad_norm) << accumulate << " step " << s;
    }
    size_t tensor = 0;
    for (const ParameterSpec& spec : run.specs()) {
      // The true gradient of a key bias is 0: rounding noise, which AdamW amplifies.
      if (spec.name.ends_with("attention.k.bias")) continue;
      const std::vector<float> values = run.read(spec.name);
      if (accumulate == 1) weights.push_back(values);
      const std::vector<float>& first = weights[tensor++];
      float most = 0.0f, gap = 0.0f;
      for (size_t i = 0; i < values.size(); ++i) {
        most = std::max(most, std::abs(first[i]));
        gap = std::max(gap, std::abs(values[i] - first[i]));
      }
      EXPECT_LE(gap, 1e-5f * most) << spec.name << " with " << accumulate;
    }
  }
}

TEST(TrainStep, N8_LeftPaddingChangesNothing) {
  const auto loss_and_norm = [](int64_t start) {
    TinyRun run({.batch = 3, .seq = 16});
    TrainStep step(run.session(), {});
    Rows rows({{5, 17, 80, 3, 41}, {47, 30, 79, 88, 91, 2}});
    rows.rows()[0].start = start;
    return step.step(rows.rows(), 1, 1e-3);
  };
  const StepResult plain = loss_and_norm(0);
  for (int64_t start : {1, 5, 12}) {
    const StepResult padded = loss_and_norm(start);
    EXPECT_NEAR(padded.loss, plain.loss, 1e-6 * plain.loss) << start;
    EXPECT_NEAR(padded.grad_norm, plain.grad_norm, 1e-5 * plain.grad_norm) << start;
  }
}

// All gradients 0, one update with rate and decay 0.1: matrices shrink by 0.99, vectors stay as they are.
TEST(TrainStep, N22_WhatDecays) {
  TinyRun run({.batch = 1, .seq = 8, .keep_gradients = true, .update = {.weight_decay = 0.1}});
  TrainStep step(run.session(), {});
  std::vector<std::vector<float>> before;
  for (const ParameterSpec& spec : run.specs()) before.push_back(run.read(spec.name));
  StepResult result;
  step.update(0.1, result);
  EXPECT_EQ(result.grad_norm, 0.0);
  int64_t decayed = 0, kept = 0;
  for (size_t i = 0; i < run.specs().size(); ++i) {
    const std::vector<float> after = run.read(run.specs()[i].name);
    const bool matrix = run.specs()[i].shape.rank == 2;
    (matrix ? decayed : kept) += std::ssize(after);
    for (size_t j = 0; j < after.size(); ++j) {
      if (matrix)
        EXPECT_NEAR(after[j], 0.99f * before[i][j], 1e-6f * std::abs(before[i][j])) << run.specs()[i].name;
      else
        EXPECT_EQ(after[j], before[i][j]) << run.specs()[i].name;
    }
  }
  EXPECT_EQ(decayed, 7952);
  EXPECT_EQ(kept, 448);
}

TEST(TrainStep, ANonFiniteStepIsSkippedWhole) {
  for (int64_t accumulate : {1, 2}) {
    TinyRun run({.batch = 2, .seq = 8, .accumulate = accumulate, .update = {.weight_decay = 0.1, .clip = 1.0}});
    TrainStep step(run.session(), {.accumulate = accumulate});
    Rows rows(tiny_rows(4));
    const std::span<const Row> some = std::span<const Row>(rows.rows()).first(static_cast<size_t>(2 * accumulate));
    EXPECT_TRUE(step.step(some, 1, 1e-3).finite);
    const std::vector<float> healthy = run.read("ln_f.bias");
    run.session().fill("ln_f.bias", std::nanf(""));
    const std::vector<float> before = run.read("layer.1.mlp.fc.weight"), moments = run.read("m.layer.1.mlp.fc.weight");
    EXPECT_FALSE(step.step(some, 2, 1e-3).finite);
    EXPECT_EQ(run.read("layer.1.mlp.fc.weight"), before);
    EXPECT_EQ(run.read("m.layer.1.mlp.fc.weight"), moments);
    EXPECT_EQ(step.updates(), 1);
    run.session().write("ln_f.bias", {healthy.data(), 0, 1});
    EXPECT_TRUE(step.step(some, 3, 1e-3).finite);  // nothing of the bad step is left in the sums
    EXPECT_EQ(step.updates(), 2);
    EXPECT_NE(run.read("layer.1.mlp.fc.weight"), before);
  }
}

// One id has the logit `size` and the targets have -size: from some 2e37 on the sum of the eight losses is infinite,
// while the squares of the gradients, each some `size` in all, are not.
StepResult step_with_logits(double size, int64_t accumulate, bool expect_update) {
  TinyRun run({.batch = 2 / accumulate, .seq = 8, .accumulate = accumulate, .update = {.weight_decay = 0.1}});
  const Shape shape = run.session().tensor("embedding.token").shape;  // (C, V)
  const float w = static_cast<float>(std::sqrt(size / (2.0 * static_cast<double>(shape[0]))));
  std::vector<float> table(static_cast<size_t>(shape.elements()));
  for (auto row = table.begin(); row != table.end(); row += shape[1]) {
    std::fill_n(row + 2, 8, -w);
    row[10] = w;
  }
  run.session().write("embedding.token", {table.data(), shape[1], 1});
  run.session().fill("ln_f.weight", 0.0f);
  run.session().fill("ln_f.bias", 2.0f * w);
  const std::vector<float> before = run.weights();
  TrainStep step(run.session(), {.accumulate = accumulate});
  Rows rows({{1, 2, 3, 4, 5}, {5, 6, 7, 8, 9}});
  const StepResult result = step.step(rows.rows(), 1, 1e-3);
  EXPECT_EQ(run.weights() != before, expect_update) << size;
  EXPECT_EQ(step.updates(), expect_update ? 1 : 0) << size;
  return result;
}

TEST(TrainStep, AnInfiniteLossIsSkippedThoughTheNormIsFinite) {
  for (int64_t accumulate : {1, 2}) {
    const StepResult good = step_with_logits(1e37, accumulate, true);
    EXPECT_TRUE(good.finite && std::isfinite(good.loss)) << good.loss;
    const StepResult bad = step_with_logits(8e37, accumulate, false);
    EXPECT_TRUE(std::isfinite(bad.grad_norm)) << bad.grad_norm;
    EXPECT_FALSE(bad.finite || std::isfinite(bad.loss)) << bad.loss;
  }
}

// One element of one gradient is not finite: the tensor is named, of several the first on the way back from the loss.
TEST(TrainStep, N16TheBadGradientIsNamed) {
  for (const double clip_layer : {0.0, 1.0}) {
    TinyRun run({.batch = 2, .seq = 8, .keep_gradients = true, .update = {.clip = 1.0, .clip_layer = clip_layer}});
    TrainStep step(run.session(), {});
    Rows rows(tiny_rows(2));
    const auto spoil = [&](const std::string& name, float value) {
      std::vector<float> values = run.read("grad." + name);
      values[values.size() / 2] = value;
      run.session().write("grad." + name, {values.data(), run.session().tensor(name).shape.last(), 1});
    };
    StepResult result = step.backward(rows.rows(), 1);
    step.update(1e-3, result);
    EXPECT_TRUE(result.finite);
    EXPECT_EQ(step.bad_gradient(), "");
    const std::vector<float> before = run.weights();
    result = step.backward(rows.rows(), 2);
    spoil("layer.1.mlp.fc.weight", std::nanf(""));
    step.update(1e-3, result);
    EXPECT_FALSE(result.finite);
    EXPECT_EQ(step.bad_gradient(), "layer.1.mlp.fc.weight");
    result = step.backward(rows.rows(), 3);
    spoil("layer.0.ln_1.bias", std::nanf(""));
    spoil("layer.0.attention.k.weight", INFINITY);
    step.update(1e-3, result);
    EXPECT_EQ(step.bad_gradient(), "layer.0.attention.k.weight");
    EXPECT_EQ(run.weights(), before);
    EXPECT_EQ(step.updates(), 1);
  }
}

// Also where it lies behind the first block of squares.
TEST(TrainStep, N16TheBadGradientIsNamedWhereverItIsBad) {
  ModelConfig config = tiny_config();
  config.n_embd = 136;
  TinyRun run({.batch = 1, .seq = 2, .keep_gradients = true}, config);
  const std::string name = "layer.0.mlp.fc.weight";
  const Shape shape = run.session().tensor(name).shape;
  ASSERT_GT(shape.elements(), kSquareSumBlock);
  for (const ParameterSpec& spec : run.specs()) run.session().fill("grad." + spec.name, 0.0f);
  std::vector<float> values(static_cast<size_t>(shape.elements()), 0.0f);
  values.back() = INFINITY;
  run.session().write("grad." + name, {values.data(), shape.last(), 1});
  TrainStep step(run.session(), {});
  StepResult result;
  step.update(1e-3, result);
  EXPECT_FALSE(result.finite);
  EXPECT_EQ(step.bad_gradient(), name);
}

TEST(TrainStep, NoTargetsNoStep) {
  TinyRun run({.batch = 1, .seq = 8, .update = {.weight_decay = 0.1}});
  TrainStep step(run.session(), {});
  const std::vector<int32_t> tokens{1, 2}, targets{-100, -1};
  const Row row{tokens, targets};
  const std::vector<float> before = run.weights();
  const StepResult result = step.step(std::span(&row, 1), 1, 0.1);
  EXPECT_EQ(result.tokens, 0);
  EXPECT_EQ(result.loss, 0.0);
  EXPECT_EQ(run.weights(), before);
  EXPECT_EQ(step.updates(), 0);
}

// Dropout is keyed by (seed, step, sample): equal for any cut into micro-batches, different for each of its keys.
TEST(TrainStep, DropoutIsKeyed) {
  ModelConfig config = tiny_config();
  config.attn_pdrop = config.embd_pdrop = config.resid_pdrop = 0.5;
  const auto loss = [&](int64_t accumulate, uint64_t seed, int64_t step_number) {
    TinyRun run({.batch = 4 / accumulate, .seq = 8, .accumulate = accumulate}, config);
    Rows rows(tiny_rows(4));
    return TrainStep(run.session(), {.seed = seed, .accumulate = accumulate}).step(rows.rows(), step_number, 0.0).loss;
  };
  const double first = loss(1, 1, 1);
  EXPECT_EQ(loss(1, 1, 1), first);
  EXPECT_NEAR(loss(2, 1, 1), first, 1e-6 * first);
  EXPECT_NEAR(loss(4, 1, 1), first, 1e-6 * first);
  EXPECT_GT(std::abs(loss(1, 2, 1) - first), 1e-3);
  EXPECT_GT(std::abs(loss(1, 1, 2) - first), 1e-3);
}

TEST(TrainStep, N24_EqualBitsForAnyNumberOfThreads) {
  std::vector<float> expected;
  for (int threads : {1, 2, 3, 4}) {
    TinyRun run({.batch = 2, .seq = 8, .accumulate = 2, .update = {.clip = 1.0}}, tiny_config(), threads);
    TrainStep step(run.session(), {.accumulate = 2});
    Rows rows(tiny_rows(4));
    for (int64_t s = 1; s <= 3; ++s) step.step(rows.rows(), s, 1e-3);
    if (threads == 1) expected = run.weights();
    EXPECT_EQ(run.weights(), expected) << threads;
  }
}

TEST(TrainStep, RefusesWhatDoesNotFit) {
  TinyRun run({.batch = 1, .seq = 8});
  TrainStep step(run.session(), {});
  const std::vector<float> before = run.weights();
  const auto refuse = [&](std::vector<int32_t> tokens, std::vector<int32_t> targets, int64_t start,
                          const std::vector<std::string>& words) {
    const Row row{tokens, targets, start};
    expect_error([&] { step.step(std::span(&row, 1), 1, 0.1); }, ErrorCode::invalid, words);
  };
  refuse({1, 97}, {1, 2}, 0, {"tokens", "position 1", "96", "97"});
  refuse({1, -1}, {1, 2}, 0, {"tokens", "-1"});
  refuse({1, 2}, {1, 97}, 0, {"targets", "97"});
  refuse({1, 2}, {1}, 0, {"2 tokens", "1 targets"});
  refuse({1, 2, 3}, {1, 2, 3}, 6, {"3 tokens", "6", "8"});
  refuse({1}, {1}, -1, {"-1"});
  Rows two(tiny_rows(2));
  expect_error([&] { step.step(two.rows(), 1, 0.1); }, ErrorCode::invalid, {"at most 1", "2"});
  expect_error([&] { TrainStep(run.session(), {.accumulate = 2}); }, ErrorCode::invalid, {"1", "2"});
  EXPECT_EQ(run.weights(), before);
}

}  // namespace
}  // namespace lamina

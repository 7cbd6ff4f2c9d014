// Documents of one row that do not see each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/rng.h"
#include "io/files.h"
#include "train/batches.h"
#include "train/tiny_run.h"

namespace lamina {
namespace {

using test::Rows;
using test::TinyRun;

constexpr int32_t kEnd = 96;
const std::vector<int32_t> kA{5, 17, 80, 3, 41}, kB{0, 95, 62, 23, 7, 7};

// A row of documents, with its borders; the step over a border is no target.
struct Packed {
  std::vector<int32_t> tokens, targets, borders;
  void add(std::span<const int32_t> document) {
    if (!tokens.empty()) borders.push_back(static_cast<int32_t>(tokens.size()));
    tokens.insert(tokens.end(), document.begin(), document.end());
    targets.insert(targets.end(), document.begin() + 1, document.end());
    targets.push_back(kIgnored);
  }
  Row row() const { return {.tokens = tokens, .targets = targets, .borders = borders}; }
};

struct Outcome {
  double loss = 0.0;
  int64_t tokens = 0;
  std::vector<std::vector<float>> gradients;
};

Outcome loss_and_gradients(std::span<const Row> rows, int64_t batch) {
  TinyRun run({.batch = batch, .seq = 16, .keep_gradients = true});
  TrainStep step(run.session(), {});
  const StepResult result = step.backward(rows, 1);
  Outcome out{result.loss, result.tokens, {}};
  for (const ParameterSpec& spec : run.specs()) out.gradients.push_back(run.read("grad." + spec.name));
  return out;
}

// Loss to rounding, each gradient to 1e-5 of the tensor's largest.
void expect_same(const Outcome& packed, const Outcome& alone) {
  EXPECT_EQ(packed.tokens, alone.tokens);
  EXPECT_NEAR(packed.loss, alone.loss, 1e-6 * alone.loss);
  double largest = 0.0;
  for (const auto& values : alone.gradients)
    for (const float value : values) largest = std::max(largest, std::abs(static_cast<double>(value)));
  for (size_t t = 0; t < alone.gradients.size(); ++t) {
    double most = 0.0, gap = 0.0;
    for (size_t i = 0; i < alone.gradients[t].size(); ++i) {
      most = std::max(most, std::abs(static_cast<double>(alone.gradients[t][i])));
      gap = std::max(gap, std::abs(static_cast<double>(packed.gradients[t][i]) - alone.gradients[t][i]));
    }
    // The true gradient of a key bias is 0: there only rounding noise is left.
    EXPECT_LE(gap, 1e-5 * std::max(most, 1e-2 * largest)) << t;
  }
}

std::vector<float> logits_of(const Row& row) {
  TinyRun run({.batch = 1, .seq = 16, .train = false, .eval = true, .forward = true});
  BatchInputs inputs(run.session());
  inputs.fill(std::span(&row, 1), 0);
  run.session().run(run.session().program("forward"));
  const std::span<const float> logits = run.session().floats("logits");
  return {logits.begin(), logits.end()};
}

TEST(Documents, T19TwoInOneRow) {
  Packed packed, changed, alone;
  packed.add(kA), packed.add(kB);
  std::vector<int32_t> other = kA;
  other[2] = 81;
  changed.add(other), changed.add(kB);
  alone.add(kB);
  const std::vector<float> before = logits_of(packed.row()), after = logits_of(changed.row()),
                           apart = logits_of(alone.row());
  const size_t begin = 97 * kA.size(), count = 97 * kB.size();
  EXPECT_NE(before, after);
  EXPECT_EQ(std::memcmp(before.data() + begin, after.data() + begin, count * sizeof(float)), 0);
  for (size_t i = 0; i < count; ++i) EXPECT_NEAR(before[begin + i], apart[i], 1e-5);

  const Row row = packed.row();
  const Outcome together = loss_and_gradients(std::span(&row, 1), 1);
  EXPECT_EQ(together.tokens, 9);
  EXPECT_NEAR(together.loss, (16.911107 + 24.022348) / 9.0, 2e-6);
  EXPECT_NEAR(together.loss, 4.548162, 2e-6);
  // Padding in front or behind never switches isolation off.
  Row padded = row;
  padded.start = 5;
  EXPECT_NEAR(loss_and_gradients(std::span(&padded, 1), 1).loss, together.loss, 1e-6 * together.loss);
  // Without borders it is one text, and another loss.
  const Row mixed{.tokens = packed.tokens, .targets = packed.targets};
  EXPECT_GT(std::abs(loss_and_gradients(std::span(&mixed, 1), 1).loss - together.loss), 1e-3);

  Rows apart_rows({kA, kB});
  expect_same(together, loss_and_gradients(apart_rows.rows(), 2));
}

// Random documents, from one token to more than a window, through Batches and alone.
TEST(Documents, T19LossAndGradientsAreThoseOfDocumentsAlone) {
  Rng rng(3);
  std::vector<int32_t> ids;
  while (ids.size() < 33) {
    for (uint64_t n = rng.below(20); n > 0; --n) ids.push_back(static_cast<int32_t>(rng.below(96)));
    ids.push_back(kEnd);
  }
  ids.resize(33);
  TokenStream stream;
  stream.add(ids);
  Batches batches(stream, {.seq = 16, .rows = 2, .document_end = kEnd});
  const Outcome packed = loss_and_gradients(batches.rows(1), 2);

  std::vector<std::vector<int32_t>> alone;  // each part of a document that a window holds, and its last target
  for (size_t begin = 0; begin < 32; begin += 16) {
    alone.emplace_back();
    for (size_t i = begin; i < begin + 16; ++i) {
      alone.back().push_back(ids[i]);
      if (ids[i] == kEnd) alone.emplace_back();
    }
    if (!alone.back().empty()) alone.back().push_back(ids[begin + 16]);
  }
  std::erase_if(alone, [](const std::vector<int32_t>& part) { return part.size() < 2; });
  EXPECT_GT(alone.size(), 2u);
  Rows rows(alone);
  expect_same(packed, loss_and_gradients(rows.rows(), std::ssize(alone)));
}

TEST(Documents, EvaluationIsolatesToo) {
  Packed packed;
  packed.add(kA), packed.add(kB);
  const Row row = packed.row();
  TinyRun run({.batch = 2, .seq = 16, .train = false, .eval = true});
  EvalStep step(run.session());
  EvalResult total;
  step.add(std::span(&row, 1), total);
  EXPECT_NEAR(total.mean(), 4.548162, 2e-6);
}

TEST(Documents, BordersThatDoNotRise) {
  TinyRun run({.batch = 1, .seq = 16});
  TrainStep step(run.session(), {});
  const std::vector<int32_t> tokens{1, 2, 3}, targets{2, 3, 4};
  for (const std::vector<int32_t>& borders :
       std::vector<std::vector<int32_t>>{{0}, {-1}, {3}, {1, 1}, {2, 1}, {2147483647}}) {
    const Row row{.tokens = tokens, .targets = targets, .borders = borders};
    test::expect_error([&] { step.step(std::span(&row, 1), 1, 0.0); }, ErrorCode::invalid,
                       {"border", std::to_string(borders.back())});
  }
}

TEST(Documents, BatchesKnowThemByTheirEnds) {
  const std::vector<int32_t> ids{kEnd, 1, 2, kEnd, kEnd, 3, 4, kEnd, 5, 6, 7, 8, 9};
  TokenStream stream;
  stream.add(ids);
  Batches batches(stream, {.seq = 4, .rows = 3, .document_end = kEnd});
  const std::span<const Row> rows = batches.rows(1);
  const std::vector<std::vector<int32_t>> targets{
      {kIgnored, 2, kEnd, kIgnored}, {kIgnored, 4, kEnd, kIgnored}, {6, 7, 8, 9}};
  const std::vector<std::vector<int32_t>> borders{{1}, {1}, {}};
  for (size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(std::vector<int32_t>(rows[r].tokens.begin(), rows[r].tokens.end()),
              std::vector<int32_t>(ids.begin() + static_cast<ptrdiff_t>(4 * r),
                                   ids.begin() + static_cast<ptrdiff_t>(4 * r + 4)));
    EXPECT_EQ(std::vector<int32_t>(rows[r].targets.begin(), rows[r].targets.end()), targets[r]);
    EXPECT_EQ(std::vector<int32_t>(rows[r].borders.begin(), rows[r].borders.end()), borders[r]);
  }
  Batches plain(stream, {.seq = 4, .rows = 3});
  EXPECT_TRUE(plain.rows(1)[0].borders.empty());
  EXPECT_EQ(count_targets(plain.rows(1)), 12);
}

}  // namespace
}  // namespace lamina

// A plan that recomputes gives the bits of the one that keeps everything, and needs no more than it was allowed.
#include <gtest/gtest.h>

#include <cstring>

#include "base/rng.h"
#include "io/files.h"
#include "train/tiny_run.h"

namespace lamina {
namespace {

using test::expect_error;
using test::TinyRun;

// Activations outweigh weights, so that keeping fewer of them shows.
ModelConfig narrow_config() {
  ModelConfig config = test::tiny_config();
  config.n_layer = 5;
  config.n_positions = 48;
  config.resid_pdrop = config.embd_pdrop = 0.2;
  config.attn_pdrop = 0.1;
  return config;
}

CompileOptions narrow_options(RecomputeOptions recompute, int64_t accumulate = 1) {
  CompileOptions options;
  options.batch = 6;
  options.seq = 48;
  options.accumulate = accumulate;
  options.eval = true;
  options.update = {.weight_decay = 0.1, .clip = 0.5};
  options.recompute = std::move(recompute);
  options.isa = select_isa();
  return options;
}

// Rows of unequal length, one with padding before it and two with documents in it.
struct RaggedRows {
  std::vector<std::vector<int32_t>> ids;
  std::vector<std::vector<int32_t>> borders;
  std::vector<Row> rows;

  explicit RaggedRows(int64_t count) {
    Rng rng(4);
    for (int64_t r = 0; r < count; ++r) {
      std::vector<int32_t>& own = ids.emplace_back(static_cast<size_t>(49 - 7 * (r % 4)));
      for (int32_t& id : own) id = static_cast<int32_t>(rng.below(97));
      borders.push_back(r % 3 == 1 ? std::vector<int32_t>{3, 17} : std::vector<int32_t>{});
    }
    for (size_t r = 0; r < ids.size(); ++r) {
      const std::span<const int32_t> all(ids[r]);
      rows.push_back({all.first(all.size() - 1), all.subspan(1), r % 4 == 2 ? 5 : 0, borders[r]});
    }
  }
};

struct Outcome {
  std::vector<double> numbers;  // losses and norms
  std::vector<float> weights;
  bool operator==(const Outcome& other) const {
    return numbers == other.numbers && weights.size() == other.weights.size() &&
           std::memcmp(weights.data(), other.weights.data(), weights.size() * sizeof(float)) == 0;
  }
};

Outcome two_steps(const RecomputeOptions& recompute, int64_t accumulate, int threads) {
  TinyRun run(narrow_options(recompute, accumulate), narrow_config(), threads);
  TrainStep step(run.session(), {.seed = 7, .accumulate = accumulate});
  const RaggedRows rows(step.capacity() - 1);
  Outcome out;
  for (int64_t s = 1; s <= 2; ++s) {
    const StepResult result = step.step(rows.rows, s, 1e-2);
    out.numbers.insert(out.numbers.end(), {result.loss, result.grad_norm});
  }
  out.weights = run.weights();
  return out;
}

RecomputeOptions kinds(std::vector<std::string> names) {
  return {.mode = RecomputeOptions::listed, .kinds = std::move(names)};
}

RecomputeOptions within(int64_t bytes) { return {.mode = RecomputeOptions::automatic, .memory_limit = bytes}; }

Compiled compiled(const RecomputeOptions& recompute) { return compile(narrow_config(), narrow_options(recompute)); }

std::vector<RecomputePoint> points() {
  RecomputeOptions all;
  all.curve = true;
  return compiled(all).recompute.curve;
}

TEST(Recompute, N20GivesTheSameBits) {
  std::vector<RecomputeOptions> choices{kinds({"layernorm"}), kinds({"gelu", "layernorm"}),
                                        kinds({"layernorm", "gelu", "linear", "attention"})};
  for (const RecomputePoint& point : points()) choices.push_back(within(point.total_bytes));
  for (int64_t accumulate : {1, 2}) {
    const Outcome kept = two_steps({}, accumulate, 1);
    for (const RecomputeOptions& choice : choices) {
      if (accumulate > 1 && choice.mode == RecomputeOptions::automatic) continue;  // other sizes
      EXPECT_EQ(two_steps(choice, accumulate, 1), kept);
      EXPECT_EQ(two_steps(choice, accumulate, 3), kept);
    }
  }
}

TEST(Recompute, EachPointOfTheCurveCostsMoreAndNeedsLessAndCanBeHad) {
  const Compiled kept = compiled({});
  const std::vector<RecomputePoint> curve = points();
  ASSERT_GE(curve.size(), 4u);
  EXPECT_EQ(curve.front().what, "nothing");
  EXPECT_EQ(curve.front().total_bytes, kept.plan.total_bytes(1));
  for (size_t i = 0; i < curve.size(); ++i) {
    if (i > 0) {
      EXPECT_LT(curve[i].total_bytes, curve[i - 1].total_bytes);
      EXPECT_GE(curve[i].slowdown, curve[i - 1].slowdown);
    }
    const Compiled fits = compiled(within(curve[i].total_bytes + curve[i].total_bytes / 100));
    EXPECT_LE(fits.plan.total_bytes(1), curve[i].total_bytes + curve[i].total_bytes / 100);
    EXPECT_LE(fits.recompute.chosen.slowdown, curve[i].slowdown);
    EXPECT_EQ(fits.recomputed_nodes > 0, fits.plan.digest != kept.plan.digest);
    EXPECT_EQ(fits.plan.numbers, kept.plan.digest);
  }
}

TEST(Recompute, ALimitThatNothingMeetsNamesTheSmallestPlan) {
  for (int64_t limit : {int64_t{1}, int64_t{100000}, points().back().total_bytes / 2}) {
    int64_t smallest = 0;
    try {
      (void)compiled(within(limit));
      FAIL() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::memory);
      const std::string text = error.what(), before = "at least ";
      smallest = std::stoll(text.substr(text.find(before) + before.size()));
      EXPECT_NE(text.find(std::to_string(limit)), std::string::npos) << text;
    }
    EXPECT_LE(compiled(within(smallest)).plan.total_bytes(1), smallest);
    EXPECT_THROW((void)compiled(within(smallest - 1)), Error);
  }
}

TEST(Recompute, WithoutALimitOnlyWhatCostsNextToNothing) {
  CompileOptions options{.batch = 4, .seq = 1024, .isa = select_isa()};
  const Compiled kept = compile(*ModelConfig::preset("gpt2"), options);
  options.recompute.mode = RecomputeOptions::automatic;
  const Compiled automatic = compile(*ModelConfig::preset("gpt2"), options);
  EXPECT_LT(automatic.plan.total_bytes(1), kept.plan.total_bytes(1) * 9 / 10);
  EXPECT_LE(automatic.recompute.chosen.slowdown, 0.01);
  EXPECT_EQ(automatic.plan.digest, compile(*ModelConfig::preset("gpt2"), options).plan.digest);
  EXPECT_EQ(automatic.backward_nodes, kept.backward_nodes);
  options.seq = 16;  // what is alive at its fullest are gradients: nothing to gain
  EXPECT_EQ(compile(*ModelConfig::preset("gpt2"), options).recomputed_nodes, 0);
}

TEST(Recompute, AKindWithoutEffectIsNamed) {
  expect_error(
      [] {
        (void)compiled(kinds({"gelu", "embedding"}));
      },
      ErrorCode::usage, {"--recompute", "embedding", "attention, gelu, layernorm, linear"});
}

}  // namespace
}  // namespace lamina

// Steps that update weights in the backward pass: the losses and weights of those that do not, to the bit, in a smaller
// arena; and plans that would read a new weight for the old one are refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "io/files.h"
#include "train/tiny_run.h"

namespace lamina {
namespace {

using test::expect_error;
using test::Rows;
using test::TinyRun;

struct Setting {
  const char* name = "";
  PrecisionMap precision = {};
  double dropout = 0.0;
  std::vector<std::string> recompute = {};
  int64_t width = 16;
};

// More than one block of squares in a row of the widest, sums of several chunks of tokens.
const Setting kSettings[] = {
    {"plain"},
    {"dropout", {}, 0.2},
    {"recompute", {}, 0.2, {"layernorm", "gelu", "linear", "attention"}},
    {"mixed", {{"*", Dtype::bf16}, {"embedding", Dtype::f32}}, 0.1},
    {"mixed, recompute", {{"*", Dtype::bf16}}, 0.1, {"layernorm", "gelu", "linear"}},
    {"wide", {}, 0.0, {}, 112},
};

ModelConfig config_of(const Setting& setting) {
  ModelConfig config = test::tiny_config();
  config.n_positions = 40;
  config.n_embd = setting.width;
  config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = setting.dropout;
  return config;
}

CompileOptions options_of(const Setting& setting, bool in_backward) {
  CompileOptions options{.batch = 7, .seq = 40, .eval = true};
  options.update = {.weight_decay = 0.1, .in_backward = in_backward};
  options.precision = setting.precision;
  options.isa = select_isa();
  if (!setting.recompute.empty()) options.recompute = {.mode = RecomputeOptions::listed, .kinds = setting.recompute};
  return options;
}

struct Outcome {
  std::vector<double> losses, norms;
  std::vector<float> weights, moments;
};

Outcome ten_steps(const Setting& setting, bool in_backward, int threads, PipelineOptions pipeline = {}) {
  CompileOptions options = options_of(setting, in_backward);
  options.pipeline = std::move(pipeline);
  TinyRun run(options, config_of(setting), threads);
  TrainStep step(run.session(), {.seed = 3});
  std::vector<std::vector<int32_t>> ids;
  for (size_t r = 0; r < 7; ++r) {
    const std::vector<int32_t> all = test::tiny_tokens(41 * 7);
    ids.emplace_back(all.begin() + static_cast<int64_t>(41 * r), all.begin() + static_cast<int64_t>(41 * (r + 1) - r));
  }
  Rows rows(std::move(ids));
  Outcome out;
  for (int64_t s = 1; s <= 10; ++s) {
    const StepResult result = step.step(rows.rows(), s, 1e-2);
    EXPECT_TRUE(result.finite);
    out.losses.push_back(result.loss);
    out.norms.push_back(result.grad_norm);
  }
  out.weights = run.weights();
  for (const ParameterSpec& spec : run.specs())
    for (const char* moment : {"m.", "v."}) {
      const std::vector<float> values = run.read(moment + spec.name);
      out.moments.insert(out.moments.end(), values.begin(), values.end());
    }
  return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void expect_same(const Outcome& got, const Outcome& want) {
  EXPECT_EQ(got.losses, want.losses);
  EXPECT_TRUE(same_bits(got.weights, want.weights));
  EXPECT_TRUE(same_bits(got.moments, want.moments));
  // Sums of squares, all positive: of runs of 1024 elements in fp32 here, of 384 there; then in double, a square root
  // of half the error, and one rounding each.
  const double bound = (std::sqrt(1024.0) + std::sqrt(384.0) + 2.0) * 0x1.0p-24;
  ASSERT_EQ(got.norms.size(), want.norms.size());
  for (size_t i = 0; i < want.norms.size(); ++i) EXPECT_NEAR(got.norms[i], want.norms[i], bound * want.norms[i]);
}

TEST(UpdateInBackward, GivesTheSameBits) {
  for (const Setting& setting : kSettings) {
    SCOPED_TRACE(setting.name);
    const Outcome want = ten_steps(setting, false, 1);
    const Outcome got = ten_steps(setting, true, 1);
    expect_same(got, want);
    EXPECT_NE(want.weights, TinyRun(options_of(setting, false), config_of(setting)).weights());
    EXPECT_EQ(ten_steps(setting, true, 3).norms, got.norms);
    expect_same(ten_steps(setting, true, 3), want);
  }
}

// Without the pass the composition does the same.
TEST(UpdateInBackward, GivesTheSameBitsWithoutItsPass) {
  for (const char* pass : {"fuse_update", "fuse_bias_gradient", "fuse_qkv_gradient", "order_for_memory"})
    expect_same(ten_steps(kSettings[1], true, 2, {.skip = {pass}, .check_claims = false, .observe = {}}),
                ten_steps(kSettings[1], false, 2));
}

const PlanProgram& step_of(const Compiled& compiled) { return *compiled.plan.find_program("step"); }

int64_t count(const PlanProgram& program, Op op) {
  return std::count_if(program.steps.begin(), program.steps.end(), [op](const PlanStep& s) { return s.op == op; });
}

int64_t whole_gradients(const Compiled& compiled) {
  const std::vector<PlanTensor>& tensors = compiled.plan.tensors;
  return std::count_if(tensors.begin(), tensors.end(), [](const PlanTensor& t) {
    return t.region == Region::transient && t.tensor_class == "gradients" && t.shape.rank == 2;
  });
}

TEST(UpdateInBackward, NeedsNoMemoryForTheGradientsOfTheLayers) {
  const ModelConfig config = *ModelConfig::preset("gpt2");
  for (int64_t seq : {64, 1024}) {
    CompileOptions options{.batch = 4, .seq = seq, .isa = select_isa()};
    const Compiled apart = compile(config, options);
    options.update.in_backward = true;
    const Compiled fused = compile(config, options);
    EXPECT_EQ(count(step_of(fused), Op::linear_bwd_update), 3 * 12);
    EXPECT_EQ(count(step_of(fused), Op::qkv_bwd_update), 12);
    EXPECT_EQ(count(step_of(fused), Op::linear_bwd_params) + count(step_of(fused), Op::qkv_bwd_params), 0);
    for (const Compiled* compiled : {&apart, &fused})
      EXPECT_EQ(step_of(*compiled).arena_bytes, step_of(*compiled).max_live_bytes);
    EXPECT_NE(fused.plan.digest, apart.plan.digest);
    // With few tokens gradients are what is alive at the peak, with many the results of the forward side.
    const int64_t before = step_of(apart).arena_bytes, after = step_of(fused).arena_bytes;
    EXPECT_TRUE(seq == 64 ? after < before * 3 / 4 : after <= before) << after << " of " << before;
    EXPECT_EQ(whole_gradients(apart), 2 + 12 * 6);
    EXPECT_EQ(whole_gradients(fused), 2);  // of the tables
  }
}

// The plan as it would be if something had moved an update ahead of a reader of the old weight.
TEST(UpdateInBackward, APlanThatReadsANewWeightForTheOldOneIsRefused) {
  const Setting setting;
  Plan plan = compile(config_of(setting), options_of(setting, true)).plan;
  validate(plan);
  int moved = 0;
  for (size_t s = 1; s < plan.programs[0].steps.size(); ++s) {
    if (plan.programs[0].steps[s].op != Op::linear_bwd_update) continue;
    Plan wrong = plan;
    std::vector<PlanStep>& steps = wrong.programs[0].steps;
    const int32_t weight = steps[s].in[3];
    size_t reader = s - 1;  // the product behind which the update stands
    while (std::count(steps[reader].in.begin(), steps[reader].in.end(), weight) == 0) --reader;
    std::rotate(steps.begin() + static_cast<int64_t>(reader), steps.begin() + static_cast<int64_t>(s),
                steps.begin() + static_cast<int64_t>(s) + 1);
    expect_error([&] { validate(wrong); }, ErrorCode::invalid, {"updated"});
    ++moved;
  }
  EXPECT_EQ(moved, 6);
}

}  // namespace
}  // namespace lamina

// The dynamic loss scale: its schedule, that it changes no bit of what is learned, and a whole run that finds its
// scale. In fp32 here, where a gradient overflows only when its square does.
#include "train/loss_scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "io/checkpoint_folder.h"
#include "io/files.h"
#include "train/tiny_run.h"
#include "train/trainer.h"
#include "train/weights.h"

namespace lamina {
namespace {

using test::expect_error;
using test::Rows;
using test::TempDir;
using test::tiny_config;
using test::tiny_rows;
using test::TinyRun;

LossScale after(LossScale scale, int steps, bool overflow) {
  for (int i = 0; i < steps; ++i) scale = next_loss_scale(scale, overflow);
  return scale;
}

// The numbers are those of torch.amp.GradScaler(init_scale=65536, growth_factor=2, backoff_factor=0.5,
// growth_interval=2000), but for the floor.
TEST(LossScale, FallsAtOnceAndRisesAfter2000GoodSteps) {
  const LossScale start;
  EXPECT_EQ(start, (LossScale{65536.0, 0}));
  EXPECT_EQ(after(start, 1, true), (LossScale{32768.0, 0}));
  EXPECT_EQ(after(start, 1999, false), (LossScale{65536.0, 1999}));
  EXPECT_EQ(after(start, 2000, false), (LossScale{131072.0, 0}));
  EXPECT_EQ(after(start, 4000, false), (LossScale{262144.0, 0}));
  const LossScale cut = after(after(start, 1999, false), 1, true);  // not in a row
  EXPECT_EQ(cut, (LossScale{32768.0, 0}));
  EXPECT_EQ(after(cut, 1999, false), (LossScale{32768.0, 1999}));
  EXPECT_EQ(after(start, 16, true), (LossScale{1.0, 0}));
  EXPECT_EQ(after(start, 40, true), (LossScale{1.0, 0}));
}

TEST(LossScale, NothingIsLeftToTryAtTheFloor) {
  const std::vector<ParameterSpec> specs = parameter_specs(tiny_config());
  EXPECT_NO_THROW(check_loss_scale(2.0, 7, specs, "layer.0.ln_1.bias"));
  expect_error([&] { check_loss_scale(1.0, 7, specs, "layer.0.ln_1.bias"); }, ErrorCode::invalid,
               {"step 7", "layer 0", "h.0.ln_1.bias", "loss scale 1"});
}

// N15: a power of two comes out again before anything is clipped, to the bit.
TEST(TrainStep, N15_TheLossScaleChangesNothing) {
  for (const int64_t accumulate : {1, 2})
    for (const auto& [clip, clip_layer] : {std::pair{0.0, 0.0}, {0.5, 0.0}, {0.0, 0.1}, {0.5, 0.2}}) {
      std::vector<double> norms[2];
      std::vector<float> weights[2], moments[2];
      for (const bool scaled : {false, true}) {
        TinyRun run(
            {.batch = 2, .seq = 8, .accumulate = accumulate, .update = {.clip = clip, .clip_layer = clip_layer}});
        TrainStep step(run.session(), {.accumulate = accumulate, .dynamic_loss_scale = scaled});
        Rows rows(tiny_rows(static_cast<size_t>(2 * accumulate)));
        for (int64_t s = 1; s <= 3; ++s) {
          const StepResult result = step.step(rows.rows(), s, 1e-3);
          EXPECT_EQ(result.loss_scale, scaled ? 65536.0 : 1.0);
          EXPECT_GT(result.grad_norm, 1.0);
          norms[scaled].push_back(result.grad_norm);
        }
        weights[scaled] = run.weights();
        moments[scaled] = run.read("v.layer.1.mlp.fc.weight");
        EXPECT_EQ(step.loss_scale(), scaled ? std::optional(LossScale{65536.0, 3}) : std::nullopt);
      }
      EXPECT_EQ(norms[0], norms[1]) << clip << " " << clip_layer;
      EXPECT_EQ(weights[0], weights[1]) << clip << " " << clip_layer;
      EXPECT_EQ(moments[0], moments[1]) << clip << " " << clip_layer;
    }
}

// Gradients in the order of 1e15: too large for fp32's squares from a scale of some thousands on.
void make_steep(TinyRun& run) { run.session().fill("ln_f.weight", 2e15f); }

TEST(TrainStep, AnOverflowHalvesTheScaleAndChangesNothingElse) {
  for (const int64_t accumulate : {1, 2}) {
    TinyRun run({.batch = 2, .seq = 8, .accumulate = accumulate, .update = {.weight_decay = 0.1, .clip = 1.0}});
    make_steep(run);
    TrainStep step(run.session(), {.accumulate = accumulate, .dynamic_loss_scale = true});
    Rows rows(tiny_rows(static_cast<size_t>(2 * accumulate)));
    const std::vector<float> before = run.weights();
    int64_t s = 1;
    for (double scale = 65536.0;; scale /= 2.0, ++s) {
      ASSERT_GE(scale, 2.0);
      const StepResult result = step.step(rows.rows(), s, 1e-3);
      EXPECT_EQ(result.loss_scale, scale);
      if (result.finite) break;
      EXPECT_TRUE(result.overflow && std::isfinite(result.loss));
      EXPECT_NE(step.bad_gradient(), "");
      EXPECT_EQ(step.loss_scale(), (LossScale{scale / 2.0, 0}));
      EXPECT_EQ(step.updates(), 0);
      EXPECT_EQ(run.weights(), before);
    }
    EXPECT_GT(s, 1);
    EXPECT_EQ(step.updates(), 1);
    EXPECT_EQ(step.loss_scale()->good_steps, 1);
    EXPECT_NE(run.weights(), before);
  }
}

TEST(TrainStep, TheScaleGrowsAndALossThatIsNotFiniteLeavesIt) {
  TinyRun run({.batch = 2, .seq = 8});
  TrainStep step(run.session(), {.dynamic_loss_scale = true});
  Rows rows(tiny_rows(2));
  step.set_loss_scale({4096.0, 1999});
  EXPECT_EQ(step.step(rows.rows(), 1, 1e-3).loss_scale, 4096.0);
  EXPECT_EQ(step.loss_scale(), (LossScale{8192.0, 0}));
  run.session().fill("ln_f.bias", std::nanf(""));
  const StepResult result = step.step(rows.rows(), 2, 1e-3);
  EXPECT_FALSE(result.finite || result.overflow);
  EXPECT_EQ(step.loss_scale(), (LossScale{8192.0, 0}));
}

// A model folder and data for `train`, whose last layer is in fp16 and whose gradients grow with `steepness`.
struct SteepRun {
  explicit SteepRun(float steepness) {
    TinyRun run({.batch = 2, .seq = 8});
    run.session().fill("ln_f.weight", steepness);
    std::filesystem::create_directories(dir.file("model"));
    save_model(run.session(), dir.file("model"), tiny_config(), run.specs());
    std::string ids;
    for (const int32_t id : test::tiny_tokens(400)) ids += {static_cast<char>(id), '\0'};
    dir.write("ids.bin", ids);
    dir.write("map.json", R"({"layer.1": "fp16"})");
  }

  void train(const std::string& out, int64_t steps, bool resume = false) {
    TrainOptions options;
    options.model = dir.file("model");
    options.data = {dir.file("ids.bin")};
    options.out = dir.file(out);
    options.batch = 2;
    options.seq = 8;
    options.threads = 1;
    options.lr = 1e-4;
    options.steps = steps;
    options.max_skips = 1;
    options.resume = resume;
    options.precision = dir.file("map.json");
    said.clear();
    lamina::train(options, {.say = [this](const std::string& line) { said += line + "\n"; }});
  }

  // The lines of metrics.jsonl without what differs from run to run.
  std::vector<nlohmann::json> metrics(const std::string& out) const {
    std::ifstream file(dir.file(out + "/metrics.jsonl"));
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(file, line);) {
      lines.push_back(nlohmann::json::parse(line));
      for (const char* key : {"step_ms", "tokens_per_s", "peak_fraction"}) lines.back().erase(key);
    }
    return lines;
  }

  std::string weights(const std::string& out) const {
    std::ifstream file(dir.file(out + "/model.safetensors"), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  nlohmann::json progress(const std::string& out, int64_t step) const {
    return read_manifest(dir.file(fmt::format("{}/checkpoints/step-{}", out, step))).state["progress"];
  }

  TempDir dir;
  std::string said;
};

TEST(Train, FindsItsLossScaleAndGoesOnWithIt) {
  SteepRun run(100.0f);
  run.train("whole", 9);
  const std::vector<nlohmann::json> lines = run.metrics("whole");
  ASSERT_EQ(lines.size(), 9u);
  EXPECT_EQ(lines.front()["loss_scale"], 65536.0);
  EXPECT_TRUE(lines.front()["skipped"]);
  EXPECT_EQ(lines.front()["grad_norm"], nullptr);
  EXPECT_NE(lines.front()["not_finite"], "loss");
  double scale = 65536.0;
  for (const nlohmann::json& line : lines) {
    EXPECT_EQ(line["loss_scale"], scale);
    if (line.contains("skipped")) scale /= 2.0;
  }
  EXPECT_FALSE(lines.back().contains("skipped"));
  EXPECT_TRUE(test::names(run.said, "step 1 skipped: the gradient of")) << run.said;
  EXPECT_TRUE(test::names(run.said, "at loss scale 65536; 32768 from now on")) << run.said;
  run.train("parts", 2);
  run.train("parts", 9, true);
  EXPECT_EQ(run.metrics("parts"), lines);
  EXPECT_EQ(run.weights("parts"), run.weights("whole"));
  EXPECT_EQ(run.progress("parts", 9), run.progress("whole", 9));
  EXPECT_EQ(run.progress("parts", 9)["loss_scale"]["scale"], scale);
  EXPECT_GT(run.progress("parts", 9)["loss_scale"]["good_steps"], 1);
}

TEST(Train, StopsWhereNoLossScaleIsSmallEnough) {
  SteepRun run(1e10f);
  expect_error([&] { run.train("run", 40); }, ErrorCode::invalid, {"step 17", "loss scale 1", "layer 1, ", "h.1."});
  EXPECT_EQ(run.metrics("run").size(), 17u);
}

}  // namespace
}  // namespace lamina

// The compiler as a whole, and the session that runs its plans against the interpreter that runs its graphs.
#include "compile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/rng.h"
#include "common/isas.h"
#include "graph/text.h"
#include "kernels/arithmetic.h"
#include "reference/interpreter.h"
#include "runtime/session.h"

namespace lamina {
namespace {

ModelConfig odd_config(double dropout) {
  ModelConfig config;
  config.vocab_size = 97;
  config.n_positions = 13;
  config.n_embd = 24;
  config.n_layer = 2;
  config.n_head = 3;
  config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = dropout;
  config.bos_token_id = config.eos_token_id = 96;
  return config;
}

CompileOptions odd_options(Isa isa) {
  CompileOptions options;
  options.batch = 3;
  options.seq = 13;
  options.eval = true;
  options.isa = isa;
  options.update = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.1, .clip = 0.5, .clip_layer = 0.4};
  options.pipeline.check_claims = true;
  return options;
}

struct Inputs {
  std::vector<int32_t> tokens, positions, key_begin, targets;
  int valid = 0;
};

Inputs odd_inputs(int64_t B, int64_t T) {
  Inputs in;
  Rng rng(5);
  for (int64_t b = 0; b < B; ++b)
    for (int64_t t = 0; t < T; ++t) {
      const bool padded = t >= T - 2 * b;
      in.tokens.push_back(static_cast<int32_t>(rng.below(97)));
      in.positions.push_back(static_cast<int32_t>(t));
      in.key_begin.push_back(padded ? static_cast<int32_t>(t + 1) : 0);
      in.targets.push_back(padded ? -1 : static_cast<int32_t>(rng.below(97)));
      in.valid += !padded;
    }
  return in;
}

const float kHyper[3] = {1e-2f, 1e-2f / 0.1f, 0.1f};

// The same start for both engines: parameters by name, random.
std::vector<float> start_of(const ParameterSpec& spec) {
  Rng rng(std::hash<std::string>{}(spec.name));
  std::vector<float> out(static_cast<size_t>(spec.shape.elements()));
  for (float& value : out) value = static_cast<float>(spec.init_mean + 0.2 * rng.normal());
  return out;
}

struct Result {
  double loss = 0.0, norm = 0.0;
  std::vector<std::vector<float>> parameters;
};

class FastRun {
 public:
  FastRun(const ModelConfig& config, const CompileOptions& options, int threads)
      : config_(config), session_(compile(config, options).plan, threads) {
    for (const ParameterSpec& spec : parameter_specs(config)) {
      const std::vector<float> start = start_of(spec);
      session_.write(spec.name, {start.data(), spec.shape.last(), 1});
    }
    const Inputs in = odd_inputs(options.batch, options.seq);
    std::copy(in.tokens.begin(), in.tokens.end(), session_.ints("tokens").begin());
    std::copy(in.positions.begin(), in.positions.end(), session_.ints("positions").begin());
    std::copy(in.key_begin.begin(), in.key_begin.end(), session_.ints("key_begin").begin());
    std::copy(in.targets.begin(), in.targets.end(), session_.ints("targets").begin());
    session_.floats("target_weight")[0] = 1.0f / static_cast<float>(in.valid);
    session_.floats("loss_scale")[0] = 1.0f;
    std::copy_n(kHyper, 3, session_.floats("hyper").begin());
    if (!session_.has_tensor("rng")) return;
    session_.longs("rng")[0] = 9;
    for (int64_t b = 0; b < options.batch; ++b) session_.longs("sample")[static_cast<size_t>(b)] = 100 + b;
  }

  Result steps(int count) {
    Result result;
    for (int step = 0; step < count; ++step) {
      if (session_.has_tensor("rng")) session_.longs("rng")[1] = step;
      for (const char* name : {"step", "micro_step", "update"})
        if (const ProgramId id = session_.program(name); id != ProgramId::none) session_.run(id);
      result.loss = session_.floats("loss")[0];
      result.norm = session_.floats("grad_norm")[0];
    }
    for (const ParameterSpec& spec : parameter_specs(config_)) {
      std::vector<float>& out = result.parameters.emplace_back(static_cast<size_t>(spec.shape.elements()));
      session_.read(spec.name, out.data(), spec.shape.last(), 1);
    }
    return result;
  }

 private:
  ModelConfig config_;
  Session session_;
};

bool same_bits(const Result& a, const Result& b) {
  if (a.loss != b.loss || a.norm != b.norm) return false;
  for (size_t p = 0; p < a.parameters.size(); ++p)
    if (std::memcmp(a.parameters[p].data(), b.parameters[p].data(), a.parameters[p].size() * sizeof(float)) != 0)
      return false;
  return true;
}

template <typename T>
ref::RefTensor<double> ints(const std::vector<T>& from) {
  ref::RefTensor<double> out;
  out.ints.assign(from.begin(), from.end());
  return out;
}

// The same steps on double, over the graphs that were planned.
Interpreter<double> reference_steps(const ModelConfig& config, const CompileOptions& options, int count) {
  const Compiled compiled = compile(config, options);
  Interpreter<double> engine;
  for (const ParameterSpec& spec : parameter_specs(config)) {
    const std::vector<float> start = start_of(spec);
    engine.set(spec.name, {spec.shape, {start.begin(), start.end()}, {}});
  }
  const Inputs in = odd_inputs(options.batch, options.seq);
  engine.set("tokens", ints(in.tokens));
  engine.set("positions", ints(in.positions));
  engine.set("key_begin", ints(in.key_begin));
  engine.set("targets", ints(in.targets));
  engine.set("target_weight", {{1}, {1.0 / in.valid}, {}});
  engine.set("loss_scale", {{1}, {1.0}, {}});
  engine.set("hyper", {{3}, {kHyper[0], kHyper[1], kHyper[2]}, {}});
  for (int step = 0; step < count; ++step) {
    engine.set("rng", ints(std::vector<int64_t>{9, step}));
    std::vector<int64_t> samples(static_cast<size_t>(options.batch));
    for (size_t b = 0; b < samples.size(); ++b) samples[b] = 100 + static_cast<int64_t>(b);
    engine.set("sample", ints(samples));
    for (const Graph& graph : compiled.graphs)
      if (graph.name != "eval") engine.run(graph);
  }
  return engine;
}

// The first step of AdamW divides a gradient by itself, so a parameter whose true gradient is 0 (the key bias) moves by
// rounding noise; it is left out.
TEST(Session, StepsLikeTheReferenceOnEveryIsa) {
  for (double dropout : {0.0, 0.2})
    for (Isa isa : test::tested_isas())
      for (int64_t accumulate : {1, 2}) {
        const ModelConfig config = odd_config(dropout);
        CompileOptions options = odd_options(isa);
        options.accumulate = accumulate;
        const Result fast = FastRun(config, options, 2).steps(2);
        const Interpreter<double> truth = reference_steps(config, options, 2);
        EXPECT_NEAR(fast.loss, truth.get("loss").values[0], 1e-5) << isa_name(isa);
        EXPECT_NEAR(fast.norm / truth.get("grad_norm").values[0], 1.0, 1e-5) << isa_name(isa);
        const std::vector<ParameterSpec> specs = parameter_specs(config);
        for (size_t p = 0; p < specs.size(); ++p) {
          if (specs[p].name.ends_with("attention.k.bias")) continue;
          double distance = 0.0, size = 0.0;
          const std::vector<double>& exact = truth.get(specs[p].name).values;
          for (size_t i = 0; i < exact.size(); ++i) {
            distance += std::pow(fast.parameters[p][i] - exact[i], 2);
            size += std::pow(exact[i], 2);
          }
          EXPECT_LT(std::sqrt(distance / size), 1e-5) << specs[p].name << " on " << isa_name(isa);
        }
      }
}

const PrecisionMap kMixed{{"*", Dtype::bf16}, {"embedding", Dtype::f32}};
const PrecisionMap kMixedFp16{{"*", Dtype::f16}, {"layer.1.mlp", Dtype::bf16}, {"layer.0.attention.proj", Dtype::f32}};

// Where values are rounded is a matter of the plain graph: cells, casts and recomputation do not move it.
TEST(Precision, PassesKeepWhatIsRounded) {
  const std::vector<std::string> cells{"fuse_head",  "fuse_bias_gradient", "fuse_layernorm_gradient",
                                       "fuse_gelu",  "fuse_qkv_gradient",  "fuse_gelu_gradient",
                                       "fuse_casts", "fuse_layernorm",     "fuse_residual",
                                       "fuse_qkv",   "fuse_accumulate",    "fuse_accumulate_backward"};
  for (const PrecisionMap& map : {kMixed, kMixedFp16}) {
    const ModelConfig config = odd_config(0.2);
    CompileOptions options = odd_options(Isa::portable);
    options.precision = map;
    const Interpreter<double> all = reference_steps(config, options, 2);
    options.recompute = {.mode = RecomputeOptions::listed, .kinds = {"layernorm", "gelu"}};
    const Interpreter<double> again = reference_steps(config, options, 2);
    options.pipeline.skip = cells;
    const Interpreter<double> plain = reference_steps(config, options, 2);
    for (const ParameterSpec& spec : parameter_specs(config)) {
      EXPECT_EQ(all.get(spec.name).values, again.get(spec.name).values) << spec.name;
      for (size_t i = 0; i < plain.get(spec.name).values.size(); ++i)
        EXPECT_NEAR(all.get(spec.name).values[i], plain.get(spec.name).values[i], 1e-9) << spec.name;
    }
  }
}

// Casts of their own, rounding in the packing and storage in 16 bits are three ways to the same numbers, and what is
// made again is what was there.
// What a kernel cuts and how much scratch it wants depends on which operands are there. Widths above a chunk of a sum
// and many narrow rows need the most.
TEST(Session, GivesFusedLayernormsTheScratchAndTheTasksThatTheyNeed) {
  for (Isa isa : test::tested_isas())
    for (const auto& [width, batch, seq] : {std::tuple{1024, 3, 64}, {32, 70, 128}}) {
      if (isa == Isa::portable && width > 32) continue;  // the same code, seconds longer
      ModelConfig config = odd_config(0.0);
      config.n_embd = width;
      config.n_head = 4;
      config.n_layer = 1;
      config.n_positions = seq;
      CompileOptions options = odd_options(isa);
      options.batch = batch;
      options.seq = seq;
      options.pipeline.check_claims = false;
      options.recompute = {.mode = RecomputeOptions::listed, .kinds = {"layernorm"}};
      const Result fused = FastRun(config, options, 2).steps(2);
      options.pipeline.skip = {"fuse_layernorm"};
      EXPECT_TRUE(same_bits(fused, FastRun(config, options, 2).steps(2))) << width << " on " << isa_name(isa);
    }
}

TEST(Precision, SameBitsWithCastsOfTheirOwnWhenRecomputedAndForAnyThreads) {
  for (Isa isa : test::tested_isas())
    for (const PrecisionMap& map : {kMixed, kMixedFp16})
      for (double dropout : {0.0, 0.2}) {
        const ModelConfig config = odd_config(dropout);
        CompileOptions options = odd_options(isa);
        options.precision = map;
        const Result usual = FastRun(config, options, 1).steps(3);
        EXPECT_TRUE(std::isfinite(usual.loss) && usual.norm > 0.0);
        EXPECT_TRUE(same_bits(usual, FastRun(config, options, 3).steps(3))) << isa_name(isa);
        CompileOptions with_casts = options;
        with_casts.pipeline.skip = {"fuse_casts"};
        EXPECT_TRUE(same_bits(usual, FastRun(config, with_casts, 2).steps(3))) << isa_name(isa);
        options.recompute = {.mode = RecomputeOptions::listed, .kinds = {"layernorm", "gelu", "linear"}};
        EXPECT_TRUE(same_bits(usual, FastRun(config, options, 2).steps(3))) << isa_name(isa);
      }
}

// Every arithmetic that this machine has, the emulated ones among them.
std::vector<std::pair<Isa, Arithmetics>> all_arithmetics() {
  std::vector<std::pair<Isa, Arithmetics>> out;
  for (Isa isa : test::tested_isas())
    for (Arithmetic bf16 : {Arithmetic::f32, Arithmetic::bf16dot, Arithmetic::f16chunk})
      if (cpu_has(isa, bf16)) out.push_back({isa, {bf16}});
  return out;
}

TEST(Precision, EveryArithmeticGivesItsOwnBitsForAnyThreads) {
  std::set<std::string> digests;
  for (const auto& [isa, arithmetics] : all_arithmetics()) {
    const ModelConfig config = odd_config(0.2);
    CompileOptions options = odd_options(isa);
    options.precision = kMixedFp16;
    options.precision.push_back({"layer.0.mlp", Dtype::bf16});
    options.arithmetics = arithmetics;
    EXPECT_TRUE(digests.insert(compile(config, options).plan.digest).second) << isa_name(isa);
    EXPECT_TRUE(same_bits(FastRun(config, options, 1).steps(2), FastRun(config, options, 3).steps(2))) << isa_name(isa);
  }
}

// The interpreter rounds where the session does, so that what is left between them is fp32's, and now and then a tie
// that falls on the other side. Products in fp16 round elsewhere: there it is the unit of bf16 itself.
TEST(Precision, StepsLikeTheReferenceThatRoundsTheSame) {
  constexpr double kUnit = 0x1.0p-9;  // of bf16, the coarser type
  for (const auto& [isa, arithmetics] : all_arithmetics())
    for (const PrecisionMap& map : {kMixed, kMixedFp16}) {
      const ModelConfig config = odd_config(0.2);
      CompileOptions options = odd_options(isa);
      options.precision = map;
      options.arithmetics = arithmetics;
      const Result fast = FastRun(config, options, 2).steps(1);
      const Interpreter<double> truth = reference_steps(config, options, 1);
      const bool elsewhere = arithmetics.bf16 == Arithmetic::f16chunk;
      const double unit = elsewhere ? 10.0 * kUnit : kUnit;
      EXPECT_NEAR(fast.loss / truth.get("loss").values[0], 1.0, 0.1 * unit) << isa_name(isa);
      EXPECT_NEAR(fast.norm / truth.get("grad_norm").values[0], 1.0, unit) << isa_name(isa);
    }
}

TEST(Session, SameBitsForAnyNumberOfThreadsAndInEveryRun) {
  for (Isa isa : test::tested_isas()) {
    const ModelConfig config = odd_config(0.1);
    const CompileOptions options = odd_options(isa);
    const Result one = FastRun(config, options, 1).steps(3);
    for (int threads : {1, 2, 3, 4})
      EXPECT_TRUE(same_bits(one, FastRun(config, options, threads).steps(3))) << threads << " on " << isa_name(isa);
  }
}

TEST(Session, NonFiniteGradientsLeaveEverythingAsItIs) {
  const ModelConfig config = odd_config(0.0);
  Session session(compile(config, odd_options(test::tested_isas().back())).plan, 2);
  const float infinity = HUGE_VALF;
  for (const ParameterSpec& spec : parameter_specs(config)) session.fill(spec.name, 0.5f);
  session.write("ln_f.bias", {&infinity, 0, 0});
  std::fill_n(session.floats("hyper").begin(), 3, 1.0f);
  session.floats("target_weight")[0] = session.floats("loss_scale")[0] = 1.0f;
  session.run(session.program("step"));
  EXPECT_FALSE(std::isfinite(session.floats("grad_norm")[0]));
  std::vector<float> weights(24 * 97);
  session.read("embedding.token", weights.data(), 97, 1);
  for (float value : weights) EXPECT_EQ(value, 0.5f);
}

TEST(Compile, GraphTextRoundTripsForEveryProgram) {
  CompileOptions options = odd_options(Isa::portable);
  options.generate_batch = 2;
  options.forward = true;
  for (int64_t accumulate : {1, 3}) {
    options.accumulate = accumulate;
    for (const Graph& graph : compile(odd_config(0.1), options).graphs) {
      const std::string text = to_text(graph);
      EXPECT_EQ(to_text(parse_graph(text)), text) << graph.name;
    }
  }
}

TEST(Compile, NoBranchAndNoPastIsLeftInATrainingStep) {
  for (const Graph& graph : compile(odd_config(0.0), odd_options(Isa::portable)).graphs)
    for (const Node& node : graph.nodes) {
      EXPECT_NE(node.op, Op::branch);
      EXPECT_NE(node.op, Op::dropout);
      EXPECT_NE(node.op, Op::attention_cached);
    }
}

TEST(Compile, EveryPassCanBeSwitchedOffAndTheMeaningStays) {
  const ModelConfig config = odd_config(0.1);
  const Interpreter<double> truth = reference_steps(config, odd_options(Isa::portable), 1);
  for (std::span<const Pass> list : {forward_passes(), whole_passes(), memory_passes()})
    for (const Pass& pass : list) {
      if (pass.required) continue;
      CompileOptions options = odd_options(Isa::portable);
      options.pipeline.skip = {std::string(pass.name)};
      const Interpreter<double> other = reference_steps(config, options, 1);
      EXPECT_NEAR(other.get("loss").values[0], truth.get("loss").values[0], 1e-12) << pass.name;
      EXPECT_NEAR(other.get("grad_norm").values[0], truth.get("grad_norm").values[0], 1e-12) << pass.name;
    }
}

TEST(Compile, DigestsFollowTheKernelsAndTheOptions) {
  const ModelConfig config = odd_config(0.0);
  const std::string digest = compile(config, odd_options(Isa::portable)).plan.digest;
  EXPECT_EQ(digest, compile(config, odd_options(Isa::portable)).plan.digest);
  CompileOptions other = odd_options(Isa::portable);
  other.update.weight_decay = 0.2;
  EXPECT_NE(digest, compile(config, other).plan.digest);
  for (Isa isa : test::tested_isas()) {
    if (isa == Isa::portable) continue;
    EXPECT_NE(digest, compile(config, odd_options(isa)).plan.digest);
  }
}

TEST(Compile, ArenaMeetsItsBoundForAllFourSizes) {
  for (const char* name : {"gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"})
    for (const auto& [batch, seq] : {std::pair{4, 64}, {1, 1024}, {3, 500}}) {
      CompileOptions options;
      options.batch = batch;
      options.seq = seq;
      options.isa = test::tested_isas().back();
      const Plan plan = compile(*ModelConfig::preset(name), options).plan;
      for (const PlanProgram& program : plan.programs)
        EXPECT_LE(static_cast<double>(program.arena_bytes), 1.01 * static_cast<double>(program.max_live_bytes))
            << name << " " << program.name << " " << batch << "x" << seq;
    }
}

TEST(Compile, RefusesWhatDoesNotFitByName) {
  const auto error_of = [](const ModelConfig& config, const CompileOptions& options) -> std::string {
    try {
      (void)compile(config, options);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  CompileOptions options = odd_options(Isa::portable);
  options.seq = 14;
  EXPECT_NE(error_of(odd_config(0.0), options).find("14"), std::string::npos);
  options.seq = 13;
  ModelConfig config = odd_config(0.0);
  config.n_embd = 25;
  EXPECT_NE(error_of(config, options).find("n_embd 25 is not divisible by n_head 3"), std::string::npos);
  config = odd_config(0.0);
  config.activation_function = "gelu_fancy";
  EXPECT_NE(error_of(config, options).find("gelu_fancy"), std::string::npos);
}

TEST(Compile, RefusesWhatDropoutCannotTellApartByName) {
  const auto message = [](const ModelConfig& config, const CompileOptions& options) -> std::string {
    try {
      (void)compile(config, options);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  ModelConfig config = odd_config(0.1);
  config.n_positions = 1 << 16;  // times itself, and 3 heads
  EXPECT_NE(message(config, odd_options(Isa::portable)).find("attn_pdrop"), std::string::npos);
  config.attn_pdrop = 0.0;
  EXPECT_EQ(message(config, odd_options(Isa::portable)), "accepted");
  config = odd_config(0.0);
  config.n_positions = 1 << 16;
  EXPECT_EQ(message(config, odd_options(Isa::portable)), "accepted");
  config.resid_pdrop = 0.1;
  config.n_embd = 3 << 16;
  CompileOptions options = odd_options(Isa::portable);
  options.batch = 1;
  options.seq = 1 << 15;
  EXPECT_NE(message(config, options).find("n_embd"), std::string::npos);
  options.train = false;
  EXPECT_EQ(message(config, options), "accepted");
}

// Of the offsets and sizes none may have gone through 32 bits: tensors of many GiB, planned and never run.
TEST(Compile, SizesBeyond32BitsAreExact) {
  ModelConfig config = odd_config(0.0);
  config.vocab_size = 1 << 20;
  config.n_positions = 1 << 14;
  CompileOptions options = odd_options(test::tested_isas().back());
  options.batch = 1 << 10;
  options.seq = 1 << 14;
  options.pipeline.skip = {"fuse_head"};
  const Plan plan = compile(config, options).plan;
  const int64_t logits = (int64_t{1} << 24) * (int64_t{1} << 20) * 4;
  EXPECT_GE(plan.region(Region::transient), logits);
  EXPECT_LT(plan.region(Region::transient), logits + logits / 100);
  for (const PlanProgram& program : plan.programs)
    for (const PlanStep& step : program.steps) EXPECT_GT(step.tasks, 0) << step.name;
}

TEST(Compile, RefusesProductsOfSizesThatAreFarTooLargeByName) {
  ModelConfig config = odd_config(0.0);
  CompileOptions options = odd_options(Isa::portable);
  config.n_positions = 1 << 24;
  options.batch = 1 << 20;
  options.seq = 1 << 24;
  EXPECT_THROW((void)compile(config, options), Error);
  config = odd_config(0.0);
  config.n_embd = 3 << 22;
  config.n_layer = 1 << 16;
  options = odd_options(Isa::portable);
  EXPECT_THROW((void)compile(config, options), Error);
}

TEST(Session, SaysBeforehandThatMemoryDoesNotSuffice) {
  const Plan plan = compile(odd_config(0.0), odd_options(Isa::portable)).plan;
  const int64_t needed = plan.total_bytes(2);
  try {
    Session session(plan, 2, 1000);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::memory);
    EXPECT_NE(std::string(error.what()).find(std::to_string(needed)), std::string::npos) << error.what();
  }
}

TEST(Validate, FindsAnOverlapAndATensorOutOfBounds) {
  const Plan sound = compile(odd_config(0.0), odd_options(Isa::portable)).plan;
  Plan overlap = sound;
  for (PlanTensor& tensor : overlap.tensors)
    if (tensor.region == Region::transient) tensor.offset = 0;
  EXPECT_THROW(validate(overlap), Error);
  Plan outside = sound;
  outside.region_bytes[0] -= 64;
  EXPECT_THROW(validate(outside), Error);
}

}  // namespace
}  // namespace lamina

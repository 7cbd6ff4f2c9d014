// parity MODEL TOKENS OUT: logits, loss, all gradients and N steps of AdamW of one engine, written as one safetensors
// file in double, with HuggingFace's names and packing, for tests/python/test_parity.py. A tool of the tests, not
// installed.
//
//   --engine reference   the compiled graphs, run in double by the interpreter
//   --engine fast        the session, as the product trains
//
// TOKENS is a safetensors file of I32: tokens and targets (M, B, T), start and length (M, B), where M = steps *
// accumulate micro-batches; row b has its ids at start … start + length - 1. OUT holds logits (B, T, V) of the first
// micro-batch, loss and grad_norm (N), "grad.<name>" of the first step, "param.<name>" after the last.
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>

#include "base/cpu.h"
#include "base/error.h"
#include "compile.h"
#include "io/hf_config.h"
#include "io/hf_folder.h"
#include "io/model_weights.h"
#include "io/safetensors.h"
#include "reference/interpreter.h"
#include "train/precision.h"
#include "train/schedule.h"
#include "train/step.h"

namespace {

using namespace lamina;

struct Options {
  std::string model, tokens, out, engine = "fast", schedule = "constant", precision = "fp32", arithmetic;
  int64_t batch = 1, seq = 1, steps = 1, accumulate = 1, warmup = 0;
  double lr = 1e-3;
  UpdateOptions update;
  int threads = 1;

  double rate(int64_t step) const {
    return learning_rate({lr, 0.0, parse_schedule(schedule).value(), warmup, steps}, step);
  }
};

// The micro-batches of the whole run, as rows.
class Data {
 public:
  Data(const Options& options) : file_(options.tokens), per_step_(options.batch * options.accumulate) {
    const int64_t rows = options.steps * per_step_;
    tokens_ = ints("tokens", rows * options.seq);
    targets_ = ints("targets", rows * options.seq);
    const std::vector<int32_t> start = ints("start", rows), length = ints("length", rows);
    for (int64_t r = 0; r < rows; ++r) {
      const auto at = static_cast<size_t>(r);
      const auto first = static_cast<size_t>(r * options.seq + start[at]), count = static_cast<size_t>(length[at]);
      rows_.push_back({std::span<const int32_t>(tokens_).subspan(first, count),
                       std::span<const int32_t>(targets_).subspan(first, count), start[at]});
    }
  }

  std::span<const Row> step(int64_t s) const {  // from 1 on
    return std::span(rows_).subspan(static_cast<size_t>((s - 1) * per_step_), static_cast<size_t>(per_step_));
  }

 private:
  std::vector<int32_t> ints(const char* name, int64_t count) const {
    const SafetensorsTensor* tensor = file_.find(name);
    if (tensor == nullptr || tensor->dtype != "I32" || std::ssize(tensor->bytes) != 4 * count)
      throw_error(ErrorCode::invalid, "{}: expected a tensor {} of {} I32", file_.path(), name, count);
    std::vector<int32_t> out(static_cast<size_t>(count));
    std::memcpy(out.data(), tensor->bytes.data(), tensor->bytes.size());
    return out;
  }

  SafetensorsFile file_;
  int64_t per_step_;
  std::vector<int32_t> tokens_, targets_;
  std::vector<Row> rows_;
};

using Values = std::vector<double>;

// As training chooses them, or the one that is asked for: on the portable rung those are emulated.
Arithmetics arithmetics_of(const Options& options) {
  Arithmetics out = choose_arithmetics(select_isa(), parse_precision(options.precision));
  if (options.arithmetic == "bf16dot") out.bf16 = Arithmetic::bf16dot;
  if (options.arithmetic == "f16chunk") out.bf16 = Arithmetic::f16chunk;
  return out;
}

CompileOptions compile_options(const Options& options) {
  return {.batch = options.batch,
          .seq = options.seq,
          .accumulate = options.accumulate,
          .update = options.update,
          .isa = select_isa(),
          .precision = parse_precision(options.precision).map,
          .arithmetics = arithmetics_of(options)};
}

// An engine: start values in, then logits(), gradients(), step() in this order, values out by name.
class ReferenceEngine {
 public:
  ReferenceEngine(const ModelConfig& config, const Options& options) : options_(options) {
    CompileOptions wanted = compile_options(options);
    wanted.keep_gradients = wanted.forward = true;
    graphs_ = compile(config, wanted).graphs;
  }

  void write(const ParameterSpec& spec, const std::vector<float>& values) {
    real_.set(spec.name, {{}, {values.begin(), values.end()}, {}});
  }
  Values read(const ParameterSpec& spec, const std::string& prefix) const {
    return real_.get(prefix + spec.name).values;
  }

  Values logits(std::span<const Row> rows) {
    fill(rows);
    real_.run(graph("forward"));
    return real_.get("logits").values;
  }

  StepResult gradients(std::span<const Row> rows) {
    StepResult out;
    out.tokens = count_targets(rows);
    scalar("target_weight", {1.0 / static_cast<double>(out.tokens)});
    scalar("loss_scale", {1.0});
    const auto B = static_cast<size_t>(options_.batch);
    for (size_t at = 0; at < rows.size(); at += B) {
      fill(rows.subspan(at, B));
      real_.run(graph("micro_step"));
      out.loss += real_.get("loss").values[0];
    }
    return out;
  }

  StepResult step(std::span<const Row> rows, int64_t s, double lr) {
    StepResult out = s == 1 ? first_ : gradients(rows);  // the sums of the first step are still there
    const auto t = static_cast<double>(s);
    scalar("hyper",
           {lr, lr / (1.0 - std::pow(options_.update.beta1, t)), std::sqrt(1.0 - std::pow(options_.update.beta2, t))});
    real_.run(graph("update"));
    out.grad_norm = real_.get("grad_norm").values[0];
    return out;
  }

  void keep(const StepResult& first) { first_ = first; }

 private:
  const Graph& graph(std::string_view name) const {
    for (const Graph& graph : graphs_)
      if (graph.name == name) return graph;
    LAMINA_CHECK(false, "no graph {}", name);
  }
  void scalar(const char* name, Values values) { real_.set(name, {{}, std::move(values), {}}); }

  void fill(std::span<const Row> rows) {
    const auto T = static_cast<size_t>(options_.seq);
    std::vector<int64_t> tokens(rows.size() * T), targets(tokens.size(), -1), positions(tokens.size()),
        key_begin(tokens.size(), options_.seq);  // a place without a token sees nothing
    for (size_t r = 0; r < rows.size(); ++r)
      for (size_t i = 0; i < rows[r].tokens.size(); ++i) {
        const size_t at = r * T + static_cast<size_t>(rows[r].start) + i;
        tokens[at] = rows[r].tokens[i];
        targets[at] = rows[r].targets[i];
        positions[at] = static_cast<int64_t>(i);
        key_begin[at] = rows[r].start;
      }
    for (auto& [name, values] :
         {std::pair{"tokens", &tokens}, {"targets", &targets}, {"positions", &positions}, {"key_begin", &key_begin}})
      real_.set(name, {{}, {}, std::move(*values)});
  }

  Options options_;
  std::vector<Graph> graphs_;
  Interpreter<double> real_;
  StepResult first_;
};

// Gradients come from a plan that keeps them, steps from the one that training uses.
class FastEngine {
 public:
  FastEngine(const ModelConfig& config, const Options& options)
      : options_{.accumulate = options.accumulate, .beta1 = options.update.beta1, .beta2 = options.update.beta2} {
    CompileOptions wanted = compile_options(options);
    training_ = std::make_unique<Session>(compile(config, wanted).plan, options.threads);
    wanted.keep_gradients = wanted.forward = true;
    reading_ = std::make_unique<Session>(compile(config, wanted).plan, options.threads);
    step_ = std::make_unique<TrainStep>(*training_, options_);
  }

  void write(const ParameterSpec& spec, const std::vector<float>& values) {
    for (Session* session : {training_.get(), reading_.get()})
      session->write(spec.name, {values.data(), spec.shape.last(), 1});
  }

  Values read(const ParameterSpec& spec, const std::string& prefix) const {
    std::vector<float> values(static_cast<size_t>(spec.shape.elements()));
    const Session& session = prefix.empty() ? *training_ : *reading_;
    session.read(prefix + spec.name, values.data(), spec.shape.last(), 1);
    return {values.begin(), values.end()};
  }

  Values logits(std::span<const Row> rows) {
    BatchInputs(*reading_).fill(rows, 0);
    reading_->run(reading_->program("forward"));
    const std::span<const float> logits = reading_->floats("logits");
    return {logits.begin(), logits.end()};
  }

  StepResult gradients(std::span<const Row> rows) { return TrainStep(*reading_, options_).backward(rows, 1); }

  StepResult step(std::span<const Row> rows, int64_t s, double lr) { return step_->step(rows, s, lr); }

  void keep(const StepResult&) { reading_.reset(); }

 private:
  TrainStepOptions options_;
  std::unique_ptr<Session> training_, reading_;
  std::unique_ptr<TrainStep> step_;
};

struct Result {
  std::string name;
  std::vector<int64_t> shape;
  Values values;
};

// Parameters or gradients as HuggingFace packs them.
template <typename Engine>
void collect(const Engine& engine, const std::vector<ParameterSpec>& specs, const std::string& from,
             const std::string& to, std::vector<Result>& out) {
  std::map<std::string, size_t> places;
  for (const ParameterSpec& spec : specs) {
    const auto [place, fresh] = places.emplace(spec.hf.name, out.size());
    const Shape& shape = spec.hf.shape;
    if (fresh)
      out.push_back({to + spec.hf.name,
                     {shape.dims.begin(), shape.dims.begin() + shape.rank},
                     Values(static_cast<size_t>(shape.elements()))});
    const Values values = engine.read(spec, from);
    const int64_t K = spec.shape.rows(), N = spec.shape.last(), width = shape.last();
    for (int64_t k = 0; k < K; ++k)
      for (int64_t n = 0; n < N; ++n) {
        const int64_t at = spec.hf.transposed ? n * width + k : k * width + spec.hf.column + n;
        out[place->second].values[static_cast<size_t>(at)] = values[static_cast<size_t>(k * N + n)];
      }
  }
}

template <typename Engine>
std::vector<Result> run(const ModelConfig& config, const Options& options) {
  const std::vector<ParameterSpec> specs = parameter_specs(config);
  const Data data(options);
  Engine engine(config, options);
  ModelWeights(options.model, config).read([&](size_t i, const float* from, int64_t stride_k, int64_t stride_n) {
    const int64_t K = specs[i].shape.rows(), N = specs[i].shape.last();
    std::vector<float> values;
    for (int64_t k = 0; k < K; ++k)
      for (int64_t n = 0; n < N; ++n) values.push_back(from[k * stride_k + n * stride_n]);
    engine.write(specs[i], values);
  });
  std::vector<Result> out;
  const std::span<const Row> first = data.step(1).first(static_cast<size_t>(options.batch));
  out.push_back({"logits", {options.batch, options.seq, config.vocab_size}, engine.logits(first)});
  const StepResult gradients = engine.gradients(data.step(1));
  collect(engine, specs, "grad.", "grad.", out);
  engine.keep(gradients);
  Result loss{"loss", {options.steps}, {}}, norm{"grad_norm", {options.steps}, {}};
  for (int64_t s = 1; s <= options.steps; ++s) {
    const StepResult result = engine.step(data.step(s), s, options.rate(s));
    loss.values.push_back(result.loss);
    norm.values.push_back(result.grad_norm);
  }
  collect(engine, specs, "", "param.", out);
  out.push_back(std::move(loss));
  out.push_back(std::move(norm));
  return out;
}

void save(const std::string& path, const std::vector<Result>& results) {
  std::vector<TensorEntry> entries;
  for (const Result& result : results) entries.push_back({result.name, "F64", result.shape});
  AtomicFile file(path);
  SafetensorsWriter writer(file, entries);
  for (const Result& result : results) writer.write(std::as_bytes(std::span(result.values)));
  writer.finish();
  file.commit();
}

void add_options(CLI::App& app, Options& o) {
  app.add_option("model", o.model)->required();
  app.add_option("tokens", o.tokens)->required();
  app.add_option("out", o.out)->required();
  app.add_option("--engine", o.engine)->check(CLI::IsMember({"reference", "fast"}));
  app.add_option("--batch", o.batch);
  app.add_option("--seq", o.seq);
  app.add_option("--steps", o.steps);
  app.add_option("--accumulate", o.accumulate);
  app.add_option("--lr", o.lr);
  app.add_option("--schedule", o.schedule);
  app.add_option("--warmup", o.warmup);
  app.add_option("--clip", o.update.clip);
  app.add_option("--clip-layer", o.update.clip_layer);
  app.add_option("--weight-decay", o.update.weight_decay);
  app.add_option("--beta1", o.update.beta1);
  app.add_option("--beta2", o.update.beta2);
  app.add_option("--eps", o.update.eps);
  app.add_option("--threads", o.threads);
  app.add_option("--precision", o.precision);
  app.add_option("--arithmetic", o.arithmetic)->check(CLI::IsMember({"bf16dot", "f16chunk"}));
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("parity");
  Options options;
  add_options(app, options);
  CLI11_PARSE(app, argc, argv);
  const ModelConfig config = read_hf_config(options.model).model;
  const bool reference = options.engine == "reference";
  save(options.out, reference ? run<ReferenceEngine>(config, options) : run<FastEngine>(config, options));
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "parity: error: %s\n", error.what());
  return 1;
}

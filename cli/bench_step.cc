// lamina bench step: whole steps of training, on made-up tokens, as a fraction of the peak measured around each of
// them.
#include <algorithm>
#include <chrono>
#include <iostream>

#include "base/rng.h"
#include "bench.h"
#include "kernels/peak.h"
#include "plan_report.h"
#include "train/flops.h"
#include "train/init.h"
#include "train/step.h"

namespace lamina::cli {
namespace {

constexpr double kWindow = 0.25;  // seconds

struct Options : ShapeOptions {
  int64_t steps = 5;
  int64_t warmup = 1;
  bool turns = false;
  bool json = false;
  Options() {
    dropout = 0.0;
    clip = 1.0;
  }
};

template <OptionsOf<Options> O, typename F>
void for_each_option(O& o, F&& f) {
  f(OptionRow{"steps", "N", "steps that are timed", kFromOne}, o.steps);
  f(OptionRow{"warmup", "N", "steps before them", kFromZero}, o.warmup);
  f(OptionRow{"turns", "", "time a step for each line on standard input, in place of --steps, and answer with a line"},
    o.turns);
  for_each_shape_option(o, f);
}

struct Measured {
  StepTimes times;
  std::vector<double> peaks;  // Gflop/s, between the steps
  int64_t tokens = 0;

  double peak() const { return *std::max_element(peaks.begin(), peaks.end()); }
};

// Rows of ids that mean nothing, for a whole step.
struct MadeUpRows {
  std::vector<int32_t> ids;
  std::vector<Row> rows;

  MadeUpRows(int64_t count, int64_t seq, int64_t vocab_size) : ids(static_cast<size_t>(count * (seq + 1))) {
    Rng rng(1);
    for (int32_t& id : ids) id = static_cast<int32_t>(rng.below(static_cast<uint64_t>(vocab_size)));
    const size_t width = static_cast<size_t>(seq);
    for (size_t r = 0; r < static_cast<size_t>(count); ++r) {
      const std::span<const int32_t> own = std::span(ids).subspan(r * (width + 1), width + 1);
      rows.push_back({own.first(width), own.subspan(1)});
    }
  }
};

double milliseconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

Measured measure(Session& session, const Options& options, const CompiledModel& model) {
  const MadeUpRows made_up(model.options.batch * model.options.accumulate, model.options.seq,
                           model.model.config.vocab_size);
  TrainStep train(session, {.accumulate = options.accumulate, .beta1 = options.betas[0], .beta2 = options.betas[1]});
  Measured out;
  int64_t done = 0;
  const auto step = [&] { out.tokens = train.step(made_up.rows, ++done, 1e-4).tokens; };
  const auto peak = [&] { out.peaks.push_back(fma_sustained_gflops(model.options.isa, session.team(), kWindow)); };
  while (done < options.warmup) step();
  peak();
  if (options.turns) print_json({{"ready", true}});
  std::string line;
  while (options.turns ? static_cast<bool>(std::getline(std::cin, line)) : std::ssize(out.times.ms) < options.steps) {
    out.times.ms.push_back(milliseconds_of(step));
    peak();
    if (options.turns) print_json({{"step_ms", out.times.ms.back()}});
  }
  if (out.times.ms.empty()) throw_error(ErrorCode::invalid, "--turns: expected a line for each step, got none");
  return out;
}

Json run_json(const Options& options, const CompiledModel& model, const Measured& measured) {
  Json out = steps_json(model.model, options, model.options.seq, model.threads, measured.times, measured.peak());
  out["isa"] = isa_name(model.options.isa);
  out["model_flops"] =
      model_flops_per_token(model.model.config, model.options.seq) * static_cast<double>(measured.tokens);
  out["limit_fraction"] = out["peak_fraction"];
  out["plan_bytes"] = model.compiled.plan.total_bytes(model.threads);
  out["process_peak_bytes"] = process_peak_bytes();
  out["compile_ms"] = model.compiled.compile_ms;
  return out;
}

int run(const Options& options) {
  check_options(options);
  validate(options);
  ShapeOptions shape = options;
  CompiledModel model = compile_model(shape);
  const int64_t limit = memory_limit_bytes(options.memory_limit);
  Session session(model.compiled.plan, model.threads, limit);
  initialise(session, parameter_specs(model.model.config), 1);
  const Measured measured = measure(session, options, model);
  const Json run = run_json(options, model, measured);
  if (options.json) {
    print_json({{"cpu", cpu_name()},
                {"peaks", {{"fp32_gflops", measured.peak()}, {"fp32_gflops_windows", measured.peaks}}},
                {"runs", Json::array({run})}});
    return 0;
  }
  print(fmt::format("{} {}x{} x{}, {} threads, {}: {:.1f} ms a step at best, {:.1f} in the median of {}\n",
                    model.model.name, options.batch, model.options.seq, options.accumulate, model.threads,
                    isa_name(model.options.isa), run["step_ms_min"].get<double>(), run["step_ms_median"].get<double>(),
                    measured.times.ms.size()));
  print(fmt::format("{:.0f} tokens/s, {:.3f} of the peak of {:.1f} Gflop/s, {} bytes in the process at most\n",
                    run["tokens_per_s"].get<double>(), run["limit_fraction"].get<double>(), measured.peak(),
                    run["process_peak_bytes"].get<int64_t>()));
  return 0;
}

}  // namespace

void add_bench_step(const Command& bench) {
  const Command command = bench.add("step", "whole steps of training on made-up tokens");
  const auto options = std::make_shared<Options>();
  command.options(*options);
  command.run(options, &run);
}

}  // namespace lamina::cli

// lamina bench step: whole steps of training, on made-up tokens, as a fraction of the peak measured around each of
// them.
#include <algorithm>
#include <iostream>

#include "bench.h"
#include "kernels/peak.h"
#include "plan_report.h"
#include "timed_steps.h"
#include "train/flops.h"
#include "train/precision.h"

namespace lamina::cli {
namespace {

constexpr double kWindow = 0.25;  // seconds

struct Options : TimedOptions {
  int64_t steps = 5;
  int64_t warmup = 1;
  bool turns = false;
  bool json = false;
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
  double limit_over_peak = 1.0;

  double peak() const { return *std::max_element(peaks.begin(), peaks.end()); }
};

Measured measure(TimedSteps& steps, const Options& options, const CompiledModel& model) {
  Measured out;
  const auto peak = [&] { out.peaks.push_back(fma_sustained_gflops(model.options.isa, steps.team(), kWindow)); };
  for (int64_t i = 0; i < options.warmup; ++i) steps.step_ms();
  peak();
  if (options.turns) print_json({{"ready", true}});
  std::string line;
  while (options.turns ? static_cast<bool>(std::getline(std::cin, line)) : std::ssize(out.times.ms) < options.steps) {
    out.times.ms.push_back(steps.step_ms());
    peak();
    if (options.turns) print_json({{"step_ms", out.times.ms.back()}});
  }
  out.limit_over_peak = product_peaks(model.compiled.plan, steps.team(), kWindow).all;
  if (out.times.ms.empty()) throw_error(ErrorCode::invalid, "--turns: expected a line for each step, got none");
  return out;
}

Json run_json(const Options& options, const CompiledModel& model, const Measured& measured) {
  Json out = steps_json(model.model, options, model.options.seq, model.threads, measured.times, measured.peak());
  out["isa"] = isa_name(model.options.isa);
  out["model_flops"] = model_flops_per_token(model.model.config, model.options.seq) *
                       static_cast<double>(options.batch * options.accumulate * model.options.seq);
  out["arithmetic"] = arithmetics_json(model.precision, model.options.arithmetics);
  out["limit_fraction"] = out["peak_fraction"].get<double>() / measured.limit_over_peak;
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
  TimedSteps steps(model.compiled.plan, model.model.config, options, model.threads);
  const Measured measured = measure(steps, options, model);
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
                    run["tokens_per_s"].get<double>(), run["limit_fraction"].get<double>(),
                    measured.limit_over_peak * measured.peak(), run["process_peak_bytes"].get<int64_t>()));
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

// lamina bench: measured figures, and the signature.
#include "bench.h"

#include <algorithm>
#include <fstream>

#include "base/cpu.h"
#include "train/flops.h"
#include "train/signature.h"

namespace lamina::cli {
namespace {

struct Options {
  bool signature = false;
  bool json = false;
};

int run(const Options& options) {
  const std::string hash = signature(cpu_count());
  if (options.json)
    print_json({{"signature", hash}});
  else
    print(hash + "\n");
  return 0;
}

}  // namespace

double StepTimes::least() const { return *std::min_element(ms.begin(), ms.end()); }

double StepTimes::median() const {
  std::vector<double> sorted = ms;
  std::sort(sorted.begin(), sorted.end());
  return 0.5 * (sorted[(sorted.size() - 1) / 2] + sorted[sorted.size() / 2]);
}

Json steps_json(const ModelSource& model, const ShapeOptions& shape, int64_t seq, int threads, const StepTimes& times,
                double peak_gflops) {
  const double tokens = static_cast<double>(shape.batch * shape.accumulate * seq);
  const double flops = model_flops_per_token(model.config, seq) * tokens;
  return {{"model", model.name},
          {"batch", shape.batch},
          {"seq", seq},
          {"accumulate", shape.accumulate},
          {"precision", shape.precision},
          {"threads", threads},
          {"steps", times.ms.size()},
          {"step_ms_min", times.least()},
          {"step_ms_median", times.median()},
          {"tokens_per_s", tokens / times.least() * 1e3},
          {"peak_fraction", peak_fraction(flops, times.least() * 1e-3, peak_gflops)}};
}

void report(bool json, const Json& result, const std::string& text) {
  if (!json) return print(text);
  say_line(text.substr(0, text.find_last_not_of('\n') + 1));
  print_json(result);
}

int64_t process_peak_bytes() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line))
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  return 0;
}

void add_bench(const Command& program) {
  const Command command = program.add("bench", "measured speed as a fraction of peaks measured in the same run");
  const auto options = std::make_shared<Options>();
  command.option({"signature", "",
                  "print one hash of a short training run, the same on every machine and for every number of threads"},
                 options->signature);
  command.json(options->json);
  add_bench_kernels(command);
  add_bench_step(command);
  add_bench_ablation(command);
  add_bench_peers(command);
  command.run([options](bool below) -> Action {
    if (below == options->signature)
      throw_error(ErrorCode::usage, "lamina bench: expected kernels, step, ablation, peers or --signature, got {}",
                  below ? "both" : "none");
    if (below) return {};
    return [options] { return run(*options); };
  });
}

}  // namespace lamina::cli

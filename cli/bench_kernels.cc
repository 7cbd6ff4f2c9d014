// lamina bench kernels: each kernel alone, as a fraction of the peak measured in the same run.
#include <algorithm>

#include "base/cpu.h"
#include "bench.h"
#include "kernel_cases.h"
#include "kernels/peak.h"

namespace lamina::cli {
namespace {

constexpr double kPeakSeconds = 0.25;

struct Options {
  std::optional<int64_t> threads;
  double seconds = 0.3;
  bool json = false;
};

template <typename O, typename F>
requires std::same_as<std::remove_const_t<O>, Options>
void for_each_option(O& o, F&& f) {
  f(OptionRow{"threads", "N", "threads (default: the processors that this process may use)", {1.0, 1024.0}}, o.threads);
  f(OptionRow{"seconds", "S", "time spent on each kernel", {0.0, 60.0}}, o.seconds);
}

struct Timed {
  KernelCase wanted;
  std::string kernel;
  Timing timing;
  double gflops() const { return wanted.flops / timing.seconds * 1e-9; }
  double gb_s() const { return wanted.bytes / timing.seconds * 1e-9; }
  double peak_fraction() const { return gflops() / timing.peak_gflops; }
};

// What the GEMMs of a step take, each at its own fraction of the peak, against what they would take at the peak.
double gemm_fraction(const std::vector<Timed>& timed) {
  double at_peak = 0.0, taken = 0.0;
  for (const Timed& t : timed) {
    if (t.wanted.per_step == 0) continue;
    const double flops = t.wanted.flops * static_cast<double>(t.wanted.per_step);
    at_peak += flops;
    taken += flops / t.peak_fraction();
  }
  return at_peak / taken;
}

Json run_json(const Timed& t, Isa isa, int threads, double peak_gb_s) {
  const bool compute = t.wanted.flops > 0.0;
  return {{"kernel", op_name(t.wanted.op)},
          {"id", t.kernel},
          {"shape", t.wanted.shape},
          {"arithmetic", "f32"},
          {"isa", isa_name(isa)},
          {"threads", threads},
          {"ms", t.timing.seconds * 1e3},
          {"gflops", compute ? Json(t.gflops()) : Json(nullptr)},
          {"peak_gflops", compute ? Json(t.timing.peak_gflops) : Json(nullptr)},
          {"peak_fraction", compute ? Json(t.peak_fraction()) : Json(nullptr)},
          {"gb_s", compute ? Json(nullptr) : Json(t.gb_s())},
          {"memory_fraction", compute ? Json(nullptr) : Json(t.gb_s() / peak_gb_s)}};
}

std::string run_text(const Timed& t) {
  const std::string head =
      fmt::format("{:<22} {:<24} {:>9.3f} ms", op_name(t.wanted.op), t.wanted.shape, t.timing.seconds * 1e3);
  if (t.wanted.flops == 0.0) return fmt::format("{} {:>8.1f} GB/s\n", head, t.gb_s());
  return fmt::format("{} {:>8.1f} Gflop/s  {:.3f} of peak {:.1f}\n", head, t.gflops(), t.peak_fraction(),
                     t.timing.peak_gflops);
}

int run(const Options& options) {
  check_options(options);
  const Isa isa = select_isa();
  const int threads = thread_count(options.threads);
  ThreadTeam team(threads);
  double peak = fma_peak_gflops(isa, team, kPeakSeconds);
  const double memory = memory_read_gb_s(isa, team, kPeakSeconds);
  std::vector<Timed> timed;
  for (const std::vector<KernelCase>& cases : {gemm_cases(), other_cases()})
    for (const KernelCase& wanted : cases) {
      BoundCase bound(wanted, isa, threads);
      timed.push_back({wanted, bound.kernel().id, bound.time(team, options.seconds)});
      peak = std::max(peak, timed.back().timing.peak_gflops);
    }
  const double fraction = gemm_fraction(timed);
  if (options.json) {
    Json runs = Json::array();
    for (const Timed& t : timed) runs.push_back(run_json(t, isa, threads, memory));
    print_json({{"cpu", cpu_name()},
                {"peaks", {{"fp32_gflops", peak}, {"memory_gb_s", memory}}},
                {"runs", runs},
                {"gemm_fraction", fraction}});
    return 0;
  }
  print(fmt::format("{}, {}, {} threads: {:.1f} Gflop/s fp32, {:.1f} GB/s read\n", cpu_name(), isa_name(isa), threads,
                    peak, memory));
  for (const Timed& t : timed) print(run_text(t));
  print(fmt::format("GEMM of a step of GPT-2 124M, weighted by flops: {:.3f} of peak\n", fraction));
  return 0;
}

}  // namespace

void add_bench_kernels(const Command& bench) {
  const Command command = bench.add("kernels", "each kernel alone, shapes of GPT-2 124M at 1024 tokens");
  const auto options = std::make_shared<Options>();
  command.options(*options);
  command.run(options, &run);
}

}  // namespace lamina::cli

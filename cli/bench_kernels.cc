// lamina bench kernels: each kernel alone, as a fraction of the peak or of the bandwidth of memory measured in the same
// run, whichever bounds it.
#include <algorithm>
#include <map>

#include "base/cpu.h"
#include "bench.h"
#include "io/model_weights.h"
#include "kernel_cases.h"
#include "kernels/peak.h"
#include "train/precision.h"

namespace lamina::cli {
namespace {

constexpr double kPeakSeconds = 0.25;

struct Options {
  std::optional<int64_t> threads;
  double seconds = 0.3;
  std::vector<std::string> kernel;
  bool json = false;
};

template <typename O, typename F>
requires std::same_as<std::remove_const_t<O>, Options>
void for_each_option(O& o, F&& f) {
  f(OptionRow{"threads", "N", "threads (default: the processors that this process may use)", {1.0, 1024.0}}, o.threads);
  f(OptionRow{"seconds", "S", "time spent on each kernel", {0.0, 60.0}}, o.seconds);
  f(OptionRow{"kernel", "PATTERN", "only kernels of these names, * for any letters; may be repeated (default: all)"},
    o.kernel);
}

struct Timed {
  KernelCase wanted;
  std::string kernel;
  Work work;
  Timing timing;

  // "f32", or what multiplies operands of 16 bits.
  std::string arithmetic() const {
    return wanted.precision == Dtype::f32 ? "f32" : arithmetic_label(wanted.precision, wanted.arithmetic);
  }
  double gflops() const { return work.operations / timing.seconds * 1e-9; }
  double gb_s() const { return work.bytes() / timing.seconds * 1e-9; }
  double peak_fraction() const { return gflops() / timing.roof.gflops; }
  double memory_fraction() const { return gb_s() / timing.roof.in_place_gb_s; }
  bool memory_bound() const { return timing.roof.memory_bound(work); }
  // The least time that this machine allows: that of the operations or that of the bytes.
  double bound_seconds() const { return std::max(timing.roof.compute_seconds(work), timing.roof.memory_seconds(work)); }
  double bound_fraction() const { return bound_seconds() / timing.seconds; }
};

// What the GEMMs of a step take, each at its own fraction of the peak, against what they would take at the fp32 peak:
// for each arithmetic.
Json gemm_fractions(const std::vector<Timed>& timed) {
  std::map<std::string, double> at_peak, taken;
  for (const Timed& t : timed) {
    if (t.wanted.per_step == 0) continue;
    const double flops = t.work.operations * static_cast<double>(t.wanted.per_step);
    at_peak[t.arithmetic()] += flops;
    taken[t.arithmetic()] += flops / t.peak_fraction();
  }
  Json out = Json::object();
  for (const auto& [arithmetic, flops] : at_peak) out[arithmetic] = flops / taken[arithmetic];
  return out;
}

bool asked_for(const Options& options, const KernelCase& wanted) {
  const auto fits = [&](const std::string& pattern) { return fits_pattern(pattern, op_name(wanted.op)); };
  return options.kernel.empty() || std::any_of(options.kernel.begin(), options.kernel.end(), fits);
}

// Each kernel between windows of what bounds it. Of what does not, the best of all windows: there it only has to be far
// enough away.
std::vector<Timed> time_all(ThreadTeam& team, Isa isa, const Options& options, Roof& roof) {
  MemoryProbe probe(isa, team);
  roof = {fma_peak_gflops(isa, team, kPeakSeconds), probe.read_gb_s(kPeakSeconds), probe.in_place_gb_s(kPeakSeconds)};
  std::vector<Timed> timed;
  for (const std::vector<KernelCase>& cases :
       {gemm_cases(), other_cases(), narrow_cases(isa, Dtype::bf16), narrow_cases(isa, Dtype::f16)})
    for (const KernelCase& wanted : cases) {
      if (!asked_for(options, wanted)) continue;
      BoundCase bound(wanted, isa, team.size(), roof);
      timed.push_back({wanted, bound.kernel().id, bound.work(), bound.time(team, probe, options.seconds)});
      timed.back().wanted.arithmetic = table_of(bound.kernel()).arithmetic;
      roof.raise(timed.back().timing.roof);
    }
  for (Timed& t : timed) {
    Roof& own = t.timing.roof;
    if (own.gflops == 0.0) own.gflops = roof.gflops;
    if (own.read_gb_s == 0.0) own.read_gb_s = roof.read_gb_s;
    if (own.in_place_gb_s == 0.0) own.in_place_gb_s = roof.in_place_gb_s;
  }
  return timed;
}

Json run_json(const Timed& t, Isa isa, int threads) {
  const Roof& roof = t.timing.roof;
  const bool memory = t.memory_bound();
  return {{"kernel", op_name(t.wanted.op)},
          {"id", t.kernel},
          {"shape", t.wanted.shape},
          {"arithmetic", t.arithmetic()},
          {"isa", isa_name(isa)},
          {"threads", threads},
          {"ms", t.timing.seconds * 1e3},
          {"flops", t.work.operations},
          {"bytes", t.work.bytes()},
          {"flops_per_byte", t.work.operations / t.work.bytes()},
          {"gflops", t.gflops()},
          {"peak_gflops", roof.gflops},
          {"peak_fraction", t.peak_fraction()},
          {"gb_s", t.gb_s()},
          {"memory_fraction", memory ? Json(t.memory_fraction()) : Json(nullptr)},
          {"bound", memory ? "memory" : "compute"},
          {"bound_ms", t.bound_seconds() * 1e3},
          {"bound_fraction", t.bound_fraction()}};
}

std::string run_text(const Timed& t) {
  const std::string rate =
      t.memory_bound() ? fmt::format("{:>7.1f} GB/s", t.gb_s()) : fmt::format("{:>7.1f} Gflop/s", t.gflops());
  return fmt::format("{:<21} {:<22} {:<9} {:>9.3f} ms {:<15} {:>8.1f} MB {:>8.2f} flop/byte  {:.3f} of {}\n",
                     op_name(t.wanted.op), t.wanted.shape, t.arithmetic(), t.timing.seconds * 1e3, rate,
                     t.work.bytes() * 1e-6, t.work.operations / t.work.bytes(), t.bound_fraction(),
                     t.memory_bound() ? "memory" : "peak");
}

Json peaks_json(const Roof& roof) {
  return {{"fp32_gflops", roof.gflops}, {"memory_gb_s", roof.read_gb_s}, {"memory_in_place_gb_s", roof.in_place_gb_s}};
}

int run(const Options& options) {
  check_options(options);
  const Isa isa = select_isa();
  const int threads = thread_count(options.threads);
  ThreadTeam team(threads);
  Roof roof;
  const std::vector<Timed> timed = time_all(team, isa, options, roof);
  if (timed.empty()) bad_value("kernel", "the name of a kernel that is measured", options.kernel.front());
  const Json fractions = options.kernel.empty() ? gemm_fractions(timed) : Json::object();  // of all or none
  Json runs = Json::array();
  std::string text =
      fmt::format("{}, {}, {} threads: {:.1f} Gflop/s fp32, {:.1f} GB/s read, {:.1f} GB/s updated in place\n",
                  cpu_name(), isa_name(isa), threads, roof.gflops, roof.read_gb_s, roof.in_place_gb_s);
  for (const Timed& t : timed) {
    runs.push_back(run_json(t, isa, threads));
    text += run_text(t);
  }
  for (const auto& [arithmetic, fraction] : fractions.items())
    text += fmt::format("GEMM of a step of GPT-2 124M in {}, weighted by flops: {:.3f} of the fp32 peak\n", arithmetic,
                        fraction.get<double>());
  report(options.json,
         {{"cpu", cpu_name()},
          {"peaks", peaks_json(roof)},
          {"runs", runs},
          {"gemm_fraction", options.kernel.empty() ? fractions["f32"] : Json(nullptr)},
          {"gemm_fractions", fractions}},
         text);
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

// lamina doctor: what this machine is, what it can do at best, and which kernels will run on it.
#include <cstdlib>
#include <fstream>
#include <tuple>

#include "base/cpu.h"
#include "base/version.h"
#include "command.h"
#include "kernels/arithmetic.h"
#include "kernels/kernel.h"
#include "kernels/peak.h"
#include "train/options.h"
#include "train/precision.h"

namespace lamina::cli {
namespace {

constexpr double kSeconds = 0.25;

struct Options {
  std::optional<int64_t> threads;
  bool json = false;
};

template <typename O, typename F>
requires std::same_as<std::remove_const_t<O>, Options>
void for_each_option(O& o, F&& f) {
  f(OptionRow{"threads", "N", "threads (default: the processors that this process may use)", {1.0, 1024.0}}, o.threads);
}

struct Peak {
  double per_core = 0.0;
  double all = 0.0;
};

Json peak_json(const Peak& peak) { return {{"per_core", peak.per_core}, {"all", peak.all}}; }

// What each --precision multiplies with here.
struct Chosen {
  std::string word;
  Dtype dtype;
  ArithmeticChoice choice;

  std::string label() const { return arithmetic_label(dtype, choice.arithmetic); }
};

std::vector<Chosen> find_choices(Isa isa) {
  return {{"mixed", Dtype::bf16, choose_arithmetic(isa, Dtype::bf16, false)},
          {"mixed-bf16", Dtype::bf16, choose_arithmetic(isa, Dtype::bf16, true)},
          {"mixed-fp16", Dtype::f16, choose_arithmetic(isa, Dtype::f16, false)}};
}

// Null where the processor has no such instructions.
Json product_peak_json(Isa isa, Arithmetic arithmetic, ThreadTeam& one, ThreadTeam& all) {
  const std::optional<double> per_core = product_peak_gflops(isa, arithmetic, one, kSeconds);
  if (!per_core) return nullptr;
  return peak_json({*per_core, *product_peak_gflops(isa, arithmetic, all, kSeconds)});
}

// One line of a file of the system, empty where there is none.
std::string system_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<std::string> find_warnings(Isa isa, int threads, const std::vector<Chosen>& all) {
  std::vector<std::string> out;
  if (isa != available_isas().back())
    out.push_back(
        fmt::format("LAMINA_ISA={} is in force, this CPU has {}", isa_name(isa), isa_name(available_isas().back())));
  if (threads > cpu_count())
    out.push_back(fmt::format("{} threads on {} processors: they take turns", threads, cpu_count()));
  if (threads < cpu_count())
    out.push_back(
        fmt::format("{} threads leave {} of {} processors idle", threads, cpu_count() - threads, cpu_count()));
  for (const Chosen& chosen : all)
    if (chosen.choice.arithmetic == Arithmetic::f32 && chosen.word != "mixed-bf16")
      out.push_back(fmt::format("--precision {}: {}", chosen.word, emulation_warning(isa, chosen.dtype)));
  if (isa == Isa::portable) out.push_back("no AVX2: the portable kernels run, several times slower");
  if (system_line("/sys/kernel/mm/transparent_hugepage/enabled").find("[never]") != std::string::npos)
    out.push_back("large pages are switched off (/sys/kernel/mm/transparent_hugepage/enabled): memory will be slower");
  return out;
}

std::string reason_text() {
  const char* forced = std::getenv("LAMINA_ISA");
  if (forced != nullptr && *forced != '\0') return fmt::format("LAMINA_ISA={}", forced);
  return fmt::format("the highest of {} rungs that this CPU has", available_isas().size());
}

Json kernels_json(Isa isa) {
  Json out = Json::object();
  for (const Kernel* kernel : kernel_table(isa).kernels) out[std::string(op_name(kernel->op))] = kernel->id;
  return out;
}

void print_text(const Json& out) {
  const auto line = [](std::string_view name, const std::string& text) {
    print(fmt::format("{:<14}{}\n", name, text));
  };
  const auto text = [&](const char* key) { return out[key].get<std::string>(); };
  line("cpu", fmt::format("{} ({} processors for this process)", text("cpu"), out["processors"].get<int>()));
  line("kernels", fmt::format("{}: {}", text("isa"), text("reason")));
  line("threads", fmt::format("{}", out["threads"].get<int>()));
  for (const auto& [name, key, unit] : {std::tuple{"fp32 peak", "fp32_gflops", "Gflop/s"},
                                        {"bf16dot peak", "bf16dot_gflops", "Gflop/s"},
                                        {"fp16 peak", "fp16_gflops", "Gflop/s"},
                                        {"memory reads", "memory_gb_s", "GB/s"}}) {
    const Json& peak = out["peaks"][key];
    if (!peak.is_null())
      line(name, fmt::format("{:.1f} {} per core, {:.1f} with all threads", peak["per_core"].get<double>(), unit,
                             peak["all"].get<double>()));
  }
  for (const auto& [word, why] : out["reasons"].items())
    line(word, fmt::format("{}: {}", out["chosen"][word].get<std::string>(), why.get<std::string>()));
  for (const auto& [op, id] : out["kernels"].items()) print(fmt::format("  {:<22} {}\n", op, id.get<std::string>()));
  for (const Json& warning : out["warnings"]) print(fmt::format("warning: {}\n", warning.get<std::string>()));
}

int run(const Options& options) {
  check_options(options);
  const Isa isa = select_isa();
  const int threads = thread_count(options.threads);
  ThreadTeam one(1), all(threads);
  const Peak fp32{fma_peak_gflops(isa, one, kSeconds), fma_peak_gflops(isa, all, kSeconds)};
  const Peak memory{MemoryProbe(isa, one).read_gb_s(kSeconds), MemoryProbe(isa, all).read_gb_s(kSeconds)};
  const std::vector<Chosen> choices = find_choices(isa);
  const std::vector<std::string> warnings = find_warnings(isa, threads, choices);
  Json isas = Json::array();
  for (Isa available : available_isas()) isas.push_back(isa_name(available));
  Json chosen = {{"fp32", fmt::format("f32.{}", isa_name(isa))}}, reasons = Json::object(), emulated = Json::array();
  for (const Chosen& c : choices) {
    chosen[c.word] = c.label();
    reasons[c.word] = c.choice.why;
    if (c.choice.arithmetic == Arithmetic::f32) emulated.push_back(c.word);
  }
  const Json out = {{"version", kVersion},
                    {"cpu", cpu_name()},
                    {"isa", isa_name(isa)},
                    {"isas", isas},
                    {"threads", threads},
                    {"processors", cpu_count()},
                    {"peaks",
                     {{"fp32_gflops", peak_json(fp32)},
                      {"bf16dot_gflops", product_peak_json(isa, Arithmetic::bf16dot, one, all)},
                      {"fp16_gflops", product_peak_json(isa, Arithmetic::f16chunk, one, all)},
                      {"int8_gops", nullptr},
                      {"memory_gb_s", peak_json(memory)}}},
                    {"chosen", chosen},
                    {"reason", reason_text()},
                    {"reasons", reasons},
                    {"kernels", kernels_json(isa)},
                    {"emulated", emulated},
                    {"warnings", warnings}};
  if (options.json) {
    print_json(out);
    return 0;
  }
  print_text(out);
  return 0;
}

}  // namespace

void add_doctor(const Command& program) {
  const Command command = program.add("doctor", "this machine: CPU, peaks measured now, the kernels chosen");
  const auto options = std::make_shared<Options>();
  command.options(*options);
  command.run(options, &run);
}

}  // namespace lamina::cli

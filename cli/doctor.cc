// lamina doctor: what this machine is, what it can do at best, and which kernels will run on it.
#include <cstdlib>
#include <fstream>

#include "base/cpu.h"
#include "command.h"
#include "kernels/kernel.h"
#include "kernels/peak.h"
#include "train/options.h"
#include "train/version.h"

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

// One line of a file of the system, empty where there is none.
std::string system_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<std::string> find_warnings(Isa isa, int threads) {
  std::vector<std::string> out;
  if (isa != available_isas().back())
    out.push_back(
        fmt::format("LAMINA_ISA={} is in force, this CPU has {}", isa_name(isa), isa_name(available_isas().back())));
  if (threads > cpu_count())
    out.push_back(fmt::format("{} threads on {} processors: they take turns", threads, cpu_count()));
  if (threads < cpu_count())
    out.push_back(
        fmt::format("{} threads leave {} of {} processors idle", threads, cpu_count() - threads, cpu_count()));
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

int run(const Options& options) {
  check_options(options);
  const Isa isa = select_isa();
  const int threads = thread_count(options.threads);
  ThreadTeam one(1), all(threads);
  const Peak fp32{fma_peak_gflops(isa, one, kSeconds), fma_peak_gflops(isa, all, kSeconds)};
  const Peak memory{MemoryProbe(isa, one).read_gb_s(kSeconds), MemoryProbe(isa, all).read_gb_s(kSeconds)};
  const std::vector<std::string> warnings = find_warnings(isa, threads);
  Json isas = Json::array();
  for (Isa available : available_isas()) isas.push_back(isa_name(available));
  const Json out = {{"version", kVersion},
                    {"cpu", cpu_name()},
                    {"isa", isa_name(isa)},
                    {"isas", isas},
                    {"threads", threads},
                    {"processors", cpu_count()},
                    {"peaks",
                     {{"fp32_gflops", peak_json(fp32)},
                      {"bf16dot_gflops", nullptr},
                      {"fp16_gflops", nullptr},
                      {"int8_gops", nullptr},
                      {"memory_gb_s", peak_json(memory)}}},
                    {"chosen", {{"fp32", fmt::format("f32.{}", isa_name(isa))}, {"mixed", nullptr}}},
                    {"reason", reason_text()},
                    {"kernels", kernels_json(isa)},
                    {"emulated", Json::array()},
                    {"warnings", warnings}};
  if (options.json) {
    print_json(out);
    return 0;
  }
  print(fmt::format("cpu           {} ({} processors for this process)\n", cpu_name(), cpu_count()));
  print(fmt::format("kernels       {}: {}\n", isa_name(isa), reason_text()));
  print(fmt::format("threads       {}\n", threads));
  print(fmt::format("fp32 peak     {:.1f} Gflop/s per core, {:.1f} with all threads\n", fp32.per_core, fp32.all));
  print(fmt::format("memory reads  {:.1f} GB/s per core, {:.1f} with all threads\n", memory.per_core, memory.all));
  print("emulated      nothing\n");
  for (const auto& [op, id] : out["kernels"].items()) print(fmt::format("  {:<22} {}\n", op, id.get<std::string>()));
  for (const std::string& warning : warnings) print(fmt::format("warning: {}\n", warning));
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

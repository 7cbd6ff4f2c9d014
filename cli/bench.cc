// lamina bench: measured figures, and the signature.
#include "bench.h"

#include <fstream>

#include "base/cpu.h"
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

int64_t process_peak_bytes() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line))
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  return 0;
}

void add_bench(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("bench", "measured speed as a fraction of peaks measured in the same run");
  const auto options = std::make_shared<Options>();
  command->require_subcommand(0, 1);
  command->add_flag("--signature", options->signature,
                    "print one hash of a short training run, the same on every machine and for every number of threads");
  bind_json(*command, options->json);
  add_bench_kernels(*command, action);
  add_bench_step(*command, action);
  command->callback([command, options, &action] {
    const bool part = !command->get_subcommands().empty();
    if (part == options->signature)
      throw_error(ErrorCode::usage, "lamina bench: expected kernels, step or --signature, got {}", part ? "both" : "none");
    if (options->signature) action = [options] { return run(*options); };
  });
}

}  // namespace lamina::cli

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

void add_bench(const Command& program) {
  const Command command = program.add("bench", "measured speed as a fraction of peaks measured in the same run");
  const auto options = std::make_shared<Options>();
  command.option({"signature", "",
                  "print one hash of a short training run, the same on every machine and for every number of threads"},
                 options->signature);
  command.json(options->json);
  add_bench_kernels(command);
  add_bench_step(command);
  add_bench_peers(command);
  command.run([options](bool below) -> Action {
    if (below == options->signature)
      throw_error(ErrorCode::usage, "lamina bench: expected kernels, step, peers or --signature, got {}",
                  below ? "both" : "none");
    if (below) return {};
    return [options] { return run(*options); };
  });
}

}  // namespace lamina::cli

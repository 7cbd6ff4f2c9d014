// lamina bench peers: whole steps of training beside other engines. Each engine is a process of its own; for each peer
// the steps of it and of Lamina alternate, so that the neighbours on a shared machine hit both alike.
#include <algorithm>
#include <filesystem>

#include "base/cpu.h"
#include "base/version.h"
#include "bench.h"
#include "io/json.h"
#include "peer_engines.h"
#include "python_engine.h"
#include "signals.h"
#include "worker.h"

namespace lamina::cli {
namespace {

constexpr char kTorchBest[] = "torch-best";

// One engine's side of a comparison.
struct Timed {
  StepTimes times;
  Json last;  // what it said at the end
};

JsonReader answer(const std::string& engine, const Json& line) { return {line, "bad answer of an engine: " + engine}; }

// How many rounds there are, once the steps of one are known.
int64_t round_count(const PeerOptions& options, double longest_ms) {
  constexpr double kLongMs = 10e3;
  return options.steps.value_or(longest_ms > kLongMs ? 3 : 5);
}

class Peers {
 public:
  explicit Peers(const PeerOptions& options)
      : options_(options), model_(open_model(options.model)), threads_(thread_count(options.threads)) {
    model_.config = with_dropout(model_.config, options.dropout);
    seq_ = resolve_seq(options, model_.config);
  }

  // Lamina's steps and the peer's in turn.
  std::pair<Timed, Timed> compare(const PeerEngine& peer) {
    const std::string name(peer.name);
    const PeerTask task{options_, model_.config, seq_, threads_, folder_.path};
    Worker ours("lamina", own_command(task), {});
    ours.read();  // ready: only one engine warms up at a time
    Worker theirs(name, peer_command(peer, task), {fmt::format("OMP_NUM_THREADS={}", threads_)});
    theirs.read();
    std::pair<Timed, Timed> out;
    std::vector<double>&own_ms = out.first.times.ms, &other_ms = out.second.times.ms;
    do {
      own_ms.push_back(answer("lamina", ours.ask())["step_ms"].as<double>());
      other_ms.push_back(answer(name, theirs.ask())["step_ms"].as<double>());
    } while (std::ssize(own_ms) < round_count(options_, std::max(own_ms[0], other_ms[0])));
    out.second.last = theirs.finish();
    out.first.last = ours.finish();
    return out;
  }

  Json own_json(const Timed& timed) const {
    const JsonReader said = answer("lamina", timed.last);
    Json out = run_json("lamina", kVersion, timed, said["runs"].entry(0), peak(timed));
    out["vocab_size"] = model_.config.vocab_size;
    return out;
  }

  // `own` is Lamina's side of the same comparison.
  Json peer_json(const PeerEngine& engine, const Timed& timed, const Timed& own) const {
    const std::string name(engine.name);
    const JsonReader said = answer(name, timed.last);
    Json out = run_json(name, said["engine_version"].as<std::string>(), timed, said, peak(own));
    out["precision"] = engine.precision;
    out["vocab_size"] = said["vocab_size"].count();
    out["settings"] = said["settings"].as<std::string>();
    return out;
  }

  int64_t seq() const { return seq_; }

 private:
  static double peak(const Timed& own) { return answer("lamina", own.last)["peaks"]["fp32_gflops"].as<double>(); }

  Json run_json(const std::string& engine, const std::string& version, const Timed& timed, const JsonReader& said,
                double peak) const {
    Json out = steps_json(model_, options_, seq_, threads_, timed.times, peak);
    out["engine"] = engine;
    out["engine_version"] = version;
    out["process_peak_bytes"] = said["process_peak_bytes"].count();
    out["compile_ms"] = said["compile_ms"].as<double>();
    return out;
  }

  const PeerOptions& options_;
  ModelSource model_;
  int threads_;
  int64_t seq_ = 0;
  TemporaryFolder folder_{"lamina-peers"};
};

std::string table(const Json& runs, const Json& ratios) {
  std::string out = fmt::format("{:<18} {:>12} {:>12} {:>10} {:>8} {:>10}\n", "engine", "least ms", "median ms",
                                "tokens/s", "of peak", "peak GiB");
  for (const Json& run : runs)
    out += fmt::format("{:<18} {:>12.1f} {:>12.1f} {:>10.0f} {:>8.3f} {:>10.2f}\n", run["engine"].get<std::string>(),
                       run["step_ms_min"].get<double>(), run["step_ms_median"].get<double>(),
                       run["tokens_per_s"].get<double>(), run["peak_fraction"].get<double>(),
                       run["process_peak_bytes"].get<double>() / (1 << 30));
  for (const Json& ratio : ratios)
    out +=
        fmt::format("{:.2f} times as fast as {}\n", ratio["ratio"].get<double>(), ratio["versus"].get<std::string>());
  return out;
}

struct Results {
  Json peaks, runs = Json::array(), ratios = Json::array();
};

Json ratio_json(const Peers& peers, const PeerOptions& options, const std::string& versus, double ratio) {
  return {{"versus", versus}, {"batch", options.batch}, {"seq", peers.seq()}, {"ratio", ratio}};
}

// torch-best stands for all of PyTorch's engines.
std::vector<std::string> engines_of(const PeerOptions& options, bool& best) {
  std::vector<std::string> out;
  const auto add = [&](const std::string& name) {
    if (std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
  };
  for (const std::string& name : options.versus) {
    if (name != kTorchBest) add(name);
    if (name != kTorchBest) continue;
    best = true;
    for (const std::string& engine : torch_engines()) add(engine);
  }
  if (out.empty()) out.push_back("torch");
  return out;
}

Results compare_all(const PeerOptions& options) {
  bool best = false;
  std::vector<const PeerEngine*> engines;
  for (const std::string& name : engines_of(options, best)) engines.push_back(&find_engine(name));
  for (const PeerEngine* engine : engines) check_engine(*engine, options);
  Peers peers(options);
  Results out;
  std::pair<double, std::string> fastest{1e300, ""};
  for (const PeerEngine* engine : engines) {
    say("lamina and {} in turn", engine->name);
    const auto [ours, theirs] = peers.compare(*engine);
    const double ratio = theirs.times.least() / ours.times.least();
    out.peaks = answer("lamina", ours.last)["peaks"].object();
    out.runs.push_back(peers.own_json(ours));
    out.runs.push_back(peers.peer_json(*engine, theirs, ours));
    out.ratios.push_back(ratio_json(peers, options, std::string(engine->name), ratio));
    if (engine->kind == PeerEngine::Kind::torch) fastest = std::min(fastest, {ratio, std::string(engine->name)});
  }
  if (!best) return out;
  out.ratios.push_back(ratio_json(peers, options, kTorchBest, fastest.first));
  out.ratios.back()["engine"] = fastest.second;
  return out;
}

int run(const PeerOptions& options) {
  check_options(options);
  validate(options);
  const StopGuard guard;  // a signal ends the workers and takes the folder away
  Results results;
  try {
    results = compare_all(options);
  } catch (const Error&) {
    if (stop_signal() == 0) throw;
    say("lamina: stopped by a signal");
    return 128 + stop_signal();
  }
  report(options.json,
         {{"cpu", cpu_name()}, {"peaks", results.peaks}, {"runs", results.runs}, {"ratios", results.ratios}},
         table(results.runs, results.ratios));
  return 0;
}

}  // namespace

void add_bench_peers(const Command& bench) {
  const Command command = bench.add("peers", "whole steps of training beside other engines, in turn");
  const auto options = std::make_shared<PeerOptions>();
  command.options(*options);
  command.run(options, &run);
}

}  // namespace lamina::cli

// lamina bench peers: whole steps of training beside other engines. Each engine is a process of its own; for each peer
// the steps of it and of Lamina alternate, so that the neighbours on a shared machine hit both alike.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/cpu.h"
#include "bench.h"
#include "embedded/kLlmcPeer.h"
#include "embedded/kTorchPeer.h"
#include "io/hf_config.h"
#include "io/json.h"
#include "train/version.h"
#include "worker.h"

namespace lamina::cli {
namespace {

struct Options : ShapeOptions {
  std::vector<std::string> versus;
  std::string llmc;
  int64_t steps = 10;
  int64_t warmup = 2;
  bool json = false;
  Options() {
    dropout = 0.0;
    clip = 1.0;
  }
};

template <OptionsOf<Options> O, typename F>
void for_each_option(O& o, F&& f) {
  f(OptionRow{"versus", "ENGINE",
              "torch, torch-compile or llm.c (default: torch); may be repeated. PyTorch is that of the Python "
              "that LAMINA_TORCH_PYTHON names, else of .venv/torch, else of python3"},
    o.versus);
  f(OptionRow{"llmc", "DIR", "where llm.c's train_gpt2.c is; it is compiled with cc for this machine"}, o.llmc);
  f(OptionRow{"steps", "N", "steps of each engine that are timed", kFromOne}, o.steps);
  f(OptionRow{"warmup", "N", "steps of each before them", kFromOne}, o.warmup);
  for_each_shape_option(o, f);
}

// One engine's side of a comparison.
struct Timed {
  StepTimes times;
  Json last;  // what it said at the end
};

JsonReader answer(const std::string& engine, const Json& line) { return {line, "bad answer of an engine: " + engine}; }

// A folder that goes when this does.
struct TemporaryFolder {
  std::string path;
  TemporaryFolder() : path((std::filesystem::temp_directory_path() / "lamina-peers-XXXXXX").string()) {
    if (mkdtemp(path.data()) == nullptr) throw_error(ErrorCode::io, "cannot make a folder: {}", path);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

class Peers {
 public:
  explicit Peers(const Options& options)
      : options_(options), model_(open_model(options.model)), threads_(thread_count(options.threads)) {
    model_.config = with_dropout(model_.config, options.dropout);
    seq_ = resolve_seq(options, model_.config);
    std::ofstream(config_path()) << hf_config_text(model_.config);
  }

  // Lamina's steps and the peer's in turn.
  std::pair<Timed, Timed> compare(const std::string& peer) {
    Worker ours("lamina", own_command(), {});
    ours.read();  // ready: only one engine warms up at a time
    Worker theirs(peer, peer_command(peer), {fmt::format("OMP_NUM_THREADS={}", threads_)});
    theirs.read();
    std::pair<Timed, Timed> out;
    for (int64_t i = 0; i < options_.steps; ++i) {
      out.first.times.ms.push_back(answer("lamina", ours.ask())["step_ms"].as<double>());
      out.second.times.ms.push_back(answer(peer, theirs.ask())["step_ms"].as<double>());
    }
    out.second.last = theirs.finish();
    out.first.last = ours.finish();
    return out;
  }

  Json run_json(const std::string& engine, const std::string& version, const Timed& timed, double peak) const {
    JsonReader said = answer(engine, timed.last);
    if (said["runs"].present()) said = said["runs"].entry(0);
    Json out = steps_json(model_, options_, seq_, threads_, timed.times, peak);
    out["engine"] = engine;
    out["engine_version"] = version;
    out["process_peak_bytes"] = said["process_peak_bytes"].count();
    out["compile_ms"] = said["compile_ms"].as<double>();
    return out;
  }

  int64_t seq() const { return seq_; }

 private:
  std::string config_path() const { return folder_.path + "/config.json"; }

  std::vector<std::string> own_command() const {
    std::vector<std::string> out{"/proc/self/exe", "bench", "step", "--turns", "--json"};
    const auto add = [&](const char* name, const std::string& value) { out.insert(out.end(), {name, value}); };
    add("--model", config_path());
    add("--batch", fmt::format("{}", options_.batch));
    add("--seq", fmt::format("{}", seq_));
    add("--accumulate", fmt::format("{}", options_.accumulate));
    add("--threads", fmt::format("{}", threads_));
    add("--warmup", fmt::format("{}", options_.warmup));
    add("--clip", fmt::format("{}", options_.clip));
    add("--clip-layer", fmt::format("{}", options_.clip_layer));
    add("--betas", fmt::format("{},{}", options_.betas[0], options_.betas[1]));
    add("--eps", fmt::format("{}", options_.eps));
    add("--weight-decay", fmt::format("{}", options_.weight_decay));
    add("--dropout", fmt::format("{}", *options_.dropout));
    if (!options_.memory_limit.empty()) add("--memory-limit", options_.memory_limit);
    add("--recompute", options_.recompute);
    for (const std::string& pass : options_.passes) add("--passes", pass);
    return out;
  }

  std::vector<std::string> peer_command(const std::string& peer) const {
    return peer == "llm.c" ? llmc_command() : torch_command(peer == "torch-compile");
  }

  std::vector<std::string> torch_command(bool compile) const {
    const char* python = std::getenv("LAMINA_TORCH_PYTHON");
    const char* local = ".venv/torch/bin/python";
    const std::string found = python != nullptr ? python : std::filesystem::exists(local) ? local : "python3";
    const Json options{{"config", Json::parse(hf_config_text(model_.config))},
                       {"batch", options_.batch},
                       {"seq", seq_},
                       {"accumulate", options_.accumulate},
                       {"threads", threads_},
                       {"warmup", options_.warmup},
                       {"clip", options_.clip},
                       {"clip_layer", options_.clip_layer},
                       {"betas", options_.betas},
                       {"eps", options_.eps},
                       {"weight_decay", options_.weight_decay},
                       {"compile", compile}};
    return {found, "-c", kTorchPeer, options.dump()};
  }

  std::vector<std::string> llmc_command() const {
    const std::string source = folder_.path + "/llmc.c", program = folder_.path + "/llmc";
    std::ofstream(source) << kLlmcPeer;
    run_command("compiling llm.c", {"cc", "-Ofast", "-march=native", "-fopenmp", "-DOMP", "-w", "-I", options_.llmc,
                                    source, "-o", program, "-lm"});
    std::vector<std::string> out{program, folder_.path + "/weights.bin"};
    for (int64_t number : {options_.batch, seq_, options_.warmup, model_.config.vocab_size, model_.config.n_positions,
                           model_.config.n_layer, model_.config.n_head, model_.config.n_embd})
      out.push_back(fmt::format("{}", number));
    for (double number : {options_.betas[0], options_.betas[1], options_.eps, options_.weight_decay})
      out.push_back(fmt::format("{}", number));
    return out;
  }

  const Options& options_;
  ModelSource model_;
  int threads_;
  int64_t seq_ = 0;
  TemporaryFolder folder_;
};

void check(const Options& options) {
  check_options(options);
  validate(options);
  for (const std::string& peer : options.versus)
    if (peer != "torch" && peer != "torch-compile" && peer != "llm.c")
      bad_value("versus", "torch, torch-compile or llm.c", peer);
  const bool llmc = std::find(options.versus.begin(), options.versus.end(), "llm.c") != options.versus.end();
  if (llmc && !std::filesystem::exists(options.llmc + "/train_gpt2.c"))
    throw_error(ErrorCode::usage, "--llmc: expected the folder of llm.c's train_gpt2.c, got \"{}\"", options.llmc);
  if (!llmc) return;
  const auto lacks = [](const char* option, const char* what, double neutral, double given) {
    if (given != neutral)
      throw_error(ErrorCode::usage, "{}: llm.c's C trainer has no {}, expected {}, got {}", option, what, neutral,
                  given);
  };
  lacks("--accumulate", "accumulation", 1.0, static_cast<double>(options.accumulate));
  lacks("--dropout", "dropout", 0.0, *options.dropout);
  lacks("--clip-layer", "clipping", 0.0, options.clip_layer);
  if (options.clip > 0.0) say("llm.c's C trainer has no clipping: its steps leave --clip {} out", options.clip);
}

void print_table(const Json& runs, const Json& ratios) {
  print(fmt::format("{:<15} {:>12} {:>12} {:>10} {:>8} {:>10}\n", "engine", "least ms", "median ms", "tokens/s",
                    "of peak", "peak GiB"));
  for (const Json& run : runs)
    print(fmt::format("{:<15} {:>12.1f} {:>12.1f} {:>10.0f} {:>8.3f} {:>10.2f}\n", run["engine"].get<std::string>(),
                      run["step_ms_min"].get<double>(), run["step_ms_median"].get<double>(),
                      run["tokens_per_s"].get<double>(), run["peak_fraction"].get<double>(),
                      run["process_peak_bytes"].get<double>() / (1 << 30)));
  for (const Json& ratio : ratios)
    print(
        fmt::format("{:.2f} times as fast as {}\n", ratio["ratio"].get<double>(), ratio["versus"].get<std::string>()));
}

int run(const Options& given) {
  Options options = given;
  if (options.versus.empty()) options.versus = {"torch"};
  check(options);
  Peers peers(options);
  Json runs = Json::array(), ratios = Json::array(), peaks;
  for (const std::string& peer : options.versus) {
    say("lamina and {} in turn, {} steps each", peer, options.steps);
    const auto [ours, theirs] = peers.compare(peer);
    const JsonReader measured = answer("lamina", ours.last)["peaks"];
    peaks = measured.object();
    const double peak = measured["fp32_gflops"].as<double>();
    runs.push_back(peers.run_json("lamina", kVersion, ours, peak));
    runs.push_back(peers.run_json(peer, answer(peer, theirs.last)["engine_version"].as<std::string>(), theirs, peak));
    ratios.push_back({{"versus", peer},
                      {"batch", options.batch},
                      {"seq", peers.seq()},
                      {"ratio", theirs.times.least() / ours.times.least()}});
  }
  if (options.json) {
    print_json({{"cpu", cpu_name()}, {"peaks", peaks}, {"runs", runs}, {"ratios", ratios}});
    return 0;
  }
  print_table(runs, ratios);
  return 0;
}

}  // namespace

void add_bench_peers(const Command& bench) {
  const Command command = bench.add("peers", "whole steps of training beside other engines, in turn");
  const auto options = std::make_shared<Options>();
  command.options(*options);
  command.run(options, &run);
}

}  // namespace lamina::cli

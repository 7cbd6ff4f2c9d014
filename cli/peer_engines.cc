#include "peer_engines.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "embedded/kLlmcPeer.h"
#include "embedded/kMindsporePeer.h"
#include "embedded/kTorchPeer.h"
#include "io/hf_config.h"
#include "python_engine.h"
#include "worker.h"

namespace lamina::cli {
namespace {

using Kind = PeerEngine::Kind;

constexpr PeerEngine kEngines[] = {
    {"torch", Kind::torch},
    {"torch-compile", Kind::torch, "fp32", true},
    {"torch-bf16", Kind::torch, "mixed-bf16"},
    {"torch-compile-bf16", Kind::torch, "mixed-bf16", true},
    {"torch-fp16", Kind::torch, "mixed-fp16"},
    {"torch-compile-fp16", Kind::torch, "mixed-fp16", true},
    {"mindspore", Kind::mindspore},
    {"llm.c", Kind::llmc},
};

Json python_options(const PeerEngine& engine, const PeerTask& task) {
  const PeerOptions& options = task.options;
  const std::string_view precision = engine.precision;
  return {{"config", Json::parse(hf_config_text(task.config))},
          {"batch", options.batch},
          {"seq", task.seq},
          {"accumulate", options.accumulate},
          {"threads", task.threads},
          {"warmup", options.warmup},
          {"clip", options.clip},
          {"clip_layer", options.clip_layer},
          {"betas", options.betas},
          {"eps", options.eps},
          {"weight_decay", options.weight_decay},
          {"precision", precision.substr(precision.find('-') + 1)},
          {"compile", engine.compile}};
}

// The GPT-2 for MindSpore is the Python package's: its files lie beside the worker.
std::vector<std::string> mindspore_command(const PeerEngine& engine, const PeerTask& task) {
  const std::string worker = task.folder + "/worker.py";
  std::ofstream(worker) << kMindsporePeer;
  write_mindspore_package(task.folder);
  return {python_of("LAMINA_MINDSPORE_PYTHON", "mindspore"), worker, python_options(engine, task).dump()};
}

std::vector<std::string> llmc_command(const PeerTask& task) {
  const PeerOptions& options = task.options;
  const std::string source = task.folder + "/llmc.c", program = task.folder + "/llmc";
  std::ofstream(source) << kLlmcPeer;
  run_command("compiling llm.c", {"cc", "-Ofast", "-march=native", "-fopenmp", "-DOMP", "-w", "-I", options.llmc,
                                  source, "-o", program, "-lm"});
  std::vector<std::string> out{program, task.folder + "/weights.bin"};
  for (int64_t number : {options.batch, task.seq, options.warmup, task.config.vocab_size, task.config.n_positions,
                         task.config.n_layer, task.config.n_head, task.config.n_embd})
    out.push_back(fmt::format("{}", number));
  for (double number : {options.betas[0], options.betas[1], options.eps, options.weight_decay})
    out.push_back(fmt::format("{}", number));
  return out;
}

// What an engine has not, with the value that asks for nothing.
void lacks(std::string_view engine, const char* option, const char* what, double neutral, double given) {
  if (given != neutral)
    throw_error(ErrorCode::usage, "{}: {} has no {}, expected {}, got {}", option, engine, what, neutral, given);
}

}  // namespace

std::string engine_names() {
  std::string out;
  for (const PeerEngine& engine : kEngines) out += std::string(engine.name) + ", ";
  return out + "or torch-best for all of PyTorch's";
}

std::vector<std::string> torch_engines() {
  std::vector<std::string> out;
  for (const PeerEngine& engine : kEngines)
    if (engine.kind == Kind::torch) out.emplace_back(engine.name);
  return out;
}

const PeerEngine& find_engine(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kEngines), std::end(kEngines), [&](const PeerEngine& e) { return e.name == name; });
  if (found == std::end(kEngines)) bad_value("versus", engine_names(), std::string(name));
  return *found;
}

void check_engine(const PeerEngine& engine, const PeerOptions& options) {
  if (engine.kind == Kind::torch) return;
  const bool llmc = engine.kind == Kind::llmc;
  if (llmc && !std::filesystem::exists(options.llmc + "/train_gpt2.c"))
    throw_error(ErrorCode::usage, "--llmc: expected the folder of llm.c's train_gpt2.c, got \"{}\"", options.llmc);
  const char* name = llmc ? "llm.c's C trainer" : "the GPT-2 for MindSpore";
  lacks(name, "--accumulate", "accumulation", 1.0, static_cast<double>(options.accumulate));
  lacks(name, "--dropout", "dropout", 0.0, *options.dropout);
  lacks(name, "--clip-layer", "clipping of layers", 0.0, options.clip_layer);
  if (llmc && options.clip > 0.0) say("llm.c's C trainer has no clipping: its steps leave --clip {} out", options.clip);
}

std::vector<std::string> peer_command(const PeerEngine& engine, const PeerTask& task) {
  switch (engine.kind) {
    case Kind::torch:
      return {python_of("LAMINA_TORCH_PYTHON", "torch"), "-c", kTorchPeer, python_options(engine, task).dump()};
    case Kind::mindspore: return mindspore_command(engine, task);
    case Kind::llmc: return llmc_command(task);
  }
  return {};
}

std::vector<std::string> own_command(const PeerTask& task) {
  const PeerOptions& options = task.options;
  const std::string config = task.folder + "/config.json";
  std::ofstream(config) << hf_config_text(task.config);
  std::vector<std::string> out{"/proc/self/exe", "bench", "step", "--turns", "--json"};
  const auto add = [&](const char* name, const std::string& value) { out.insert(out.end(), {name, value}); };
  add("--model", config);
  add("--batch", fmt::format("{}", options.batch));
  add("--seq", fmt::format("{}", task.seq));
  add("--accumulate", fmt::format("{}", options.accumulate));
  add("--threads", fmt::format("{}", task.threads));
  add("--warmup", fmt::format("{}", options.warmup));
  add("--clip", fmt::format("{}", options.clip));
  add("--clip-layer", fmt::format("{}", options.clip_layer));
  if (options.update_in_backward) out.emplace_back("--update-in-backward");
  add("--betas", fmt::format("{},{}", options.betas[0], options.betas[1]));
  add("--eps", fmt::format("{}", options.eps));
  add("--weight-decay", fmt::format("{}", options.weight_decay));
  add("--dropout", fmt::format("{}", *options.dropout));
  if (!options.memory_limit.empty()) add("--memory-limit", options.memory_limit);
  add("--recompute", options.recompute);
  add("--precision", options.precision);
  for (const std::string& pass : options.passes) add("--passes", pass);
  return out;
}

}  // namespace lamina::cli

// The engines that `bench peers` knows beside Lamina, and how a worker of each is started: programs that speak lines
// (worker.h), carried inside this one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench.h"
#include "command.h"
#include "model/config.h"

namespace lamina::cli {

struct PeerEngine {
  enum class Kind : uint8_t { torch, llmc, mindspore };

  std::string_view name;
  Kind kind;
  std::string_view precision = "fp32";  // as in --precision
  bool compile = false;                 // torch.compile
};

std::string engine_names();                            // for people
std::vector<std::string> torch_engines();              // all of PyTorch's
const PeerEngine& find_engine(std::string_view name);  // throws Error(usage) that names --versus

struct PeerOptions : TimedOptions {
  std::vector<std::string> versus;
  std::string llmc;
  std::optional<int64_t> steps;
  int64_t warmup = 2;
  bool json = false;
};

template <OptionsOf<PeerOptions> O, typename F>
void for_each_option(O& o, F&& f) {
  f(
      OptionRow{
          "versus", "ENGINE",
          "torch, torch-compile, the same with -bf16 or -fp16 behind (autocast), torch-best (all of these), mindspore "
          "or "
          "llm.c (default: torch); may be repeated. PyTorch is that of the Python that LAMINA_TORCH_PYTHON names, else "
          "of .venv/torch, else of python3; MindSpore likewise"},
      o.versus);
  f(OptionRow{"llmc", "DIR", "where llm.c's train_gpt2.c is; it is compiled with cc for this machine"}, o.llmc);
  f(OptionRow{"steps", "N", "steps of each engine that are timed (default: 5; 3 where one takes more than 10 s)",
              kFromOne},
    o.steps);
  f(OptionRow{"warmup", "N", "steps of each before them", kFromOne}, o.warmup);
  for_each_shape_option(o, f);
}

// Throws Error(usage) for what the engine cannot do and says what it leaves out.
void check_engine(const PeerEngine& engine, const PeerOptions& options);

// What every worker of a comparison is told.
struct PeerTask {
  const PeerOptions& options;
  const ModelConfig& config;
  int64_t seq;
  int threads;
  const std::string& folder;  // for its files
};

// The command that starts the engine's worker, its files written, or compiled.
std::vector<std::string> peer_command(const PeerEngine& engine, const PeerTask& task);
// The same for Lamina's own.
std::vector<std::string> own_command(const PeerTask& task);

}  // namespace lamina::cli

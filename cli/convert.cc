// lamina convert: a model from one format and naming into another, with an account of every tensor.
#include "migrate/convert.h"

#include <algorithm>
#include <map>
#include <utility>

#include "command.h"
#include "io/quote.h"
#include "signals.h"
#include "train/options.h"

namespace lamina::cli {
namespace {

struct Options {
  std::string from, to;
  std::string format, names, names_from, config;
  std::string dtype = "keep";
  std::vector<std::string> allow;
  std::optional<int64_t> vocab_size;
  bool optimizer = false;
  bool allow_non_finite = false;
  bool json = false;
};

template <OptionsOf<Options> O, typename F>
void for_each_option(O& o, F&& f) {
  f(OptionRow{"to", "FORMAT", "hf, torch, mindspore or mindspore-ckpt", kAnyNumber, true}, o.format);
  f(
      OptionRow{
          "names", "NAMES",
          "names and layouts to write: hf, nanogpt, lamina, mindspore-nn, mindformers-1.x, megatron or megatron-old "
          "(default: lamina for MindSpore, else hf)"},
      o.names);
  f(OptionRow{"names-from", "NAMES", "names and layouts of the source (default: found out)"}, o.names_from);
  f(OptionRow{"config", "FILE", "a config.json (default: the one beside the weights, or what the file says)"},
    o.config);
  f(OptionRow{"dtype", "TYPE", "keep, fp32, fp16 or bf16: type of the weights"}, o.dtype);
  f(OptionRow{"vocab-size", "N", "rows of the tables: more are filled with zeros, fewer are cut off", kFromOne},
    o.vocab_size);
  f(OptionRow{"optimizer", "", "the optimizer's moments and step too"}, o.optimizer);
  f(OptionRow{"allow", "PATTERN", "tensors of the source that may be left behind, * for any letters; may be repeated"},
    o.allow);
  f(OptionRow{"allow-non-finite", "", "weights that are NaN or infinite"}, o.allow_non_finite);
}

void throw_if_stopped() {
  if (stop_signal() != 0) throw_error(ErrorCode::io, "stopped by a signal");
}

std::string counted(const Conversion& done) {
  std::map<std::string, int64_t> counts;
  for (const Converted& tensor : done.tensors) ++counts[tensor.operation];
  std::string out = fmt::format("{} written", done.tensors.size());
  const char* separator = ": ";
  for (const auto& [operation, count] : counts)
    out += fmt::format("{}{} {}", std::exchange(separator, "; "), operation, count);
  return out;
}

void tell(const Options& options, const Conversion& done) {
  for (const std::string& warning : done.warnings) say("warning: {}", warning);
  constexpr size_t kShown = 20;
  const std::vector<std::string>& allowed = done.report.allowed;
  for (size_t i = 0; i < std::min(kShown, allowed.size()); ++i)
    say("left behind, as allowed: {}", plain_or_quoted(allowed[i]));
  if (allowed.size() > kShown) say("left behind, as allowed: {} more", allowed.size() - kShown);
  for (const auto& [name, count] : done.non_finite)
    say("warning: {}: {} numbers are NaN or infinite", plain_or_quoted(name), count);
  say("{} ({}, names of {}) -> {} ({}, names of {})", options.from, done.format_from, done.names_from, options.to,
      done.format_to, done.names_to);
  say("{}", done.report.text());
  say("{}", counted(done));
  if (!done.optimizer.empty()) say("{}", done.optimizer);
}

int run(const Options& options) {
  check_options(options);
  const Conversion done = convert({.from = options.from,
                                   .to = options.to,
                                   .format = options.format,
                                   .names_from = options.names_from,
                                   .names_to = options.names,
                                   .config = options.config,
                                   .dtype = options.dtype,
                                   .allow = options.allow,
                                   .vocab_size = options.vocab_size,
                                   .optimizer = options.optimizer,
                                   .allow_non_finite = options.allow_non_finite},
                                  throw_if_stopped);
  tell(options, done);
  if (options.json) print_json(conversion_json(done));
  return 0;
}

int run_guarded(const Options& options) {
  const StopGuard guard;  // a signal takes the half-written folder away
  try {
    return run(options);
  } catch (const Error&) {
    if (stop_signal() == 0) throw;
    return 128 + stop_signal();
  }
}

}  // namespace

void add_convert(const Command& program) {
  const Command command =
      program.add("convert", "a model from one format into another, with an account of every tensor");
  const auto options = std::make_shared<Options>();
  command.positional("FROM", options->from, "a model folder, an index of shards or a file of weights");
  command.positional("TO", options->to, "a folder, new or empty");
  command.options(*options);
  command.run(options, &run_guarded);
}

}  // namespace lamina::cli

// lamina verify: whether two models, or a model and another program, compute the same.
#include <algorithm>
#include <chrono>

#include "base/cpu.h"
#include "command.h"
#include "migrate/verify_request.h"
#include "train/options.h"
#include "verify_engine.h"

namespace lamina::cli {
namespace {

struct Options {
  std::string a, b;
  std::string config_a, config_b, names_a, names_b;
  std::string with, witness, write_witness;
  std::optional<int64_t> tokens;
  int64_t seed = 0;
  std::string ids_file;
  std::optional<double> tolerance;
  std::optional<int64_t> steps;
  std::optional<double> lr;
  std::optional<int64_t> threads;
  bool json = false;
};

template <OptionsOf<Options> O, typename F>
void for_each_option(O& o, F&& f) {
  f(OptionRow{"config-a", "CONFIG.json", "A's configuration (default: the one beside it, or what the file says)"},
    o.config_a);
  f(OptionRow{"config-b", "CONFIG.json", "B's"}, o.config_b);
  f(OptionRow{"names-a", "NAMES", "names and layouts of A, as those of convert --names-from (default: found out)"},
    o.names_a);
  f(OptionRow{"names-b", "NAMES", "B's"}, o.names_b);
  f(
      OptionRow{
          "with", "ENGINE",
          "torch or mindspore: B (A where there is none) is loaded and computed by transformers or lamina.mindspore, "
          "in the Python that LAMINA_TORCH_PYTHON or LAMINA_MINDSPORE_PYTHON names, else of .venv/torch, "
          ".venv/mindspore"},
      o.with);
  f(OptionRow{"witness", "FILE", "numbers that a program has computed, in place of B"}, o.witness);
  f(OptionRow{"write-witness", "FILE", "write A's numbers, in double, for a comparison elsewhere"}, o.write_witness);
  f(OptionRow{"tokens", "N", "tokens of each of two rows (default: what takes some minutes at most, up to 64)",
              kFromOne},
    o.tokens);
  f(OptionRow{"seed", "N", "of the ids", kFromZero}, o.seed);
  f(OptionRow{"ids-file", "FILE", "decimal ids in place of seeded ones, for one or two rows"}, o.ids_file);
  f(OptionRow{"tolerance", "X",
              "of the comparison of the two, in the mean of squares, relative to each tensor (default: computed)",
              kFromZero},
    o.tolerance);
  f(OptionRow{"steps", "N", "for --write-witness: also the losses of so many steps of AdamW", kFromOne}, o.steps);
  f(OptionRow{"lr", "X", "of those steps (default: 0.001); with --witness: what they have to have", kAboveZero}, o.lr);
  f(OptionRow{"threads", "N", "threads (default: the processors that this process may use)", {1.0, 1024.0}}, o.threads);
}

// Progress on standard error, a line each with the seconds since the start.
std::function<void(const std::string&)> progress() {
  const auto start = std::chrono::steady_clock::now();
  return [start](const std::string& line) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    say("{:7.1f} s  {}", passed.count(), line);
  };
}

// A line for the worst tensor of each kind: stream by layer, logits, loss, gradients together.
void print_comparison(const VerifyComparison& made) {
  print(fmt::format("{}\n  {:<34} {:>10} {:>10} {:>12}\n", made.what, "", "error", "tolerance", "largest gap"));
  const auto line = [](const std::string& name, const TensorGap& gap) {
    print(fmt::format("  {:<34} {:>10.2e} {:>10.2e} {:>12.2e}{}\n", name, gap.error, gap.tolerance, gap.largest,
                      gap.fits() ? "" : "  differs"));
  };
  const TensorGap* worst = nullptr;
  int64_t gradients = 0;
  for (const TensorGap& gap : made.tensors) {
    if (!is_gradient(gap.tensor)) {
      line(gap.tensor, gap);
      continue;
    }
    ++gradients;
    if (worst == nullptr || gap.error * worst->tolerance > worst->error * gap.tolerance) worst = &gap;
  }
  if (worst != nullptr)
    line(fmt::format("{} gradients, worst", gradients), *worst), print(fmt::format("    {}\n", worst->tensor));
}

std::string verdict(const Verified& done) {
  const VerifyReport& report = done.report;
  const std::optional<double> logits = logits_gap(report);
  const std::string gap = logits ? fmt::format("largest gap of logits {:.3g}", *logits) : "logits were not compared";
  if (report.equal)
    return fmt::format("equal: {} and {}, {}, {} x {} tokens, {:.1f} s\n", done.a, done.b, gap, done.inputs.rows,
                       done.inputs.seq, done.seconds);
  const TensorGap& first = *report.first;
  const int64_t layer = layer_of(first.tensor);
  std::string out = fmt::format("different: {}: first {}{}, error {:.3g}, tolerance {:.3g}; {}\n", report.where,
                                layer < 0 ? "" : fmt::format("in layer {}: ", layer), first.tensor, first.error,
                                first.tolerance, gap);
  return out + (report.cause.empty() ? fmt::format("cause: none of the {} that were tested\n", report.causes_tested)
                                     : fmt::format("cause: {}\n", report.cause));
}

void print_report(const Verified& done) {
  const VerifyReport& report = done.report;
  for (const VerifyComparison& made : report.comparisons) print_comparison(made);
  for (const std::string& note : report.notes) print(fmt::format("note: {}\n", note));
  constexpr size_t kShown = 5;
  for (size_t i = 0; i < std::min(kShown, report.weights.size()); ++i)
    print(fmt::format("weights differ: {}, error {:.3g}\n", report.weights[i].tensor, report.weights[i].error));
  if (report.weights.size() > kShown)
    print(fmt::format("weights differ: and {} more\n", report.weights.size() - kShown));
  if (report.tensors > 0) print(fmt::format("compared {} of {} tensors of A\n", report.compared, report.tensors));
  if (!report.greedy_a.empty())
    print(fmt::format("greedy ids after half of each row: {}\n",
                      report.greedy_a == report.greedy_b ? "equal" : "different"));
  print(verdict(done));
}

VerifyRequest request_of(const Options& options) {
  VerifyRequest out{.a = options.a,
                    .b = options.b,
                    .config_a = options.config_a,
                    .config_b = options.config_b,
                    .names_a = options.names_a,
                    .names_b = options.names_b,
                    .witness = options.witness,
                    .write_witness = options.write_witness,
                    .tokens = options.tokens,
                    .seed = options.seed,
                    .steps = options.steps,
                    .lr = options.lr};
  if (!options.ids_file.empty()) {
    out.ids = parse_ids(read_input(options.ids_file), options.ids_file);
    out.ids_from = options.ids_file;
  }
  return out;
}

int run(const Options& options) {
  check_options(options);
  if (!options.with.empty()) check_witness_engine(options.with);
  (void)select_isa();
  const VerifyOptions wanted{.threads = thread_count(options.threads),
                             .tolerance = options.tolerance,
                             .say = progress(),
                             .warn = [](const std::string& line) { say("warning: {}", line); }};
  const auto witness = [&](const std::string& model, const ModelConfig& config, const VerifyInputs& inputs) {
    return run_witness(options.with, model, config, inputs, wanted.threads);
  };
  const Verified done = verify(request_of(options), wanted, {options.with, witness});
  if (!options.write_witness.empty()) {
    say("{}: {} x {} tokens, hash {}", options.write_witness, done.inputs.rows, done.inputs.seq, done.inputs.hash());
    return 0;
  }
  options.json ? print_json(verified_json(done)) : print_report(done);
  return done.report.equal ? 0 : 1;
}

}  // namespace

void add_verify(const Command& program) {
  const Command command = program.add("verify", "whether two models compute the same, layer by layer, and if not why");
  const auto options = std::make_shared<Options>();
  command.positional("A", options->a, "a model in any format that is read");
  command.positional("B", options->b, "another one", false);
  command.options(*options);
  command.run(options, &run);
}

}  // namespace lamina::cli

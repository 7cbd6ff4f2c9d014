// lamina verify: whether two models, or a model and another program, compute the same.
#include "migrate/verify.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/cpu.h"
#include "command.h"
#include "train/options.h"
#include "verify_engine.h"

namespace lamina::cli {
namespace {

struct Options {
  std::string a, b;
  std::string config_a, config_b;
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

void check(const Options& options) {
  check_options(options);
  (void)select_isa();
  const auto both = [](const std::string& a, const std::string& b) { return !a.empty() && !b.empty(); };
  const auto refuse = [](const char* text) { throw_error(ErrorCode::usage, "{}", text); };
  if (both(options.witness, options.with)) refuse("--witness and --with: expected one of them, got both");
  if (both(options.witness, options.b)) refuse("--witness: expected no B beside it, got both");
  if (both(options.write_witness, options.b + options.with + options.witness))
    refuse("--write-witness: expected A alone, got something to compare it with");
  if ((options.b + options.with + options.witness + options.write_witness).empty())
    refuse("nothing to compare A with: expected B, --with, --witness or --write-witness, got none");
  if (options.steps && options.write_witness.empty()) refuse("--steps: expected --write-witness beside it, got none");
  if (!options.with.empty()) check_witness_engine(options.with);
}

// Progress on standard error, a line each with the seconds since the start.
std::function<void(const std::string&)> progress() {
  const auto start = std::chrono::steady_clock::now();
  return [start](const std::string& line) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    say("{:7.1f} s  {}", passed.count(), line);
  };
}

Json number(double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); }

Json gap_json(const TensorGap& gap) {
  const int64_t layer = layer_of(gap.tensor);
  return {{"layer", layer < 0 ? Json(nullptr) : Json(layer)},
          {"tensor", gap.tensor},
          {"error", number(gap.error)},
          {"tolerance", gap.tolerance},
          {"largest_gap", number(gap.largest)}};
}

// Of logits between the two; 0 where there are none.
double logits_gap(const VerifyReport& report) {
  for (const VerifyComparison& made : report.comparisons)
    for (const TensorGap& gap : made.tensors)
      if (made.id == "models" && gap.tensor == "logits") return gap.largest;
  return 0.0;
}

struct Run {
  const Options& options;
  const VerifyInputs& inputs;
  std::string other;  // B, or who witnesses
  double seconds = 0.0;
};

void print_json_report(const VerifyReport& report, const Run& run) {
  Json tensors = Json::array(), weights = Json::array();
  for (const VerifyComparison& made : report.comparisons)
    for (const TensorGap& gap : made.tensors) {
      tensors.push_back(gap_json(gap));
      tensors.back()["comparison"] = made.id;
    }
  for (const TensorGap& gap : report.weights) weights.push_back(gap_json(gap));
  print_json(
      {{"a", run.options.a},
       {"b", run.other},
       {"equal", report.equal},
       {"first_difference", report.first ? gap_json(*report.first) : Json(nullptr)},
       {"cause", report.cause.empty() ? Json(nullptr) : Json(report.cause)},
       {"cause_id", report.cause_id.empty() ? Json(nullptr) : Json(report.cause_id)},
       {"causes_tested", report.causes_tested},
       {"largest_logits_gap", number(logits_gap(report))},
       {"rows", run.inputs.rows},
       {"tokens", run.inputs.seq},
       {"inputs_xxh3_128", run.inputs.hash()},
       {"greedy", {{"equal", report.greedy_a == report.greedy_b}, {"a", report.greedy_a}, {"b", report.greedy_b}}},
       {"weights", weights},
       {"notes", report.notes},
       {"tensors", tensors},
       {"seconds", run.seconds}});
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

std::string verdict(const VerifyReport& report, const Run& run) {
  if (report.equal)
    return fmt::format("equal: {} and {}, largest gap of logits {:.3g}, {} x {} tokens, {:.1f} s\n", run.options.a,
                       run.other, logits_gap(report), run.inputs.rows, run.inputs.seq, run.seconds);
  const TensorGap& first = *report.first;
  const int64_t layer = layer_of(first.tensor);
  std::string out =
      fmt::format("different: {}: first {}{}, error {:.3g}, tolerance {:.3g}; largest gap of logits {:.3g}\n",
                  report.where, layer < 0 ? "" : fmt::format("in layer {}: ", layer), first.tensor, first.error,
                  first.tolerance, logits_gap(report));
  return out + (report.cause.empty() ? fmt::format("cause: none of the {} that were tested\n", report.causes_tested)
                                     : fmt::format("cause: {}\n", report.cause));
}

void print_report(const VerifyReport& report, const Run& run) {
  for (const VerifyComparison& made : report.comparisons) print_comparison(made);
  for (const std::string& note : report.notes) print(fmt::format("note: {}\n", note));
  constexpr size_t kShown = 5;
  for (size_t i = 0; i < std::min(kShown, report.weights.size()); ++i)
    print(fmt::format("weights differ: {}, error {:.3g}\n", report.weights[i].tensor, report.weights[i].error));
  if (report.weights.size() > kShown)
    print(fmt::format("weights differ: and {} more\n", report.weights.size() - kShown));
  if (!report.greedy_a.empty())
    print(fmt::format("greedy ids after half of each row: {}\n",
                      report.greedy_a == report.greedy_b ? "equal" : "different"));
  print(verdict(report, run));
}

VerifyInputs inputs_for(const Options& options, const ModelConfig& config, int64_t vocab_size) {
  const int64_t tokens = options.tokens.value_or(0);
  if (options.ids_file.empty()) return seeded_inputs(config, vocab_size, tokens, static_cast<uint64_t>(options.seed));
  return inputs_of_ids(config, vocab_size, tokens, parse_ids(read_input(options.ids_file), options.ids_file),
                       options.ids_file);
}

VerifyModel load(const std::string& path, const std::string& config, const char* which) {
  VerifyModel out = load_verify_model(path, config);
  for (const std::string& warning : out.warnings) say("warning: {}: {}", which, warning);
  return out;
}

int finish(const VerifyReport& report, const Run& run) {
  run.options.json ? print_json_report(report, run) : print_report(report, run);
  return report.equal ? 0 : 1;
}

int run(const Options& options) {
  check(options);
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  const VerifyOptions wanted{
      .threads = thread_count(options.threads), .tolerance = options.tolerance, .say = progress()};
  const VerifyModel a = load(options.a, options.config_a, "A");
  const bool models = options.with.empty() && !options.b.empty();
  if (models) {
    const VerifyModel b = load(options.b, options.config_b, "B");
    const VerifyInputs inputs = inputs_for(options, a.config, std::min(a.config.vocab_size, b.config.vocab_size));
    const VerifyReport report = verify_models(a, b, inputs, wanted);
    return finish(report, {options, inputs, options.b, seconds()});
  }
  VerifyInputs inputs = inputs_for(options, a.config, a.config.vocab_size);
  if (!options.write_witness.empty()) {
    write_witness(options.write_witness, a.config,
                  make_witness(a, inputs, options.steps.value_or(0), options.lr.value_or(1e-3)));
    say("{}: {} x {} tokens, hash {}", options.write_witness, inputs.rows, inputs.seq, inputs.hash());
    return 0;
  }
  if (!options.with.empty()) wanted.say(fmt::format("{} loads and computes", options.with));
  const bool given = options.tokens || options.seed != 0 || !options.ids_file.empty();
  const Witness witness = options.with.empty() ? read_witness(options.witness, a.config)
                                               : run_witness(options.with, options.b.empty() ? options.a : options.b,
                                                             a.config, inputs, wanted.threads);
  if (witness.inputs && !given) inputs = *witness.inputs;
  check_same_inputs(witness, inputs, options.lr);
  const VerifyReport report = verify_witness(a, witness, inputs, wanted);
  const std::string name = options.with.empty() ? options.witness : witness.engine;
  return finish(report, {options, inputs, name, seconds()});
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

// lamina train
#include "command.h"
#include "progress.h"
#include "signals.h"
#include "train/trainer.h"

namespace lamina::cli {
namespace {

struct Options {
  TrainOptions train;
  bool json = false;
};

template <typename T>
Json optional_json(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json to_json(const TrainResult& r) {
  return {{"out", r.out},
          {"run_id", r.run_id},
          {"plan_digest", r.plan_digest},
          {"parameters", r.parameters},
          {"steps", r.steps},
          {"skipped", r.skipped},
          {"tokens", r.tokens},
          {"resumed_from", r.resumed_from},
          {"loss", optional_json(r.loss)},
          {"valid_loss", optional_json(r.valid_loss)},
          {"best_valid_loss", optional_json(r.best_valid_loss)},
          {"best_step", r.best_step},
          {"tokens_per_s", r.tokens_per_s},
          {"peak_fraction", r.peak_fraction},
          {"limit_fraction", r.limit_fraction},
          {"peaks", {{"fp32_gflops", {{"before", r.peak_gflops_before}, {"after", r.peak_gflops_after}}}}},
          {"plan_bytes", r.plan_bytes},
          {"signal", r.signal}};
}

int run(const Options& options) {
  validate(options.train);
  std::optional<StopGuard> guard;  // before anything is written a signal ends the process at once
  TrainResult result;
  {
    Progress progress(options.train.log_every);
    TrainHooks hooks;
    hooks.begin = [&] { guard.emplace(); };
    hooks.say = [&](const std::string& line) { progress.say(line); };
    hooks.step = [&](const StepRecord& record) { progress.step(record); };
    hooks.stop_signal = stop_signal;
    result = train(options.train, hooks);
  }
  if (options.json) print_json(to_json(result));
  return result.signal == 0 ? 0 : 128 + result.signal;
}

}  // namespace

void add_train(const Command& program) {
  const Command command = program.add("train", "train a GPT on text or token files; makes a run folder");
  const auto options = std::make_shared<Options>();
  command.options(options->train);
  command.run(options, &run);
}

}  // namespace lamina::cli

#include "train/trainer.h"

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "io/atomic_file.h"
#include "io/tokenizer_files.h"
#include "kernels/peak.h"
#include "observe/memory_picture.h"
#include "train/batches.h"
#include "train/flops.h"
#include "train/init.h"
#include "train/run_folder.h"
#include "train/step.h"

namespace lamina {
namespace {

constexpr double kPeakSeconds = 0.25;

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

class Run {
 public:
  Run(const TrainOptions& options, const TrainHooks& hooks) : options_(options), hooks_(hooks) {}

  TrainResult run() {
    validate(options_);
    require_new_folder(options_.out);
    open();
    prepare();
    start();
    loop();
    finish();
    return result_;
  }

 private:
  // Files in: model, data, tokenizer. Nothing has been computed yet.
  void open() {
    source_ = open_model(options_.model);
    for (const std::string& warning : source_.warnings) hooks_.say("warning: " + warning);
    config_ = with_dropout(source_.config, options_.dropout);
    seq_ = resolve_seq(options_, config_);
    data_ = open_data(data_options(), hooks_.say);
    fit_vocabulary();
    check_token_files(data_, config_.vocab_size);
  }

  DataOptions data_options() const {
    DataOptions out{
        .paths = options_.data,
        .valid = options_.valid,
        .valid_fraction = options_.valid_fraction,
        .token_type = options_.token_type,
        .documents = {.invalid = options_.invalid_utf8 == "replace" ? InvalidUtf8::replace : InvalidUtf8::refuse,
                      .text_field = options_.text_field},
        .threads = options_.thread_count(),
        .trained_vocab = source_.folder.empty() ? options_.vocab_size.value_or(config_.vocab_size) : 0,
        .seq = seq_};
    if (!options_.tokenizer.empty()) out.tokenizers.push_back(options_.tokenizer);
    if (!source_.folder.empty() && has_tokenizer(source_.folder)) out.tokenizers.push_back(source_.folder);
    return out;
  }

  // Weights fix the vocabulary, and so does a config.json where the tokenizer is given; otherwise the tokenizer does.
  void fit_vocabulary() {
    if (!data_.tokenizer) return;
    const int64_t ids = data_.tokenizer->vocab_size();
    const bool trained = data_.tokenizer_source == "trained";
    if (trained || source_.preset) {
      config_.vocab_size = ids;
      config_.bos_token_id = config_.eos_token_id = data_.tokenizer->end_of_text();
    } else if (ids > config_.vocab_size) {
      throw_error(ErrorCode::invalid, "tokenizer and model do not fit: {} has {} ids, vocab_size of {} is {}",
                  data_.tokenizer_source, ids, source_.name, config_.vocab_size);
    }
  }

  // Everything that can fail does so here: sizes, memory, weights.
  void prepare() {
    const int64_t rows = options_.batch * options_.accumulate;
    std::optional<int32_t> end;
    if (options_.isolate_documents) end = document_end(data_, config_);
    train_batches_.emplace(
        data_.sources,
        BatchOptions{.seq = seq_, .rows = rows, .seed = static_cast<uint64_t>(options_.seed), .document_end = end});
    if (data_.valid.size() > 0)
      valid_batches_.emplace(
          data_.valid,
          BatchOptions{.seq = seq_, .rows = options_.batch, .document_end = end, .what = "validation data"});
    steps_ = options_.steps.value_or(options_.epochs.value_or(1) * train_batches_->steps_per_epoch());
    specs_ = parameter_specs(config_);
    CompileOptions request = compile_options(options_, config_);
    request.eval = true;
    Compiled compiled = compile(config_, request);
    isa_ = request.isa;
    const int64_t limit = options_.memory_limit.empty() ? 0 : parse_bytes("memory-limit", options_.memory_limit);
    session_.emplace(std::move(compiled.plan), options_.thread_count(), limit);
    result_.plan_digest = session_->plan().digest;
    result_.plan_bytes = session_->plan().total_bytes(session_->threads());
    result_.parameters = parameter_count(config_);
    introduce(compiled);
    start_weights();
    train_step_.emplace(*session_, TrainStepOptions{.seed = static_cast<uint64_t>(options_.seed),
                                                    .accumulate = options_.accumulate,
                                                    .beta1 = options_.betas[0],
                                                    .beta2 = options_.betas[1]});
    eval_step_.emplace(*session_);
  }

  void introduce(const Compiled& compiled) {
    const auto list = [&](bool decay) {
      const DecayGroup group = decay_group(specs_, decay);
      std::string names;
      for (const std::string& name : group.names) names += " " + name;
      return fmt::format("{} tensors, {} values:{}", group.tensors, group.values, names);
    };
    hooks_.say(fmt::format("model: {} parameters, {} layers of width {}, {} ids", result_.parameters, config_.n_layer,
                           config_.n_embd, config_.vocab_size));
    hooks_.say(fmt::format("data: {} ids to train on in {} windows of {}, {} for validation", data_.train.size(),
                           train_batches_->windows(), seq_, data_.valid.size()));
    hooks_.say(
        fmt::format("plan {}: {} threads, {} kernels, fp32, nothing emulated; {} bytes ({}), compiled in {:.1f} ms",
                    result_.plan_digest, session_->threads(), isa_name(isa_), result_.plan_bytes,
                    bytes_text(result_.plan_bytes), compiled.compile_ms));
    if (session_->threads() < cpu_count())
      hooks_.say(fmt::format("warning: {} of {} processors stay idle", cpu_count() - session_->threads(), cpu_count()));
    hooks_.say(fmt::format("weight decay {} on {}", options_.weight_decay, list(true)));
    hooks_.say(fmt::format("no weight decay on {}", list(false)));
  }

  void start_weights() {
    if (source_.folder.empty()) {
      initialise(*session_, specs_, static_cast<uint64_t>(options_.seed));
      return;
    }
    std::vector<std::string> warnings;
    const std::string summary = load_weights(*session_, source_.folder, config_, specs_, warnings);
    for (const std::string& warning : warnings) hooks_.say("warning: " + warning);
    hooks_.say(fmt::format("weights: {}: {}", source_.folder, summary));
  }

  void start() {
    result_.peak_gflops_before = fma_peak_gflops(isa_, session_->team(), kPeakSeconds);
    hooks_.begin();
    const nlohmann::json description = describe_run({.options = options_,
                                                     .source = source_,
                                                     .config = config_,
                                                     .specs = specs_,
                                                     .data = data_,
                                                     .plan = session_->plan(),
                                                     .seq = seq_,
                                                     .steps = steps_,
                                                     .threads = session_->threads()});
    result_.out = options_.out;
    result_.run_id = description["run_id"];
    make_folder(options_.out);
    write_file(path("lamina.json"), description.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    metrics_.emplace(path("metrics.jsonl"));
  }

  void loop() {
    const LearningRate rate{.lr = options_.lr,
                            .min_lr = options_.min_lr,
                            .schedule = *parse_schedule(options_.schedule),
                            .warmup = options_.warmup,
                            .steps = steps_};
    for (int64_t step = 1; step <= steps_ && !stopped(); ++step) {
      StepRecord record{.step = step, .steps = steps_, .lr = learning_rate(rate, step)};
      take_step(record);
      const bool last = step == steps_;
      if (valid_batches_ && (last || (options_.eval_every > 0 && step % options_.eval_every == 0)))
        result_.valid_loss = record.valid_loss = evaluate();
      metrics_->write(record);
      hooks_.step(record);
      count_skips(record);
      if (!last && options_.save_every > 0 && step % options_.save_every == 0) save_in_between();
    }
  }

  bool stopped() {
    result_.signal = hooks_.stop_signal();
    return result_.signal != 0;
  }

  void take_step(StepRecord& record) {
    const Clock::time_point begin = Clock::now();
    const StepResult step = train_step_->step(train_batches_->rows(record.step), record.step, record.lr);
    record.step_ms = milliseconds_since(begin);
    record.tokens = step.tokens;
    record.loss = step.loss;
    record.grad_norm = step.grad_norm;
    record.finite = step.finite;
    const double tokens = static_cast<double>(step.tokens), seconds = record.step_ms * 1e-3;
    record.tokens_per_s = tokens / seconds;
    record.peak_fraction =
        peak_fraction(model_flops_per_token(config_, seq_) * tokens, seconds, result_.peak_gflops_before);
    result_.steps = record.step;
    result_.tokens += step.tokens;
    step_seconds_ += seconds;
    if (step.finite) result_.loss = step.loss;
  }

  // The mean over all of the validation data; nothing where a signal cut it short.
  std::optional<double> evaluate() {
    EvalResult total;
    for (int64_t s = 1; s <= valid_batches_->steps_per_epoch(); ++s) {
      if (hooks_.stop_signal() != 0) return std::nullopt;
      eval_step_->add(valid_batches_->rows(s), total);
    }
    return total.mean();
  }

  void count_skips(const StepRecord& record) {
    if (record.finite) {
      skips_in_a_row_ = 0;
      return;
    }
    ++result_.skipped;
    ++skips_in_a_row_;
    hooks_.say(fmt::format("step {} skipped: loss {} or gradient norm {} is not finite ({} in a row)", record.step,
                           record.loss, record.grad_norm, skips_in_a_row_));
    if (skips_in_a_row_ >= options_.max_skips)
      throw Error(
          ErrorCode::invalid,
          fmt::format("training came apart: {} steps in a row were not finite, the last one {} (--max-skips {})",
                      skips_in_a_row_, record.step, options_.max_skips),
          "a smaller --lr, a --warmup or --clip 1 may help");
  }

  void save() {
    save_model(*session_, options_.out, config_, specs_);
    if (data_.tokenizer) save_tokenizer(options_.out, *data_.tokenizer, config_.n_positions);
  }

  // A full disk must not end a run that could still be saved elsewhere or later.
  void save_in_between() {
    try {
      save();
    } catch (const Error& error) {
      hooks_.say(fmt::format("warning: not saved: {}; the run goes on", error.what()));
    }
  }

  void finish() {
    if (result_.steps == 0) {
      hooks_.say("stopped before the first step: no model was saved");
      return;
    }
    save();
    result_.peak_gflops_after = fma_peak_gflops(isa_, session_->team(), kPeakSeconds);
    const double tokens = static_cast<double>(result_.tokens);
    result_.tokens_per_s = tokens / step_seconds_;
    result_.peak_fraction = peak_fraction(model_flops_per_token(config_, seq_) * tokens, step_seconds_,
                                          std::max(result_.peak_gflops_before, result_.peak_gflops_after));
    if (result_.peak_fraction > 1.0)
      hooks_.say("warning: more than the measured peak: the machine was busy when it was measured");
    hooks_.say(fmt::format(
        "{} {} of {} steps: {:.0f} tokens/s, {:.0f} % of {:.1f} Gflop/s (peak {:.1f} before, {:.1f} after)",
        result_.signal != 0 ? "stopped by a signal after" : "done:", result_.steps, steps_, result_.tokens_per_s,
        100.0 * result_.peak_fraction, std::max(result_.peak_gflops_before, result_.peak_gflops_after),
        result_.peak_gflops_before, result_.peak_gflops_after));
    hooks_.say(fmt::format("run folder: {}", options_.out));
  }

  std::string path(const char* name) const { return options_.out + "/" + name; }

  const TrainOptions& options_;
  const TrainHooks& hooks_;
  ModelSource source_;
  ModelConfig config_;
  Data data_;
  int64_t seq_ = 0, steps_ = 0;
  std::vector<ParameterSpec> specs_;
  Isa isa_ = Isa::portable;
  std::optional<Batches> train_batches_, valid_batches_;
  std::optional<Session> session_;
  std::optional<TrainStep> train_step_;
  std::optional<EvalStep> eval_step_;
  std::optional<MetricsFile> metrics_;
  int64_t skips_in_a_row_ = 0;
  double step_seconds_ = 0.0;
  TrainResult result_;
};

}  // namespace

TrainResult train(const TrainOptions& options, const TrainHooks& hooks) { return Run(options, hooks).run(); }

}  // namespace lamina

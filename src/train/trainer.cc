#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "io/atomic_file.h"
#include "io/checkpoint_folder.h"
#include "io/folder_lock.h"
#include "io/tokenizer_files.h"
#include "kernels/peak.h"
#include "observe/memory_picture.h"
#include "train/batches.h"
#include "train/checkpoint.h"
#include "train/flops.h"
#include "train/init.h"
#include "train/metrics.h"
#include "train/precision.h"
#include "train/resume.h"
#include "train/run_folder.h"
#include "train/saver.h"
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
    if (options_.resume)
      find_start();
    else
      require_new_folder(options_.out);
    if (!found_) check_output_folder(options_.out, {"lamina.json"});
    open();
    prepare();
    if (!finished()) {
      start_weights();
      start();
      loop();
      finish();
    }
    report();
    return result_;
  }

 private:
  // Where the run goes on: what its folder says, the newest whole checkpoint, and nothing left of what was killed.
  void find_start() {
    if (std::error_code ignored; std::filesystem::is_directory(options_.out, ignored)) lock_.emplace(options_.out);
    stored_run_ = open_run_folder(options_.out);
    if (!lock_) return;
    const std::string folder = checkpoints_folder(options_.out);
    if (const int64_t count = remove_temporaries(options_.out) + remove_temporaries(folder); count > 0)
      hooks_.say(fmt::format("{} unfinished file{} of a killed process removed", count, count == 1 ? "" : "s"));
    found_ = find_checkpoint(folder, stored_run_.id, hooks_.say);
    if (!found_) return;
    state_ = found_->state;
    saved_step_ = result_.resumed_from = state_.step;
  }

  // Files in: model, data, tokenizer. Nothing has been computed yet.
  void open() {
    source_ = open_model(options_.model);
    for (const std::string& warning : source_.warnings) hooks_.say("warning: " + warning);
    config_ = with_dropout(source_.config, options_.dropout);
    seq_ = resolve_seq(options_, config_);
    data_ = open_data(data_options(), hooks_.say);
    if (found_ && data_.tokenizer_source == found_->path && !found_->tokenizer.empty()) {  // the one it began with
      data_.tokenizer_source = found_->tokenizer;
      data_.tokenizer_trained = found_->tokenizer == "trained" && options_.tokenizer.empty();
    }
    if (options_.vocab_size && !data_.tokenizer_trained)
      throw_error(ErrorCode::usage, "bad option: --vocab-size {}, expected data to train a tokenizer on, got {}",
                  *options_.vocab_size, data_.tokenizer ? "the tokenizer of " + data_.tokenizer_source : "token files");
    fit_vocabulary();
    take_end_of_text();
    check_token_files(data_, config_.vocab_size);
  }

  DataOptions data_options() const {
    DataOptions out{
        .paths = options_.data,
        .valid = options_.valid,
        .valid_fraction = options_.valid_fraction,
        .token_type = options_.token_type,
        .documents = {.invalid = invalid_utf8_mode(options_.invalid_utf8), .text_field = options_.text_field},
        .threads = thread_count(options_.threads),
        .trained_vocab = source_.folder.empty() ? options_.vocab_size.value_or(config_.vocab_size) : 0,
        .seq = seq_};
    if (!options_.tokenizer.empty()) out.tokenizers.push_back(options_.tokenizer);
    if (found_ && has_tokenizer(found_->path)) out.tokenizers.push_back(found_->path);
    if (!source_.folder.empty() && has_tokenizer(source_.folder)) out.tokenizers.push_back(source_.folder);
    return out;
  }

  // Weights fix the vocabulary, and so does a config.json where the tokenizer is given; otherwise the tokenizer does.
  void fit_vocabulary() {
    if (!data_.tokenizer) return;
    const int64_t ids = data_.tokenizer->vocab_size();
    if (data_.tokenizer_trained || source_.preset) {
      if (ids != config_.vocab_size)
        hooks_.say(fmt::format("vocab_size: {}, as the tokenizer has it, in place of {}", ids, config_.vocab_size));
      config_.vocab_size = ids;
    } else {
      check_fit(*data_.tokenizer, data_.tokenizer_source, config_.vocab_size, source_.name);
    }
  }

  // Documents end with the tokenizer's <|endoftext|>, so that is what generation starts from and ends with.
  void take_end_of_text() {
    if (!data_.tokenizer) return;
    const std::optional<int32_t> end = data_.tokenizer->end_of_text();
    if (!end || config_.eos_token_id == *end) return;
    if (config_.eos_token_id && !source_.folder.empty())
      hooks_.say(fmt::format("warning: eos_token_id and bos_token_id: {}, as the tokenizer has it, in place of {}",
                             *end, *config_.eos_token_id));
    config_.bos_token_id = config_.eos_token_id = end;
  }

  // Everything that can fail does so here: sizes, memory, weights.
  void prepare() {
    CompileOptions request = compile_options(options_, config_);
    request.eval = true;
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
    else
      state_.evaluation_due = false;  // --allow-changes took the data away
    plan_steps();
    specs_ = parameter_specs(config_);
    request.isa = kept_isa(request.isa);
    precision_ = precision_of_parts(request.precision, config_);
    if (found_)
      request.arithmetics = kept_arithmetics(request.isa, stored_arithmetics(), parse_precision(options_.precision));
    arithmetics_ = request.arithmetics;
    Compiled compiled = compile(config_, request);
    isa_ = request.isa;
    const int64_t limit = memory_limit_bytes(options_.memory_limit);
    session_.emplace(std::move(compiled.plan), thread_count(options_.threads), limit);
    result_.plan_digest = session_->plan().digest;
    result_.plan_bytes = session_->plan().total_bytes(session_->threads());
    result_.parameters = parameter_count(config_);
    introduce(compiled);
    describe(compiled.recompute.chosen.what);
    train_step_.emplace(*session_, TrainStepOptions{.seed = static_cast<uint64_t>(options_.seed),
                                                    .accumulate = options_.accumulate,
                                                    .beta1 = options_.betas[0],
                                                    .beta2 = options_.betas[1],
                                                    .dynamic_loss_scale = needs_loss_scale(precision_)});
    eval_step_.emplace(*session_);
  }

  void plan_steps() {
    const int64_t epochs = options_.epochs.value_or(1), each = train_batches_->steps_per_epoch();
    if (epochs > INT64_MAX / each)
      throw_error(ErrorCode::invalid, "too many steps: --epochs, expected at most {}, got {}", INT64_MAX / each,
                  epochs);
    steps_ = options_.steps.value_or(epochs * each);
    rate_ = learning_rate_of(options_, steps_);
    if (rate_.warmup >= steps_)
      hooks_.say(fmt::format("warning: --warmup {} takes all of the {} steps: the rate does not reach --lr {}",
                             rate_.warmup, steps_, options_.lr));
  }

  // The rung of kernels is kept, so that bits are: the best one, or the one that LAMINA_ISA names, unless the run began
  // with another that this machine has too.
  Isa kept_isa(Isa selected) {
    if (!found_ || forced_isa()) return selected;
    const std::optional<Isa> stored = parse_isa(found_->isa);
    if (!stored || *stored == selected || !cpu_has(*stored)) return selected;
    hooks_.say(fmt::format("kernels for {}, as the run began, not for {}", isa_name(*stored), isa_name(selected)));
    return *stored;
  }

  // What the run multiplied 16-bit operands with when it was saved.
  nlohmann::json stored_arithmetics() const {
    return found_->settings.is_object() ? found_->settings.value("arithmetic", nlohmann::json()) : nullptr;
  }

  void introduce(const Compiled& compiled) {
    hooks_.say(fmt::format("model: {} parameters, {} layers of width {}, {} ids", result_.parameters, config_.n_layer,
                           config_.n_embd, config_.vocab_size));
    hooks_.say(fmt::format("data: {} ids to train on in {} windows of {}, {} for validation", data_.train.size(),
                           train_batches_->windows(), seq_, data_.valid.size()));
    hooks_.say(fmt::format("plan {}: {} threads, {} kernels, {}; {} bytes ({}), compiled in {:.1f} ms",
                           result_.plan_digest, session_->threads(), isa_name(isa_), options_.precision,
                           result_.plan_bytes, bytes_text(result_.plan_bytes), compiled.compile_ms));
    if (options_.precision != "fp32") hooks_.say("precision: " + precision_map_text(precision_));
    for (const std::string& warning : emulation_warnings(isa_, precision_, arithmetics_))
      hooks_.say("warning: " + warning);
    if (compiled.recomputed_nodes > 0)
      hooks_.say(fmt::format("recompute: {}, predicted to take {:.2f} % of a step", compiled.recompute.chosen.what,
                             100.0 * compiled.recompute.chosen.slowdown));
    if (session_->threads() < cpu_count())
      hooks_.say(fmt::format("warning: {} of {} processors stay idle", cpu_count() - session_->threads(), cpu_count()));
    if (options_.weight_decay == 0.0) return;
    hooks_.say(fmt::format("weight decay {} on {}", options_.weight_decay, decay_text(specs_, true)));
    hooks_.say(fmt::format("no weight decay on {}", decay_text(specs_, false)));
  }

  void describe(const std::string& recompute) {
    description_ = describe_run({.options = options_,
                                 .source = source_,
                                 .config = config_,
                                 .specs = specs_,
                                 .data = data_,
                                 .plan = session_->plan(),
                                 .recompute = recompute,
                                 .precision = precision_,
                                 .arithmetics = arithmetics_,
                                 .seq = seq_,
                                 .steps = steps_,
                                 .decay_steps = rate_.decay_steps,
                                 .threads = session_->threads()});
    settings_ = deciding_settings(description_);
    if (found_) compare();
    result_.run_id = description_["run_id"];
  }

  void compare() {
    const Changes changes = compare_settings(found_->settings, settings_, state_.step);
    refuse_changes(changes, options_.allow_changes, found_->path);
    for (const std::string& line : changes.others) hooks_.say("changed: " + line);
    description_["run_id"] = stored_run_.id;
    description_["resumed"] = stored_run_.resumed;
    description_["resumed"].push_back({{"step", state_.step}, {"changes", changes.others}});
  }

  bool finished() {
    if (!found_ || state_.step < steps_ || state_.evaluation_due) return false;
    hooks_.say(
        fmt::format("finished already: {} of {} steps are done, nothing to do: {}", state_.step, steps_, options_.out));
    return true;
  }

  void start_weights() {
    if (found_) {
      load_checkpoint(found_->path, *session_, config_, specs_);
      train_step_->set_updates(state_.updates);
      if (train_step_->loss_scale() && state_.loss_scale) train_step_->set_loss_scale(*state_.loss_scale);
      hooks_.say(fmt::format("going on after step {}: {}", state_.step, found_->path));
      return;
    }
    if (options_.resume) hooks_.say("no checkpoint of this run: starting at step 1");
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
    limit_over_peak_ = product_peaks(session_->plan(), session_->team(), kPeakSeconds).all;
    hooks_.begin();
    make_folder(options_.out);
    if (!lock_) {
      lock_.emplace(options_.out);
      require_new_folder(options_.out);  // another process may have come and gone while the data was read
    }
    saver_.emplace(SaverOptions{.out = options_.out,
                                .run_id = result_.run_id,
                                .source = {*session_, config_, specs_, data_.tokenizer ? &*data_.tokenizer : nullptr},
                                .settings = settings_,
                                .keep = options_.keep,
                                .say = hooks_.say},
                   state_.step, steps_);
    write_file(path("lamina.json"), description_.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    metrics_.emplace(path("metrics.jsonl"), state_.step);
    events_.emplace(options_.out, state_.step);
  }

  void loop() {
    if (state_.evaluation_due && !make_up_evaluation()) return;
    while (state_.step < steps_ && !stopped()) {
      StepRecord record{.step = state_.step + 1, .steps = steps_, .lr = learning_rate(rate_, state_.step + 1)};
      take_step(record);
      if (!record.finite && options_.update_in_backward) refuse_applied(record);
      const bool last = record.step == steps_;
      bool best = false;
      if (valid_batches_ && (last || is_due(options_.eval_every))) {
        record.valid_loss = evaluate();
        if (record.valid_loss && !std::isfinite(*record.valid_loss))
          hooks_.say(
              fmt::format("warning: the validation loss is {}: these weights are of no use", *record.valid_loss));
        state_.evaluation_due = !record.valid_loss;
        best = record.valid_loss && note_validation(*record.valid_loss);
      }
      log([&] { metrics_->write(record), events_->write(record); });
      hooks_.step(record);
      count_skips(record);
      if (!last && (is_due(options_.save_every) || best)) {
        log([&] { metrics_->sync(); });
        if (saver_->try_save(state_)) saved_step_ = state_.step;
      }
    }
  }

  bool is_due(int64_t every) const { return every > 0 && state_.step % every == 0; }

  // The validation that a signal had cut short, before anything else changes. False where one does so again.
  bool make_up_evaluation() {
    const std::optional<double> loss = evaluate();
    if (!loss) return false;
    state_.evaluation_due = false;
    saved_step_ = 0;  // the checkpoint of this step still says that it is due
    note_validation(*loss);
    log([&] { metrics_->add_valid_loss(state_.step, *loss), events_->write_valid_loss(state_.step, *loss); });
    return true;
  }

  // Whether it is the best so far.
  bool note_validation(double loss) {
    state_.valid_loss = loss;
    if (!std::isfinite(loss) || (state_.best_valid_loss && loss >= *state_.best_valid_loss)) return false;
    state_.best_valid_loss = loss;
    state_.best_step = state_.step;
    return true;
  }

  // What people read afterwards must not end a run: a full disk is said once.
  template <typename F>
  void log(F&& write) {
    try {
      write();
      log_failed_ = false;
    } catch (const Error& error) {
      if (!log_failed_) hooks_.say(fmt::format("warning: not logged: {}; the run goes on", error.what()));
      log_failed_ = true;
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
    record.loss = step.tokens > 0 ? step.loss : std::nan("");
    record.grad_norm = step.grad_norm;
    record.loss_scale = step.loss_scale;
    record.finite = step.finite;
    if (!step.finite) record.not_finite = step.overflow ? gradient_name(specs_, train_step_->bad_gradient()) : "loss";
    const double tokens = static_cast<double>(step.tokens), seconds = record.step_ms * 1e-3;
    record.tokens_per_s = tokens / seconds;
    record.peak_fraction =
        peak_fraction(model_flops_per_token(config_, seq_) * tokens, seconds, result_.peak_gflops_before);
    record.limit_fraction = record.peak_fraction / limit_over_peak_;
    state_.step = record.step;
    state_.updates = train_step_->updates();
    state_.loss_scale = train_step_->loss_scale();
    state_.tokens += step.tokens;
    own_tokens_ += step.tokens;
    step_seconds_ += seconds;
    if (step.tokens == 0)
      hooks_.say(fmt::format("step {}: nothing to learn, its rows hold no target", record.step));
    else if (step.finite)
      state_.loss = step.loss;
  }

  // The mean over all of the validation data; nothing where a signal cut it short.
  std::optional<double> evaluate() {
    EvalResult total;
    for (int64_t s = 1; s <= valid_batches_->steps_per_epoch(); ++s) {
      if (stopped()) return std::nullopt;
      eval_step_->add(valid_batches_->rows(s), total);
    }
    return total.mean();
  }

  // Nothing of this step is written anywhere.
  [[noreturn]] void refuse_applied(const StepRecord& record) const {
    refuse_applied_step(
        {record.step, what_is_not_finite(record), record.loss, record.grad_norm, how_to_go_on(options_.out)});
  }

  void count_skips(const StepRecord& record) {
    if (record.finite) {
      state_.skips_in_a_row = 0;
      return;
    }
    ++state_.skipped;
    if (state_.loss_scale && record.not_finite != "loss") return note_overflow(record);
    ++state_.skips_in_a_row;
    hooks_.say(fmt::format("step {} skipped: {} is not finite (loss {}, gradient norm {}; {} in a row)", record.step,
                           what_is_not_finite(record), record.loss, record.grad_norm, state_.skips_in_a_row));
    check_skips(state_.skips_in_a_row, options_.max_skips, record.step);
  }

  // The loss scale finds what fp16 holds: no fault of the run, unless there is nothing left to find.
  void note_overflow(const StepRecord& record) {
    check_loss_scale(record.loss_scale, record.step, specs_, train_step_->bad_gradient());
    hooks_.say(fmt::format("step {} skipped: the gradient of {} is not finite at loss scale {}; {} from now on",
                           record.step, record.not_finite, record.loss_scale, state_.loss_scale->scale));
  }

  void finish() {
    if (state_.step == 0) {
      hooks_.say("stopped before the first step: no model was saved");
      return;
    }
    if (saved_step_ != state_.step) {
      log([&] { metrics_->sync(); });
      saver_->save(state_);
    }
    if (own_tokens_ == 0) return;
    result_.peak_gflops_after = fma_peak_gflops(isa_, session_->team(), kPeakSeconds);
    const double tokens = static_cast<double>(own_tokens_);
    result_.tokens_per_s = tokens / step_seconds_;
    result_.peak_fraction = peak_fraction(model_flops_per_token(config_, seq_) * tokens, step_seconds_,
                                          std::max(result_.peak_gflops_before, result_.peak_gflops_after));
    result_.limit_fraction = result_.peak_fraction / limit_over_peak_;
    if (result_.limit_fraction > 1.0)
      hooks_.say("warning: more than the measured peak: the machine was busy when it was measured");
    hooks_.say(
        fmt::format("{} {} of {} steps: {:.0f} tokens/s, {:.0f} % of {:.1f} Gflop/s (peak {:.1f} before, {:.1f} after)",
                    result_.signal != 0 ? "stopped by a signal after" : "done:", state_.step, steps_,
                    result_.tokens_per_s, 100.0 * result_.limit_fraction,
                    limit_over_peak_ * std::max(result_.peak_gflops_before, result_.peak_gflops_after),
                    limit_over_peak_ * result_.peak_gflops_before, limit_over_peak_ * result_.peak_gflops_after));
    hooks_.say(fmt::format("run folder: {}{}", options_.out, result_.signal != 0 ? "; --resume goes on with it" : ""));
  }

  void report() {
    result_.out = options_.out;
    result_.steps = state_.step;
    result_.skipped = state_.skipped;
    result_.tokens = state_.tokens;
    result_.loss = state_.loss;
    result_.valid_loss = state_.valid_loss;
    result_.best_valid_loss = state_.best_valid_loss;
    result_.best_step = state_.best_step;
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
  std::vector<PartPrecision> precision_;
  Arithmetics arithmetics_;
  double limit_over_peak_ = 1.0;
  std::optional<Batches> train_batches_, valid_batches_;
  std::optional<Session> session_;
  std::optional<TrainStep> train_step_;
  std::optional<EvalStep> eval_step_;
  std::optional<FolderLock> lock_;
  std::optional<MetricsFile> metrics_;
  std::optional<EventFile> events_;
  std::optional<Saver> saver_;
  bool log_failed_ = false;
  StoredRun stored_run_;
  std::optional<FoundCheckpoint> found_;  // what the run goes on from
  nlohmann::json description_, settings_;
  LearningRate rate_;
  TrainState state_;
  int64_t saved_step_ = 0;
  int64_t own_tokens_ = 0;     // of this process
  double step_seconds_ = 0.0;  // as well
  TrainResult result_;
};

}  // namespace

TrainResult train(const TrainOptions& options, const TrainHooks& hooks) { return Run(options, hooks).run(); }

}  // namespace lamina

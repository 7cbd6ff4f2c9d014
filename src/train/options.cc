#include "train/options.h"

#include <algorithm>

#include "base/error.h"
#include "io/text_files.h"
#include "io/token_file.h"
#include "train/precision.h"

namespace lamina {
namespace {

std::vector<std::string> skipped_passes(const std::vector<std::string>& passes) {
  std::vector<std::string> names;
  for (const std::string& pass : passes) {
    if (!pass.starts_with('-')) bad_value("passes", "a minus sign and the name of a pass", pass);
    names.push_back(pass.substr(1));
  }
  check_skipped_passes(names);
  return names;
}

RecomputeOptions recompute_options(const ShapeOptions& options) {
  RecomputeOptions out{.memory_limit = memory_limit_bytes(options.memory_limit),
                       .threads = thread_count(options.threads)};
  if (options.recompute == "none") return out;
  out.mode = options.recompute == "auto" ? RecomputeOptions::automatic : RecomputeOptions::listed;
  if (out.mode == RecomputeOptions::automatic) return out;
  for (size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = options.recompute.find(',', begin);
    out.kinds.push_back(options.recompute.substr(begin, end - begin));
    if (!parse_op(out.kinds.back()))
      bad_value("recompute", "none, auto or kinds such as layernorm,gelu", options.recompute);
  }
  return out;
}

// What needs all gradients before the first update, or all of several micro-batches.
void check_update(const ShapeOptions& options) {
  if (!options.update_in_backward) return;
  const auto refuse = [](std::string_view option, const std::string& got, std::string_view expected) {
    throw_error(ErrorCode::usage, "contradiction: --update-in-backward and --{} {}, expected {}", option, got,
                expected);
  };
  if (options.clip > 0.0) refuse("clip", fmt::format("{}", options.clip), "--clip 0");
  if (options.clip_layer > 0.0) refuse("clip-layer", fmt::format("{}", options.clip_layer), "--clip-layer 0");
  if (options.accumulate != 1) refuse("accumulate", fmt::format("{}", options.accumulate), "--accumulate 1");
  for (const PrecisionRule& rule : parse_precision(options.precision).map)
    if (rule.dtype == Dtype::f16) refuse("precision", options.precision, "no part in fp16, which needs a loss scale");
}

}  // namespace

InvalidUtf8 invalid_utf8_mode(const std::string& word) {
  if (word == "error") return InvalidUtf8::refuse_with_hint;
  if (word == "replace") return InvalidUtf8::replace;
  bad_value("invalid-utf8", "error or replace", word);
}

SpecialMode special_mode(const std::string& word) {
  if (word == "text") return SpecialMode::text;
  if (word == "allow") return SpecialMode::allow;
  if (word == "error") return SpecialMode::error;
  bad_value("special", "text, allow or error", word);
}

void check_token_type(const std::string& word) {
  if (!word.empty() && !parse_token_type(word)) bad_value("token-type", "u16, u32 or i32", word);
}

int thread_count(const std::optional<int64_t>& threads) { return threads ? static_cast<int>(*threads) : cpu_count(); }

int64_t memory_limit_bytes(const std::string& text) { return text.empty() ? 0 : parse_bytes("memory-limit", text); }

void validate(const ShapeOptions& options) {
  for_each_shape_option(options, [](const OptionRow& row, const auto& field) { check_value(row, field); });
  (void)memory_limit_bytes(options.memory_limit);
  (void)recompute_options(options);
  (void)parse_precision(options.precision);
  check_update(options);
  skipped_passes(options.passes);
  (void)select_isa();  // throws where LAMINA_ISA names what is not there
}

void validate(const TrainOptions& options) {
  check_options(options);
  validate(static_cast<const ShapeOptions&>(options));
  if (!parse_schedule(options.schedule)) bad_value("schedule", "constant, linear, cosine or wsd", options.schedule);
  check_token_type(options.token_type);
  (void)invalid_utf8_mode(options.invalid_utf8);
  if (options.allow_changes && !options.resume)
    throw_error(ErrorCode::usage, "contradiction: --allow-changes without --resume, expected both or neither");
  if (options.decay_steps && options.schedule != "wsd")
    throw_error(ErrorCode::usage, "contradiction: --decay-steps {} and --schedule {}, expected wsd",
                *options.decay_steps, options.schedule);
  if (options.min_lr > options.lr)
    throw_error(ErrorCode::usage, "contradiction: --min-lr {} and --lr {}, expected no more than the rate",
                options.min_lr, options.lr);
  for (const std::string& path : options.data) split_weight(path);
  if (!options.valid.empty() && split_weight(options.valid).weight)
    bad_value("valid", "a path without a weight, since all of the data counts", options.valid);
  if (options.steps && options.epochs)
    throw_error(ErrorCode::usage, "contradiction: --steps {} and --epochs {}, expected one of them", *options.steps,
                *options.epochs);
  if (options.vocab_size && !options.tokenizer.empty())
    throw_error(ErrorCode::usage, "contradiction: --vocab-size {} and --tokenizer {}, expected one of them",
                *options.vocab_size, options.tokenizer);
  if (!options.valid.empty() && options.valid_fraction)
    throw_error(ErrorCode::usage, "contradiction: --valid {} and --valid-fraction {}, expected one of them",
                options.valid, *options.valid_fraction);
}

LearningRate learning_rate_of(const TrainOptions& options, int64_t steps) {
  LearningRate out{.lr = options.lr,
                   .min_lr = options.min_lr,
                   .schedule = *parse_schedule(options.schedule),
                   .warmup = options.warmup,
                   .steps = steps};
  if (out.schedule != Schedule::wsd) return out;
  out.decay_steps = options.decay_steps.value_or(std::max<int64_t>(steps / 10, 1));
  if (options.decay_steps && out.decay_steps > steps - out.warmup)
    throw_error(ErrorCode::invalid,
                "schedule does not fit: --warmup {} and --decay-steps {}, expected at most {} together", out.warmup,
                out.decay_steps, steps);
  return out;
}

int64_t resolve_seq(const ShapeOptions& options, const ModelConfig& config) {
  const int64_t seq = options.seq.value_or(config.n_positions);
  if (seq > config.n_positions)
    throw_error(ErrorCode::invalid, "rows too long for the model: --seq, expected at most n_positions {}, got {}",
                config.n_positions, seq);
  return seq;
}

CompileOptions compile_options(const ShapeOptions& options, const ModelConfig& config) {
  CompileOptions out;
  out.batch = options.batch;
  out.seq = resolve_seq(options, config);
  out.accumulate = options.accumulate;
  if (out.batch * out.accumulate > kMostTokens / out.seq)
    throw_error(ErrorCode::usage,
                "step too large: --batch {} times --accumulate {} rows of {} tokens, expected at most {} tokens a step",
                out.batch, out.accumulate, out.seq, kMostTokens);
  out.update = {.beta1 = options.betas[0],
                .beta2 = options.betas[1],
                .eps = options.eps,
                .weight_decay = options.weight_decay,
                .clip = options.clip,
                .clip_layer = options.clip_layer,
                .in_backward = options.update_in_backward};
  out.isa = select_isa();
  out.pipeline.skip = skipped_passes(options.passes);
  out.recompute = recompute_options(options);
  const Precision precision = parse_precision(options.precision);
  out.precision = precision.map;
  out.arithmetics = choose_arithmetics(out.isa, precision);
  return out;
}

ModelConfig with_dropout(ModelConfig config, std::optional<double> dropout) {
  if (dropout) config.embd_pdrop = config.attn_pdrop = config.resid_pdrop = *dropout;
  return config;
}

}  // namespace lamina

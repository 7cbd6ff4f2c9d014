// What a person can set for a run of training, as plain values, and the tables of it (option_row.h).
#pragma once

#include <concepts>
#include <string>
#include <vector>

#include "compile.h"
#include "io/tokenizer.h"
#include "train/option_row.h"
#include "train/schedule.h"

namespace lamina {

template <typename O, typename T>
concept OptionsOf = std::derived_from<std::remove_const_t<O>, T>;

constexpr Allowed kVocabSize{257.0, 1e7};  // every byte and the end of a text at least
constexpr double kMostCount = 1 << 20;

// What is compiled, and on how many threads it runs.
struct ShapeOptions {
  std::string model = "gpt2";
  int64_t batch = 4;
  std::optional<int64_t> seq;  // none: the model's n_positions
  int64_t accumulate = 1;
  std::array<double, 2> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0.0;
  double clip = 0.0;
  double clip_layer = 0.0;
  bool update_in_backward = false;
  std::optional<double> dropout;   // none: what the config says
  std::optional<int64_t> threads;  // none: every processor this process may use
  std::string memory_limit;        // empty: what the machine has
  std::string recompute = "auto";
  std::string precision = "fp32";
  std::vector<std::string> passes;
};

template <OptionsOf<ShapeOptions> O, typename F>
void for_each_shape_option(O& o, F&& f) {
  constexpr Allowed kCount{1.0, kMostCount};
  f(OptionRow{"model", "MODEL",
              "gpt2, gpt2-medium, gpt2-large or gpt2-xl; a config.json; or a model folder, whose weights are taken"},
    o.model);
  f(OptionRow{"batch", "N", "rows of one micro-batch", kCount}, o.batch);
  f(OptionRow{"seq", "T", "tokens of a row (default: the model's n_positions)", kFromOne}, o.seq);
  f(OptionRow{"accumulate", "N", "micro-batches of one step", kCount}, o.accumulate);
  f(OptionRow{"betas", "B1,B2", "decay of AdamW's moments", {0.0, 1.0, false, true}}, o.betas);
  f(OptionRow{"eps", "E", "AdamW's epsilon", kFromZero}, o.eps);
  f(OptionRow{"weight-decay", "W", "decay of matrices and tables; biases and LayerNorm never decay", kFloatFromZero},
    o.weight_decay);
  f(OptionRow{"clip", "NORM", "largest norm of the whole gradient; 0: no clipping", kFromZero}, o.clip);
  f(OptionRow{"clip-layer", "NORM", "largest norm of each layer's gradient, before --clip; 0: none", kFromZero},
    o.clip_layer);
  f(OptionRow{"update-in-backward", "",
              "AdamW on the matrices of the layers where their gradients are made: their memory is saved, and a step "
              "that is not finite ends the run; without clips, --accumulate and fp16"},
    o.update_in_backward);
  f(OptionRow{"dropout", "P", "probability of all dropouts (default: what the model's config says)", kProbability},
    o.dropout);
  f(OptionRow{"threads", "N", "threads (default: the processors that this process may use)", {1.0, 1024.0}}, o.threads);
  f(OptionRow{"memory-limit", "BYTES", "refuse a plan that needs more, as in 8GiB (default: what the machine has)"},
    o.memory_limit);
  f(OptionRow{"recompute", "KINDS",
              "what the backward side makes again in place of keeping it: none; auto: what costs next to nothing, or "
              "with --memory-limit the cheapest that fits; or kinds, as in layernorm,gelu,attention,linear"},
    o.recompute);
  f(OptionRow{"precision", "WORD",
              "operands of products: fp32; mixed: bf16, multiplied as this CPU does it best; mixed-bf16: bf16 and bf16 "
              "products only; mixed-fp16: fp16 with a loss scale; or a MAP.json from parts of the model to these"},
    o.precision);
  f(OptionRow{"passes", "-NAME", "leave a pass of the compiler out; may be repeated"}, o.passes);
}

struct TrainOptions : ShapeOptions {
  std::vector<std::string> data;
  std::string out;
  std::string tokenizer;
  std::optional<int64_t> vocab_size;
  std::string token_type;
  std::string text_field = "text";
  bool isolate_documents = false;
  std::string invalid_utf8 = "error";
  std::string valid;
  std::optional<double> valid_fraction;
  std::optional<int64_t> steps;
  std::optional<int64_t> epochs;
  double lr = 1e-3;
  std::string schedule = "constant";
  int64_t warmup = 0;
  double min_lr = 0.0;
  std::optional<int64_t> decay_steps;  // none: a tenth of the run
  int64_t seed = 0;
  int64_t eval_every = 0;
  int64_t save_every = 0;
  int64_t keep = 2;
  bool resume = false;
  bool allow_changes = false;
  int64_t log_every = 10;
  int64_t max_skips = 5;
};

template <OptionsOf<TrainOptions> O, typename F>
void for_each_option(O& o, F&& f) {
  f(OptionRow{"data", "PATH",
              "text, .jsonl or .bin files, folders of them, or patterns; PATH=WEIGHT: rows are drawn in proportion",
              kAnyNumber, true},
    o.data);
  f(OptionRow{"out", "RUN", "the run folder to make; new or empty unless --resume", kAnyNumber, true}, o.out);
  for_each_shape_option(o, f);
  f(OptionRow{"tokenizer", "DIR",
              "folder with a tokenizer.json (default: the model's, else the data's, else one is trained on the data)"},
    o.tokenizer);
  f(OptionRow{"vocab-size", "N", "ids of a tokenizer trained here (default: the model's vocab_size)", kVocabSize},
    o.vocab_size);
  f(OptionRow{"token-type", "TYPE", "u16, u32 or i32: ids of a .bin file without a header (default: u16)"},
    o.token_type);
  f(OptionRow{"text-field", "NAME", "field of a .jsonl file's lines that holds the text"}, o.text_field);
  f(OptionRow{"isolate-documents", "", "no token sees another document, none is predicted from one"},
    o.isolate_documents);
  f(OptionRow{"invalid-utf8", "MODE", "error or replace: text that is not UTF-8"}, o.invalid_utf8);
  f(OptionRow{"valid", "PATH", "data for validation"}, o.valid);
  f(OptionRow{"valid-fraction",
              "F",
              "part of the data, its end, for validation (default: 0.05 of text, nothing of a .bin file)",
              {0.0, 1.0, false, true}},
    o.valid_fraction);
  f(OptionRow{"steps", "N", "steps to train", kFromOne}, o.steps);
  f(OptionRow{"epochs", "N", "passes over the data instead of --steps (default: 1)", kFromOne}, o.epochs);
  f(OptionRow{"lr", "LR", "learning rate", kFloatFromZero}, o.lr);
  f(OptionRow{"schedule", "NAME", "constant, linear, cosine or wsd: how the rate goes to --min-lr"}, o.schedule);
  f(OptionRow{"warmup", "W", "steps in which the rate rises", kFromZero}, o.warmup);
  f(OptionRow{"min-lr", "LR", "where linear, cosine and wsd end", kFloatFromZero}, o.min_lr);
  f(OptionRow{"decay-steps", "D", "last steps, in which wsd falls in a line (default: a tenth of the run)", kFromOne},
    o.decay_steps);
  f(OptionRow{"seed", "N", "of initial weights, order of the data and dropout", kFromZero}, o.seed);
  f(OptionRow{"eval-every", "N", "steps between validations, the best one is saved; 0: only at the end", kFromZero},
    o.eval_every);
  f(OptionRow{"save-every", "N", "steps between saves; 0: only at the end and on a signal", kFromZero}, o.save_every);
  f(OptionRow{"keep", "N", "newest checkpoints that are kept, besides the one with the best validation", kFromOne},
    o.keep);
  f(OptionRow{"resume", "", "go on from the newest whole checkpoint in --out; from step 1 where there is none"},
    o.resume);
  f(OptionRow{"allow-changes", "", "with --resume: accept settings or data that differ from the checkpoint's"},
    o.allow_changes);
  f(OptionRow{"log-every", "N", "steps between lines where no progress bar is shown", kFromOne}, o.log_every);
  f(OptionRow{"max-skips", "N", "steps in a row whose loss or gradient is not finite that end the run", kFromOne},
    o.max_skips);
}

// What two options of several commands come to where they are not given: every processor that this process may use, and
// 0, which is what the machine has. Throws Error(usage) for a limit that is no number of bytes.
int thread_count(const std::optional<int64_t>& threads);
int64_t memory_limit_bytes(const std::string& text);

// Words that are values of several commands' options. Throw Error(usage) that names option and value.
InvalidUtf8 invalid_utf8_mode(const std::string& word);  // error or replace
SpecialMode special_mode(const std::string& word);       // text, allow or error
void check_token_type(const std::string& word);          // empty: not given

// Everything that can be judged without opening a file. Throws Error(usage) that names option and value.
void validate(const ShapeOptions& options);
void validate(const TrainOptions& options);

// The rates of a run of so many steps. Throws Error(invalid) where warm-up and decay do not fit into them.
LearningRate learning_rate_of(const TrainOptions& options, int64_t steps);

// What the compiler is asked for; `seq` resolved and checked against the config, and the size of a step.
int64_t resolve_seq(const ShapeOptions& options, const ModelConfig& config);
CompileOptions compile_options(const ShapeOptions& options, const ModelConfig& config);
ModelConfig with_dropout(ModelConfig config, std::optional<double> dropout);

}  // namespace lamina

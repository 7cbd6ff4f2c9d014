// lamina eval: the loss of a model on data, without dropout, every id but the first predicted once.
#include <cmath>
#include <filesystem>
#include <numbers>

#include "base/cpu.h"
#include "command.h"
#include "infer/load.h"
#include "io/hf_config.h"
#include "io/text_files.h"
#include "io/tokenizer_files.h"
#include "train/batches.h"
#include "train/data.h"
#include "train/options.h"

namespace lamina::cli {
namespace {

struct Options {
  std::string folder;
  std::vector<std::string> data;
  std::string tokenizer;
  std::string token_type;
  std::string text_field = "text";
  bool isolate_documents = false;
  std::string invalid_utf8 = "error";
  int64_t batch = 4;
  std::optional<int64_t> seq;
  std::optional<int64_t> threads;
  std::string memory_limit;
  bool json = false;
};

template <OptionsOf<Options> O, typename F>
void for_each_option(O& o, F&& f) {
  f(OptionRow{"data", "PATH", "text, .jsonl or .bin files, folders of them, or patterns", kAnyNumber, true}, o.data);
  f(OptionRow{"tokenizer", "DIR", "folder with a tokenizer.json (default: the model's)"}, o.tokenizer);
  f(OptionRow{"token-type", "TYPE", "u16, u32 or i32: ids of a .bin file without a header (default: u16)"},
    o.token_type);
  f(OptionRow{"text-field", "NAME", "field of a .jsonl file's lines that holds the text"}, o.text_field);
  f(OptionRow{"isolate-documents", "", "no token sees another document, none is predicted from one"},
    o.isolate_documents);
  f(OptionRow{"invalid-utf8", "MODE", "error or replace: text that is not UTF-8"}, o.invalid_utf8);
  f(OptionRow{"batch", "N", "rows at a time", {1.0, kMostCount}}, o.batch);
  f(OptionRow{"seq", "T", "tokens of a row (default: the model's n_positions)", kFromOne}, o.seq);
  f(OptionRow{"threads", "N", "threads (default: the processors that this process may use)", {1.0, 1024.0}}, o.threads);
  f(OptionRow{"memory-limit", "BYTES", "refuse a plan that needs more, as in 8GiB (default: what the machine has)"},
    o.memory_limit);
}

void check(const Options& options) {
  check_options(options);
  for (const std::string& path : options.data)
    if (split_weight(path).weight) bad_value("data", "a path without a weight, since all of the data counts", path);
  check_token_type(options.token_type);
  (void)invalid_utf8_mode(options.invalid_utf8);
  (void)memory_limit_bytes(options.memory_limit);
  (void)select_isa();
}

LoadedModel load(const Options& options, HfConfig config, int64_t batch, int64_t seq) {
  return load_model(options.folder, std::move(config),
                    {.needs = [=] { return CompileOptions{.batch = batch, .seq = seq, .train = false, .eval = true}; },
                     .threads = thread_count(options.threads),
                     .memory_limit = memory_limit_bytes(options.memory_limit)});
}

Data open(const Options& options, const ModelConfig& config, int64_t seq) {
  DataOptions wanted{
      .paths = options.data,
      .valid_fraction = 0.0,
      .token_type = options.token_type,
      .documents = {.invalid = invalid_utf8_mode(options.invalid_utf8), .text_field = options.text_field},
      .threads = thread_count(options.threads),
      .seq = seq};
  if (!options.tokenizer.empty())
    wanted.tokenizers = {options.tokenizer};
  else if (has_tokenizer(options.folder))
    wanted.tokenizers = {options.folder};
  Data data = open_data(wanted, [](const std::string& line) { say("{}", line); });
  if (data.tokenizer) check_fit(*data.tokenizer, data.tokenizer_source, config.vocab_size, options.folder);
  check_token_files(data, config.vocab_size);
  return data;
}

// Of the text that is predicted: all but the first id's, of each document where they are isolated.
double predicted_bytes(const Data& data, std::optional<int32_t> document_end) {
  int64_t bytes = data.text_bytes;
  std::vector<int32_t> ids(4096);
  bool first = true;
  for (int64_t at = 0; at < data.train.size(); at += std::ssize(ids)) {
    ids.resize(static_cast<size_t>(std::min<int64_t>(std::ssize(ids), data.train.size() - at)));
    data.train.read(at, ids);
    for (const int32_t id : ids) {
      if (first) bytes -= std::ssize(data.tokenizer->token(id));
      first = document_end && id == *document_end;
    }
  }
  return static_cast<double>(bytes);
}

int run(const Options& options) {
  check(options);
  HfConfig read = read_hf_config(options.folder);
  const ModelConfig config = read.model;
  ShapeOptions shape;
  shape.seq = options.seq;
  const int64_t seq = resolve_seq(shape, config);
  const Data data = open(options, config, seq);
  std::optional<int32_t> end;
  if (options.isolate_documents) end = document_end(data, config);
  Batches batches(
      data.train,
      {.seq = seq, .rows = options.batch, .whole_window = false, .document_end = end, .what = "evaluation data"});
  // Rows beyond what the data has would only be computed as padding.
  const LoadedModel model = load(options, std::move(read), std::min(options.batch, batches.windows()), seq);
  for (const std::string& warning : model.warnings) say("warning: {}", warning);
  EvalStep step(*model.session);
  EvalResult total;
  for (int64_t s = 1; s <= batches.steps_per_epoch(); ++s) step.add(batches.rows(s), total);
  const double loss = total.mean(), perplexity = std::exp(loss);
  if (!std::isfinite(loss))
    throw_error(ErrorCode::invalid, "the loss is not finite: {}: over {} tokens, expected a number, got {}",
                options.folder, total.tokens, loss);
  const double bytes = data.is_text ? predicted_bytes(data, end) : 0.0;
  const double bits = total.loss_sum / std::numbers::ln2 / bytes;
  if (options.json) {
    print_json({{"model", options.folder},
                {"tokens", total.tokens},
                {"loss", loss},
                {"perplexity", perplexity},
                {"bits_per_byte", bytes > 0.0 ? Json(bits) : Json(nullptr)},
                {"batch", step.rows()},
                {"seq", step.seq()}});
    return 0;
  }
  print(fmt::format("loss {:.6f}  perplexity {:.4f}  bits per byte {}  over {} tokens\n", loss, perplexity,
                    bytes > 0.0 ? fmt::format("{:.4f}", bits) : "n/a (no text)", total.tokens));
  return 0;
}

}  // namespace

void add_eval(const Command& program) {
  const Command command = program.add("eval", "loss, perplexity and bits per byte of a model on data");
  const auto options = std::make_shared<Options>();
  command.positional("DIR", options->folder, "a model folder");
  command.options(*options);
  command.run(options, &run);
}

}  // namespace lamina::cli

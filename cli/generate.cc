// lamina generate: text after a prompt, as it comes. Thin: what is generated and how is in src/infer.
#include "infer/generate.h"

#include <chrono>

#include "base/cpu.h"
#include "command.h"
#include "infer/load.h"
#include "infer/row_texts.h"
#include "io/hf_config.h"
#include "io/json.h"
#include "io/text_files.h"
#include "io/tokenizer_files.h"
#include "train/options.h"

namespace lamina::cli {
namespace {

struct Options {
  std::string folder;
  std::optional<std::string> prompt;
  std::optional<std::string> prompt_ids;
  std::string batch_file;
  bool echo = false;
  std::optional<int64_t> max_tokens;
  double temperature = 1.0;
  int64_t top_k = 0;
  double top_p = 1.0;
  int64_t seed = 0;
  std::vector<std::string> stop;
  std::vector<int64_t> end_id;
  bool log_probabilities = false;
  std::string tokenizer;
  int64_t batch = 8;
  std::optional<int64_t> threads;
  std::string memory_limit;
  bool json = false;
};

// Ranges of the sampling options are checked in src/infer, which every way in shares.
template <OptionsOf<Options> O, typename F>
void for_each_option(O& o, F&& f) {
  f(OptionRow{"prompt", "TEXT", "what comes before (default: nothing, the model starts from its bos_token_id)"},
    o.prompt);
  f(OptionRow{"prompt-ids", "IDS", "the same as decimal ids with spaces between them"}, o.prompt_ids);
  f(
      OptionRow{
          "batch-file", "FILE",
          "a prompt on each line (ids where there is no tokenizer); in FILE.jsonl an object with prompt or prompt_ids"},
      o.batch_file);
  f(
      OptionRow{
          "echo", "",
          "print each prompt before its new text, ids where there is no tokenizer; with --json as keys of their own"},
      o.echo);
  f(OptionRow{"max-tokens", "N", "new ids of a row (default: 128, or what the context leaves to it)"}, o.max_tokens);
  f(OptionRow{"temperature", "T", "divides the logits; 0: always the best id"}, o.temperature);
  f(OptionRow{"top-k", "K", "draw from the K best ids only; 0: from all"}, o.top_k);
  f(OptionRow{"top-p", "P", "draw from the best ids that together reach P; 1: from all"}, o.top_p);
  f(OptionRow{"seed", "N", "of the draws; the same seed gives the same text", kFromZero}, o.seed);
  f(OptionRow{"stop", "TEXT", "end where this text would come; may be repeated"}, o.stop);
  f(OptionRow{"end-id", "ID", "end at this id; may be repeated (default: the model's eos_token_id)", {0.0, INT32_MAX}},
    o.end_id);
  f(OptionRow{"log-probabilities", "", "with --json: of each new id"}, o.log_probabilities);
  f(OptionRow{"tokenizer", "DIR", "folder with a tokenizer.json (default: the model's)"}, o.tokenizer);
  f(OptionRow{"batch", "N", "rows at a time", {1.0, 4096.0}}, o.batch);
  f(OptionRow{"threads", "N", "threads (default: the processors that this process may use)", {1.0, 1024.0}}, o.threads);
  f(OptionRow{"memory-limit", "BYTES", "refuse a plan that needs more, as in 8GiB (default: what the machine has)"},
    o.memory_limit);
}

GenerateOptions generate_options(const Options& options) {
  GenerateOptions out;
  out.max_tokens = options.max_tokens;
  out.sampling = {options.temperature, options.top_k, options.top_p};
  out.log_probabilities = options.log_probabilities;
  for (int64_t id : options.end_id) out.end_ids.push_back(static_cast<int32_t>(id));
  return out;
}

void check(const Options& options) {
  check_options(options);
  validate(generate_options(options));
  (void)TextStream(options.stop);
  (void)memory_limit_bytes(options.memory_limit);
  const int given = (options.prompt ? 1 : 0) + (options.prompt_ids ? 1 : 0) + (options.batch_file.empty() ? 0 : 1);
  if (given > 1)
    throw_error(ErrorCode::usage,
                "contradiction: --prompt, --prompt-ids and --batch-file, expected one of them, got {}", given);
  (void)select_isa();
}

std::optional<Tokenizer> open_tokenizer(const Options& options) {
  const std::string& folder = options.tokenizer.empty() ? options.folder : options.tokenizer;
  if (options.tokenizer.empty() && !has_tokenizer(folder)) return std::nullopt;
  LoadedTokenizer loaded = load_tokenizer(folder);
  for (const std::string& warning : loaded.warnings) say("warning: {}", warning);
  return std::move(loaded.tokenizer);
}

std::vector<std::string> lines_of(const std::string& path) {
  const TextFile file(path);
  std::vector<std::string> out;
  std::string_view text = file.text();
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    out.emplace_back(line);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  if (out.empty())
    throw_error(ErrorCode::invalid, "no prompts: {}: expected a prompt on each line, got an empty file", path);
  return out;
}

Prompt text_prompt(const Options& options, const std::optional<Tokenizer>& tokenizer, const std::string& text,
                   const std::string& where) {
  const auto seed = static_cast<uint64_t>(options.seed);
  if (tokenizer) return {encode(*tokenizer, text, {.where = where}), seed};
  if (text.empty()) return {{}, seed};
  throw Error(ErrorCode::invalid,
              fmt::format("no tokenizer: {} cannot be read without one: {} has none", where, options.folder),
              "--tokenizer DIR, or --prompt-ids");
}

std::vector<int32_t> json_ids(const Json& value, const std::string& where) {
  std::vector<int32_t> out;
  for (const Json& id : JsonReader(value, "bad prompt: " + where + ": prompt_ids").list()) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX)
      throw_error(ErrorCode::invalid, "bad prompt: {}: prompt_ids, expected ids, got {}", where, json_text(id));
    out.push_back(id.get<int32_t>());
  }
  return out;
}

// {"prompt": TEXT} or {"prompt_ids": [ID, …]}, and "seed" where the line has one of its own.
Prompt json_prompt(const Options& options, const std::optional<Tokenizer>& tokenizer, const std::string& line,
                   const std::string& where) {
  const Json value = parse_json(line, where);
  if (!value.is_object() || value.contains("prompt") == value.contains("prompt_ids"))
    throw_error(ErrorCode::invalid, "bad prompt: {}: expected an object with prompt or prompt_ids, got {}", where,
                json_text(value));
  Prompt out{{}, static_cast<uint64_t>(options.seed)};
  for (const auto& [key, field] : value.items()) {
    if (key == "prompt_ids")
      out.ids = json_ids(field, where);
    else if (key == "prompt" && field.is_string())
      out.ids = text_prompt(options, tokenizer, field.get<std::string>(), where).ids;
    else if (key == "seed" && field.is_number_unsigned())
      out.seed = field.get<uint64_t>();
    else
      throw_error(ErrorCode::invalid, "bad prompt: {}: expected a text prompt and a whole number seed, got {}: {}",
                  where, json_text(key), json_text(field));
  }
  return out;
}

std::vector<Prompt> read_batch(const Options& options, const std::optional<Tokenizer>& tokenizer) {
  const bool json = options.batch_file.ends_with(".jsonl");
  std::vector<Prompt> out;
  for (const std::string& line : lines_of(options.batch_file)) {
    const std::string where = fmt::format("{}, line {}", options.batch_file, out.size() + 1);
    if (json)
      out.push_back(json_prompt(options, tokenizer, line, where));
    else if (tokenizer)
      out.push_back(text_prompt(options, tokenizer, line, where));
    else
      out.push_back({parse_ids(line, where), static_cast<uint64_t>(options.seed)});
  }
  return out;
}

std::vector<Prompt> read_prompts(const Options& options, const std::optional<Tokenizer>& tokenizer) {
  if (!options.batch_file.empty()) return read_batch(options, tokenizer);
  if (options.prompt_ids)
    return {{parse_ids(*options.prompt_ids, "--prompt-ids"), static_cast<uint64_t>(options.seed)}};
  return {text_prompt(options, tokenizer, options.prompt.value_or(""), "--prompt")};
}

std::string ids_text(const std::vector<int32_t>& ids) {
  std::string out;
  for (const int32_t id : ids) out += fmt::format("{} ", id);
  return out;
}

// What people read: one row as it comes, several when all are done. Without a tokenizer, ids.
class Output {
 public:
  Output(const Options& options, const std::optional<Tokenizer>& tokenizer, const std::vector<Prompt>& prompts)
      : show_(prompts.size() == 1 && !options.json), fronts_(prompts.size()) {
    if (tokenizer) texts_.emplace(*tokenizer, prompts.size(), options.stop);
    for (size_t row = 0; row < prompts.size() && options.echo; ++row)
      fronts_[row] = tokenizer ? tokenizer->decode(prompts[row].ids) : ids_text(prompts[row].ids);
  }

  bool push(size_t row, int32_t id) {
    if (!begun_) show(fronts_[row]);
    begun_ = true;
    show(texts_ ? texts_->push(row, id) : fmt::format("{} ", id));
    return !texts_ || !texts_->stopped(row);
  }
  void finish(size_t rows) {
    for (size_t row = 0; row < rows && texts_; ++row) show(texts_->finish(row));
    show("\n");
  }
  bool has_text() const { return texts_.has_value(); }
  const std::string& text(size_t row) const { return texts_->text(row); }
  const std::string& front(size_t row) const { return fronts_[row]; }  // the prompt, where it is to be shown

 private:
  void show(const std::string& piece) const {
    if (show_ && !piece.empty()) print(piece);
  }

  bool show_, begun_ = false;
  std::vector<std::string> fronts_;
  std::optional<RowTexts> texts_;
};

Json row_json(const Generated& row, const Prompt* echo, const Output& output, size_t r) {
  Json out = {{"ids", row.ids},
              {"text", output.has_text() ? Json(output.text(r)) : Json(nullptr)},
              {"finish_reason", finish_reason_name(row.reason)}};
  if (!row.log_probabilities.empty()) out["log_probabilities"] = row.log_probabilities;
  if (echo != nullptr) {
    out["prompt_ids"] = echo->ids;
    out["prompt"] = output.has_text() ? Json(output.front(r)) : Json(nullptr);
  }
  return out;
}

void show(const Options& options, const std::vector<Prompt>& prompts, const std::vector<Generated>& rows,
          const Output& output, double seconds) {
  int64_t count = 0;
  for (const Generated& row : rows) count += std::ssize(row.ids);
  const double rate = static_cast<double>(count) / seconds;
  if (options.json) {
    Json all = Json::array();
    for (size_t r = 0; r < rows.size(); ++r)
      all.push_back(row_json(rows[r], options.echo ? &prompts[r] : nullptr, output, r));
    Json out = options.batch_file.empty() ? all[0] : Json{{"rows", all}};
    out["tokens_per_s"] = rate;
    print_json(out);
    return;
  }
  for (size_t r = 0; r < rows.size() && rows.size() > 1; ++r)
    print(fmt::format("--- row {}\n{}{}\n", r, output.front(r),
                      output.has_text() ? output.text(r) : fmt::format("{}", fmt::join(rows[r].ids, " "))));
  say("{} ids, {:.1f} tokens/s", count, rate);
}

void check_fit(const Options& options, const std::optional<Tokenizer>& tokenizer, const ModelConfig& config) {
  if (!tokenizer && !options.stop.empty())
    throw Error(ErrorCode::invalid, fmt::format("no tokenizer: --stop is a text, and {} has none", options.folder),
                "--tokenizer DIR, or --end-id");
  if (tokenizer)
    check_fit(*tokenizer, options.tokenizer.empty() ? options.folder : options.tokenizer, config.vocab_size,
              options.folder);
}

int run(const Options& options) {
  check(options);
  HfConfig config = read_hf_config(options.folder);  // that there is no such model is said before what it lacks
  const std::optional<Tokenizer> tokenizer = open_tokenizer(options);
  const std::vector<Prompt> prompts = read_prompts(options, tokenizer);
  const int64_t rows = std::min<int64_t>(options.batch, std::ssize(prompts));
  const LoadedModel model = load_model(options.folder, std::move(config),
                                       {.needs = [&] { return CompileOptions{.train = false, .generate_batch = rows}; },
                                        .threads = thread_count(options.threads),
                                        .memory_limit = memory_limit_bytes(options.memory_limit)});
  for (const std::string& warning : model.warnings) say("warning: {}", warning);
  check_fit(options, tokenizer, model.config);
  GenerateOptions wanted = generate_options(options);
  if (tokenizer) wanted.known_ids = tokenizer->vocab_size();
  if (options.end_id.empty() && model.config.eos_token_id)
    wanted.end_ids.push_back(static_cast<int32_t>(*model.config.eos_token_id));
  Generator generator(*model.session, model.config);
  Output output(options, tokenizer, prompts);
  GenerateHooks hooks;
  hooks.say = [](const std::string& line) { say("{}", line); };
  hooks.id = [&](size_t row, int32_t id) { return output.push(row, id); };
  const auto start = std::chrono::steady_clock::now();
  const std::vector<Generated> out = generator.generate(prompts, wanted, hooks);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  output.finish(prompts.size());
  show(options, prompts, out, output, seconds);
  return 0;
}

}  // namespace

void add_generate(const Command& program) {
  const Command command = program.add("generate", "text after a prompt, printed as it comes");
  const auto options = std::make_shared<Options>();
  command.positional("DIR", options->folder, "a model folder");
  command.options(*options);
  command.run(options, &run);
}

}  // namespace lamina::cli

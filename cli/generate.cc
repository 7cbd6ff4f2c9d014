// lamina generate: text after a prompt, as it comes. Thin: what is generated and how is in src/infer.
#include "infer/generate.h"

#include <chrono>

#include "base/cpu.h"
#include "command.h"
#include "infer/load.h"
#include "infer/text_stream.h"
#include "io/text_files.h"
#include "io/tokenizer_files.h"
#include "train/options.h"

namespace lamina::cli {
namespace {

constexpr int64_t kUsualTokens = 128;

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
  bool json = false;
};

// Ranges of the sampling options are checked in src/infer, which every way in shares.
template <OptionsOf<Options> O, typename F>
void for_each_option(O& o, F&& f) {
  f(OptionRow{"prompt", "TEXT", "what comes before (default: nothing, the model starts from its bos_token_id)"},
    o.prompt);
  f(OptionRow{"prompt-ids", "IDS", "the same as decimal ids with spaces between them"}, o.prompt_ids);
  f(OptionRow{"batch-file", "FILE", "a prompt on each line; of ids where the model has no tokenizer"}, o.batch_file);
  f(OptionRow{"echo", "", "print the prompt before the new text"}, o.echo);
  f(OptionRow{"max-tokens", "N", "new ids of a row (default: 128, or what the context leaves)"}, o.max_tokens);
  f(OptionRow{"temperature", "T", "divides the logits; 0: always the best id"}, o.temperature);
  f(OptionRow{"top-k", "K", "draw from the K best ids only; 0: from all"}, o.top_k);
  f(OptionRow{"top-p", "P", "draw from the best ids that together reach P; 1: from all"}, o.top_p);
  f(OptionRow{"seed", "N", "of the draws; the same seed gives the same text", kFromZero}, o.seed);
  f(OptionRow{"stop", "TEXT", "end where this text would come; may be repeated"}, o.stop);
  f(OptionRow{"end-id", "ID", "end at this id; may be repeated (default: the model's eos_token_id)", kFromZero},
    o.end_id);
  f(OptionRow{"log-probabilities", "", "with --json: of each new id"}, o.log_probabilities);
  f(OptionRow{"tokenizer", "DIR", "folder with a tokenizer.json (default: the model's)"}, o.tokenizer);
  f(OptionRow{"batch", "N", "rows at a time", {1.0, 4096.0}}, o.batch);
  f(OptionRow{"threads", "N", "threads (default: the processors that this process may use)", {1.0, 1024.0}}, o.threads);
}

GenerateOptions generate_options(const Options& options) {
  GenerateOptions out;
  out.max_tokens = options.max_tokens.value_or(kUsualTokens);
  out.sampling = {options.temperature, options.top_k, options.top_p};
  out.log_probabilities = options.log_probabilities;
  for (int64_t id : options.end_id) out.end_ids.push_back(static_cast<int32_t>(std::min<int64_t>(id, INT32_MAX)));
  return out;
}

void check(const Options& options) {
  check_options(options);
  validate(generate_options(options));
  (void)TextStream(options.stop);
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
  if (out.empty()) throw_error(ErrorCode::invalid, "no prompts: {}: expected a prompt on each line", path);
  return out;
}

std::vector<Prompt> read_prompts(const Options& options, const std::optional<Tokenizer>& tokenizer) {
  std::vector<Prompt> out;
  const auto add = [&](const std::string& text, const std::string& where) {
    if (!tokenizer && text.empty())
      out.push_back({{}, static_cast<uint64_t>(options.seed)});
    else if (!tokenizer)
      throw Error(ErrorCode::invalid,
                  fmt::format("no tokenizer: {} cannot be read without one: {} has none", where, options.folder),
                  "--tokenizer DIR, or --prompt-ids");
    else
      out.push_back({encode(*tokenizer, text, {.where = where}), static_cast<uint64_t>(options.seed)});
  };
  if (options.prompt_ids) {
    out.push_back({parse_ids(*options.prompt_ids, "--prompt-ids"), static_cast<uint64_t>(options.seed)});
  } else if (options.batch_file.empty()) {
    add(options.prompt.value_or(""), "--prompt");
  } else {
    int64_t number = 0;
    for (const std::string& line : lines_of(options.batch_file)) {
      const std::string where = fmt::format("{}, line {}", options.batch_file, ++number);
      if (tokenizer)
        add(line, where);
      else
        out.push_back({parse_ids(line, where), static_cast<uint64_t>(options.seed)});
    }
  }
  return out;
}

// Text of all rows, shown as it comes where there is one row.
class Texts {
 public:
  Texts(const Options& options, const std::optional<Tokenizer>& tokenizer, size_t rows)
      : tokenizer_(tokenizer),
        show_(rows == 1 && !options.json),
        streams_(rows, TextStream(options.stop)),
        text_(rows) {}

  bool push(size_t row, int32_t id) {
    if (!tokenizer_) {
      if (show_) print(fmt::format("{} ", id));
      return true;
    }
    // A special token ends a document; it is not part of its text.
    if (!tokenizer_->is_special(id)) add(row, streams_[row].push(tokenizer_->token(id)));
    return !streams_[row].stopped();
  }
  void finish() {
    for (size_t row = 0; row < streams_.size(); ++row) add(row, streams_[row].finish());
    if (show_) print("\n");
  }
  const std::string& text(size_t row) const { return text_[row]; }
  bool stopped(size_t row) const { return streams_[row].stopped(); }

 private:
  void add(size_t row, const std::string& piece) {
    text_[row] += piece;
    if (show_ && !piece.empty()) print(piece);
  }

  const std::optional<Tokenizer>& tokenizer_;
  bool show_;
  std::vector<TextStream> streams_;
  std::vector<std::string> text_;
};

Json row_json(const Generated& row, const Texts& texts, size_t r, bool has_text) {
  Json out = {{"ids", row.ids},
              {"text", has_text ? Json(texts.text(r)) : Json(nullptr)},
              {"finish_reason", texts.stopped(r) ? "stop" : std::string(finish_reason_name(row.reason))}};
  if (!row.log_probabilities.empty()) out["log_probabilities"] = row.log_probabilities;
  return out;
}

void show(const Options& options, const std::vector<Generated>& rows, const Texts& texts, bool has_text,
          double seconds) {
  int64_t count = 0;
  for (const Generated& row : rows) count += std::ssize(row.ids);
  const double rate = static_cast<double>(count) / seconds;
  if (options.json) {
    Json all = Json::array();
    for (size_t r = 0; r < rows.size(); ++r) all.push_back(row_json(rows[r], texts, r, has_text));
    Json out = options.batch_file.empty() ? all[0] : Json{{"rows", all}};
    out["tokens_per_s"] = rate;
    print_json(out);
    return;
  }
  for (size_t r = 0; r < rows.size() && rows.size() > 1; ++r) {
    std::string ids;
    for (int32_t id : rows[r].ids) ids += fmt::format("{} ", id);
    print(fmt::format("--- row {}\n{}\n", r, has_text ? texts.text(r) : ids));
  }
  say("{} ids, {:.1f} tokens/s", count, rate);
}

// The default leaves what the longest prompt leaves.
int64_t fitting_tokens(const std::vector<Prompt>& prompts, int64_t n_positions) {
  size_t longest = 1;
  for (const Prompt& prompt : prompts) longest = std::max(longest, prompt.ids.size());
  return std::clamp<int64_t>(n_positions - static_cast<int64_t>(longest), 1, kUsualTokens);
}

int run(const Options& options) {
  check(options);
  const std::optional<Tokenizer> tokenizer = open_tokenizer(options);
  const std::vector<Prompt> prompts = read_prompts(options, tokenizer);
  const int64_t rows = std::min<int64_t>(options.batch, std::ssize(prompts));
  const LoadedModel model =
      load_model(options.folder,
                 {.needs = [&](const ModelConfig&) { return CompileOptions{.train = false, .generate_batch = rows}; },
                  .threads = options.threads ? static_cast<int>(*options.threads) : cpu_count()});
  for (const std::string& warning : model.warnings) say("warning: {}", warning);
  GenerateOptions wanted = generate_options(options);
  if (!options.max_tokens) wanted.max_tokens = fitting_tokens(prompts, model.config.n_positions);
  if (options.end_id.empty() && model.config.eos_token_id)
    wanted.end_ids.push_back(static_cast<int32_t>(*model.config.eos_token_id));
  Generator generator(*model.session, model.config);
  Texts texts(options, tokenizer, prompts.size());
  bool first = true;
  GenerateHooks hooks;
  hooks.say = [](const std::string& line) { say("{}", line); };
  hooks.id = [&](size_t row, int32_t id) {
    if (first && options.echo && !options.json) print(options.prompt.value_or(""));
    first = false;
    return texts.push(row, id);
  };
  const auto start = std::chrono::steady_clock::now();
  const std::vector<Generated> out = generator.generate(prompts, wanted, hooks);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  texts.finish();
  show(options, out, texts, tokenizer.has_value(), seconds);
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

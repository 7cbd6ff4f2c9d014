// lamina tokenize: train a tokenizer; text to ids and back; what a tokenizer holds.
#include "base/thread_team.h"
#include "command.h"
#include "io/atomic_file.h"
#include "io/bpe_train.h"
#include "io/documents.h"
#include "io/encode_documents.h"
#include "io/quote.h"
#include "io/token_file.h"
#include "io/tokenizer_files.h"
#include "train/options.h"

namespace lamina::cli {
namespace {

struct TrainTokenizer {
  std::vector<std::string> data;
  int64_t vocab_size = 0;
  std::string out;
  int64_t min_count = 2;
  int64_t max_length = 1024;
  std::string text_field = "text";
  std::string invalid_utf8 = "error";
  bool json = false;
};

template <OptionsOf<TrainTokenizer> O, typename F>
void for_each_option(O& o, F&& f) {
  f(OptionRow{"data", "PATH", "text or .jsonl files, folders of them, or patterns", kAnyNumber, true}, o.data);
  f(OptionRow{"vocab-size", "N", "ids in all, <|endoftext|> included; fewer where the text has no more", kVocabSize,
              true},
    o.vocab_size);
  f(OptionRow{"out", "DIR", "folder for tokenizer.json and tokenizer_config.json", kAnyNumber, true}, o.out);
  f(OptionRow{"min-count", "N", "merge only pairs that occur this often", kFromOne}, o.min_count);
  f(OptionRow{"max-length", "T", "context that tokenizer_config.json states", kFromOne}, o.max_length);
  f(OptionRow{"text-field", "NAME", "field of a .jsonl file's lines that holds the text"}, o.text_field);
  f(OptionRow{"invalid-utf8", "MODE", "error or replace: text that is not UTF-8"}, o.invalid_utf8);
}

struct Encode {
  std::string tokenizer;
  std::string file;
  std::vector<std::string> data;
  std::string text_field = "text";
  std::string special = "text";
  std::string invalid_utf8 = "error";
  std::string out;
  std::optional<int64_t> threads;
  bool json = false;
};

template <OptionsOf<Encode> O, typename F>
void for_each_option(O& o, F&& f) {
  f(OptionRow{"tokenizer", "DIR", "folder with a tokenizer.json", kAnyNumber, true}, o.tokenizer);
  f(OptionRow{"file", "FILE", "text file; -: standard input, as where neither this nor --data is given"}, o.file);
  f(OptionRow{"data", "PATH",
              "instead: text or .jsonl files, folders of them, or patterns; each document ends with <|endoftext|>"},
    o.data);
  f(OptionRow{"text-field", "NAME", "field of a .jsonl file's lines that holds the text"}, o.text_field);
  f(OptionRow{"special", "MODE", "text, allow or error: what <|endoftext|> in the text becomes"}, o.special);
  f(OptionRow{"invalid-utf8", "MODE", "error or replace: text that is not UTF-8"}, o.invalid_utf8);
  f(OptionRow{"out", "FILE", "write the ids as a .bin file instead of printing them"}, o.out);
  f(OptionRow{"threads", "N", "threads for --data (default: the processors that this process may use)", {1.0, 1024.0}},
    o.threads);
}

struct Decode {
  std::string tokenizer;
  std::string ids_file = "-";
  bool json = false;
};

template <OptionsOf<Decode> O, typename F>
void for_each_option(O& o, F&& f) {
  f(OptionRow{"tokenizer", "DIR", "folder with a tokenizer.json", kAnyNumber, true}, o.tokenizer);
  f(OptionRow{"ids-file", "FILE", "decimal ids with white space between them; -: standard input"}, o.ids_file);
}

struct Info {
  std::string tokenizer;
  bool json = false;
};

template <OptionsOf<Info> O, typename F>
void for_each_option(O& o, F&& f) {
  f(OptionRow{"tokenizer", "DIR", "folder with a tokenizer.json", kAnyNumber, true}, o.tokenizer);
}

Tokenizer open_tokenizer(const std::string& folder) {
  LoadedTokenizer loaded = load_tokenizer(folder);
  for (const std::string& warning : loaded.warnings) say("warning: {}", warning);
  return std::move(loaded.tokenizer);
}

int run(const TrainTokenizer& options) {
  check_options(options);
  const InvalidUtf8 invalid = invalid_utf8_mode(options.invalid_utf8);
  check_tokenizer_folder(options.out);
  BpeTrainer trainer;
  int64_t bytes = 0;
  DocumentReader reader(expand_data_paths(options.data, {".txt", ".jsonl"}), {invalid, options.text_field}, say_line);
  for (auto documents = reader.next(); !documents.empty(); documents = reader.next())
    for (const Document& document : documents) {
      bytes += std::ssize(document.text);
      trainer.add(document.text);
    }
  const Tokenizer tokenizer = trainer.train(options.vocab_size, options.min_count);
  save_tokenizer(options.out, tokenizer, options.max_length);
  say("tokenizer: {}: {} ids ({} asked for) from {} bytes", options.out, tokenizer.vocab_size(), options.vocab_size,
      bytes);
  if (options.json)
    print_json({{"out", options.out},
                {"vocab_size", tokenizer.vocab_size()},
                {"merges", tokenizer.parts().merges.size()},
                {"bytes", bytes}});
  return 0;
}

void tell(const EncodeCounts& counts) {
  if (counts.special > 0) say("{} special-token text{}", counts.special, counts.special == 1 ? "" : "s");
  if (counts.replaced > 0) say("{} ill-formed parts replaced by U+FFFD", counts.replaced);
}

// A corpus to a token file, some megabytes at a time.
int encode_corpus(const Encode& options) {
  if (options.out.empty()) throw_error(ErrorCode::usage, "missing option: --out, since --data is given");
  if (!options.file.empty())
    throw_error(ErrorCode::usage, "contradiction: --data and --file {}, expected one of them", options.file);
  const EncodeOptions how{.special = special_mode(options.special)};
  const DocumentOptions documents{invalid_utf8_mode(options.invalid_utf8), options.text_field};
  check_output_file(options.out);
  const Tokenizer tokenizer = open_tokenizer(options.tokenizer);
  DocumentReader reader(expand_data_paths(options.data, {".txt", ".jsonl"}), documents, say_line);
  ThreadTeam team(thread_count(options.threads));
  TokenFileWriter writer(options.out);
  const std::optional<int32_t> end = tokenizer.end_of_text();
  EncodeCounts counts;
  int64_t written = 0;
  for (auto some = reader.next(); !some.empty(); some = reader.next())
    for (std::vector<int32_t>& ids : encode_documents(tokenizer, some, team, how, counts)) {
      if (ids.empty()) continue;
      if (end) ids.push_back(*end);
      writer.add(ids);
      ++written;
    }
  writer.commit();
  say("{}: {} ids of {} documents", options.out, writer.size(), written);
  tell(counts);
  if (options.json)
    print_json({{"out", options.out},
                {"id_count", writer.size()},
                {"document_count", written},
                {"special_count", counts.special}});
  return 0;
}

int run(const Encode& options) {
  check_options(options);
  if (!options.data.empty()) return encode_corpus(options);
  const SpecialMode special = special_mode(options.special);
  const InvalidUtf8 invalid = invalid_utf8_mode(options.invalid_utf8);
  if (!options.out.empty()) check_output_file(options.out);
  const Tokenizer tokenizer = open_tokenizer(options.tokenizer);
  const std::string path = options.file.empty() ? "-" : options.file;
  const std::string content = read_input(path);
  std::string_view text = content;
  EncodeOptions how{.special = special, .invalid = invalid, .where = path == "-" ? "standard input" : path};
  if (text.starts_with("\xEF\xBB\xBF")) {
    say("{}: byte-order mark dropped", how.where);
    text.remove_prefix(3);
    how.base = 3;
  }
  std::vector<int32_t> ids;
  const EncodeCounts counts = Encoder(tokenizer).encode(text, ids, how);
  if (!options.out.empty()) write_token_file(options.out, ids);
  if (options.json) {
    print_json({{"ids", ids}, {"special_count", counts.special}, {"replaced_count", counts.replaced}});
  } else if (options.out.empty()) {
    std::string line;
    for (size_t i = 0; i < ids.size(); ++i) line += fmt::format("{}{}", i == 0 ? "" : " ", ids[i]);
    print(line + "\n");
  }
  tell(counts);
  return 0;
}

int run(const Decode& options) {
  const Tokenizer tokenizer = open_tokenizer(options.tokenizer);
  const std::string where = options.ids_file == "-" ? "standard input" : options.ids_file;
  const std::string bytes = tokenizer.decode(parse_ids(read_input(options.ids_file), where));
  if (options.json)
    print_json({{"text", bytes}, {"bytes", bytes.size()}});
  else
    print(bytes);
  return 0;
}

int run(const Info& options) {
  const Tokenizer tokenizer = open_tokenizer(options.tokenizer);
  Json specials = Json::array();
  for (int32_t id : tokenizer.parts().specials) specials.push_back({{"id", id}, {"text", tokenizer.token(id)}});
  const size_t merges = tokenizer.parts().merges.size();
  if (options.json) {
    print_json({{"vocab_size", tokenizer.vocab_size()}, {"merges", merges}, {"specials", specials}});
    return 0;
  }
  print(fmt::format("byte-level BPE: {} ids, {} merges\n", tokenizer.vocab_size(), merges));
  for (const Json& special : specials)
    print(fmt::format("special: {} {}\n", special["id"].get<int64_t>(), special["text"].get<std::string>()));
  return 0;
}

template <typename Options>
void add_part(const Command& tokenize, const char* name, const char* help) {
  const Command command = tokenize.add(name, help);
  const auto options = std::make_shared<Options>();
  command.options(*options);
  command.run<Options>(options, &run);
}

}  // namespace

void add_tokenize(const Command& program) {
  const Command command = program.add("tokenize", "train a tokenizer; text to ids and back");
  command.require_one();
  add_part<TrainTokenizer>(command, "train", "learn a byte-level BPE from text");
  add_part<Encode>(command, "encode", "text to ids");
  add_part<Decode>(command, "decode", "ids to the exact bytes");
  add_part<Info>(command, "info", "what a tokenizer holds");
}

}  // namespace lamina::cli

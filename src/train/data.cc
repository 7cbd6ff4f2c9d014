#include "train/data.h"

#include <filesystem>

#include "base/error.h"
#include "base/hash.h"
#include "io/bpe_train.h"
#include "io/encode_documents.h"
#include "io/text_files.h"
#include "io/tokenizer_files.h"

namespace lamina {
namespace {

constexpr double kTextValidFraction = 0.05;
const std::vector<std::string> kEndings = {".txt", ".jsonl", ".bin"};

std::optional<TokenType> token_type(const std::string& name) {
  return name.empty() ? std::nullopt : parse_token_type(name);
}

class Reader {
 public:
  Reader(const DataOptions& options, const Say& say) : options_(options), say_(say) {}

  Data read() {
    const std::vector<NamedFiles> named = named_files();
    std::vector<std::string> files, valid_files;
    for (const NamedFiles& part : named) files.insert(files.end(), part.files.begin(), part.files.end());
    if (!options_.valid.empty()) valid_files = expand_data_paths({options_.valid}, kEndings);
    data_.is_text = !are_token_files(files, options_.token_type);
    if (!valid_files.empty() && are_token_files(valid_files, options_.token_type) == data_.is_text)
      throw_error(ErrorCode::invalid, "--data is {}, --valid is not: expected both to be the same kind",
                  data_.is_text ? "text" : "token files");
    data_.tokenizer_source = "none";
    find_tokenizer(files);
    for (const NamedFiles& part : named) data_.sources.push_back({part.name, stream(part.files), part.weight});
    data_.valid = stream(valid_files);
    if (!options_.valid.empty() && data_.valid.size() == 0)
      throw_error(ErrorCode::invalid, "no validation data: --valid {}, expected ids, got none", options_.valid);
    split();
    for (const Source& source : data_.sources) data_.train.append(source.ids);
    tell_shares();
    if (special_ > 0)
      say_(fmt::format("{} special-token text{} in the data, taken as ordinary text", special_,
                       special_ == 1 ? "" : "s"));
    return std::move(data_);
  }

 private:
  struct NamedFiles {
    std::string name;
    std::vector<std::string> files;
    double weight = 1.0;
  };

  // Without weights all paths are one corpus.
  std::vector<NamedFiles> named_files() {
    std::vector<NamedFiles> out;
    bool weighted = false;
    for (const std::string& argument : options_.paths) {
      const WeightedPath path = split_weight(argument);
      weighted = weighted || path.weight;
      paths_.push_back(path.path);
      out.push_back({"training data of " + path.path, {}, path.weight.value_or(1.0)});
    }
    if (!weighted) return {{"training data", expand_data_paths(paths_, kEndings)}};
    for (size_t i = 0; i < out.size(); ++i) out[i].files = expand_data_paths({paths_[i]}, kEndings);
    return out;
  }

  void tell_shares() {
    if (data_.sources.size() < 2) return;
    double sum = 0.0;
    for (const Source& source : data_.sources) sum += source.weight;
    for (const Source& source : data_.sources)
      say_(
          fmt::format("{}: {} ids, {:.2f} % of the rows", source.name, source.ids.size(), 100.0 * source.weight / sum));
  }

  void find_tokenizer(const std::vector<std::string>& files) {
    std::vector<std::string> folders = options_.tokenizers;
    for (const std::string& path : paths_)
      if (has_tokenizer(path)) folders.push_back(path);
    if (folders.empty()) {
      if (data_.is_text) train_tokenizer(files);
      return;
    }
    LoadedTokenizer loaded = load_tokenizer(folders.front());
    for (const std::string& warning : loaded.warnings) say_("warning: " + warning);
    data_.tokenizer = std::move(loaded.tokenizer);
    data_.tokenizer_source = folders.front();
    say_(fmt::format("tokenizer: {}, {} ids", folders.front(), data_.tokenizer->vocab_size()));
  }

  void train_tokenizer(const std::vector<std::string>& files) {
    if (options_.trained_vocab == 0)
      throw Error(ErrorCode::invalid,
                  "no tokenizer: the model's folder has weights, expected tokenizer.json beside them, got none",
                  "--tokenizer DIR names the one that the weights were trained with");
    BpeTrainer trainer;
    DocumentReader reader(files, options_.documents);
    for (auto documents = reader.next(); !documents.empty(); documents = reader.next())
      for (const Document& document : documents) trainer.add(document.text);
    data_.tokenizer = trainer.train(options_.trained_vocab);
    data_.tokenizer_source = "trained";
    data_.tokenizer_trained = true;
    say_(fmt::format("tokenizer: trained on the data, {} ids ({} asked for)", data_.tokenizer->vocab_size(),
                     options_.trained_vocab));
  }

  TokenStream stream(const std::vector<std::string>& files) {
    TokenStream out;
    if (data_.is_text) {
      out.add(data_.texts.emplace_back(encode_files(files)));
    } else {
      for (const std::string& path : files) out.add(data_.files.emplace_back(path, token_type(options_.token_type)));
    }
    return out;
  }

  // Documents end with <|endoftext|>, so that the model learns where one does. An empty one leaves no trace.
  std::vector<int32_t> encode_files(const std::vector<std::string>& files) {
    std::vector<int32_t> out;
    const std::optional<int32_t> end = data_.tokenizer->end_of_text();
    ThreadTeam team(options_.threads);
    EncodeCounts counts;
    DocumentReader reader(files, options_.documents, say_);
    for (auto documents = reader.next(); !documents.empty(); documents = reader.next()) {
      for (const Document& document : documents) data_.text_bytes += std::ssize(document.text);
      for (const std::vector<int32_t>& ids : encode_documents(*data_.tokenizer, documents, team, {}, counts)) {
        out.insert(out.end(), ids.begin(), ids.end());
        if (end && !ids.empty()) out.push_back(*end);
      }
    }
    special_ += counts.special;
    return out;
  }

  // The end of each source is for validation.
  void split() {
    const double fraction = options_.valid_fraction.value_or(data_.is_text ? kTextValidFraction : 0.0);
    if (data_.valid.size() > 0 || fraction == 0.0) return;
    const auto count_of = [&](const Source& source) {
      return static_cast<int64_t>(fraction * static_cast<double>(source.ids.size()));
    };
    int64_t count = 0, all = 0;
    for (const Source& source : data_.sources) count += count_of(source), all += source.ids.size();
    if (options_.valid_fraction && count == 0)
      throw_error(ErrorCode::invalid,
                  "no validation data: --valid-fraction {}, expected one of {} ids or more, got none", fraction, all);
    if (!options_.valid_fraction && count < options_.seq + 1) {
      say_(fmt::format("no validation: {} of {} ids would be its part, a window needs {}", count, all,
                       options_.seq + 1));
      return;
    }
    for (Source& source : data_.sources) {
      const int64_t size = source.ids.size(), cut = size - count_of(source);
      data_.valid.append(source.ids.part(cut, size));
      source.ids = source.ids.part(0, cut);
    }
  }

  const DataOptions& options_;
  const Say& say_;
  Data data_;
  std::vector<std::string> paths_;  // of --data, without weights
  int64_t special_ = 0;
};

}  // namespace

bool are_token_files(const std::vector<std::string>& files, const std::string& token_type) {
  int64_t tokens = 0;
  for (const std::string& file : files) tokens += !token_type.empty() || file.ends_with(".bin") ? 1 : 0;
  if (tokens != 0 && tokens != std::ssize(files))
    throw_error(ErrorCode::invalid, "text and token files in one run: expected one kind, got {} .bin files of {}",
                tokens, files.size());
  return tokens != 0;
}

Data open_data(const DataOptions& options, const Say& say) { return Reader(options, say).read(); }

void check_token_files(const Data& data, int64_t vocab_size) {
  for (const TokenFile& file : data.files) file.check_ids(vocab_size);
}

int32_t document_end(const Data& data, const ModelConfig& config) {
  std::optional<int64_t> id = config.eos_token_id;
  if (data.tokenizer) id = data.tokenizer->end_of_text();
  if (!id)
    throw_error(ErrorCode::invalid, "documents cannot be told apart: --isolate-documents, expected {}, got none",
                data.tokenizer ? "<|endoftext|> in the tokenizer" : "eos_token_id in the model's config");
  return static_cast<int32_t>(*id);
}

std::string fingerprint(const TokenStream& ids) {
  constexpr int64_t kBlock = int64_t{1} << 20;
  std::vector<int32_t> block(static_cast<size_t>(std::min(kBlock, ids.size())));
  Hash128 hash;
  for (int64_t first = 0; first < ids.size(); first += kBlock) {
    const std::span<int32_t> part = std::span(block).first(static_cast<size_t>(std::min(kBlock, ids.size() - first)));
    ids.read(first, part);
    hash.add(part);
  }
  return hash.text();
}

}  // namespace lamina

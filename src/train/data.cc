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

std::optional<TokenType> token_type(const std::string& name) {
  return name.empty() ? std::nullopt : parse_token_type(name);
}

class Reader {
 public:
  Reader(const DataOptions& options, const Say& say) : options_(options), say_(say) {}

  Data read() {
    const std::vector<std::string> files = expand_data_paths(options_.paths, {".txt", ".bin"});
    std::vector<std::string> valid_files;
    if (!options_.valid.empty()) valid_files = expand_data_paths({options_.valid}, {".txt", ".bin"});
    data_.is_text = !are_token_files(files, options_.token_type);
    if (!valid_files.empty() && are_token_files(valid_files, options_.token_type) == data_.is_text)
      throw_error(ErrorCode::invalid, "--data is {}, --valid is not: expected both to be the same kind",
                  data_.is_text ? "text" : "token files");
    data_.tokenizer_source = "none";
    find_tokenizer(files);
    const TokenStream all = stream(files);
    data_.valid = stream(valid_files);
    split(all);
    if (special_ > 0)
      say_(fmt::format("{} special-token text{} in the data, taken as ordinary text", special_,
                       special_ == 1 ? "" : "s"));
    return std::move(data_);
  }

 private:
  InvalidUtf8 invalid() const { return options_.replace_invalid_utf8 ? InvalidUtf8::replace : InvalidUtf8::refuse; }

  void find_tokenizer(const std::vector<std::string>& files) {
    std::vector<std::string> folders = options_.tokenizers;
    for (const std::string& path : options_.paths)
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
      throw Error(ErrorCode::invalid, "no tokenizer: the model's folder has weights but no tokenizer.json",
                  "--tokenizer DIR names the one that the weights were trained with");
    BpeTrainer trainer;
    for (const std::string& path : files) trainer.add(TextFile(path, invalid()).text());
    data_.tokenizer = trainer.train(options_.trained_vocab);
    data_.tokenizer_source = "trained";
    say_(fmt::format("tokenizer: trained on the data, {} ids ({} asked for)", data_.tokenizer->vocab_size(),
                     options_.trained_vocab));
  }

  TokenStream stream(const std::vector<std::string>& files) {
    TokenStream out;
    if (data_.is_text) {
      for (std::vector<int32_t>& ids : encode_files(files)) out.add(data_.texts.emplace_back(std::move(ids)));
    } else {
      for (const std::string& path : files) out.add(data_.files.emplace_back(path, token_type(options_.token_type)));
    }
    return out;
  }

  // Documents end with <|endoftext|>, so that the model learns where one does.
  std::vector<std::vector<int32_t>> encode_files(const std::vector<std::string>& paths) {
    std::deque<TextFile> files;
    std::vector<Document> documents;
    for (const std::string& path : paths) {
      const TextFile& file = files.emplace_back(path, invalid());
      if (file.had_bom()) say_(fmt::format("{}: byte-order mark dropped", path));
      if (file.replaced() > 0) say_(fmt::format("{}: {} ill-formed parts replaced by U+FFFD", path, file.replaced()));
      documents.push_back({file.text(), path, file.had_bom() ? 3 : 0});
      data_.text_bytes += static_cast<int64_t>(file.text().size());
    }
    ThreadTeam team(options_.threads);
    EncodeCounts counts;
    std::vector<std::vector<int32_t>> out = encode_documents(*data_.tokenizer, documents, team, {}, counts);
    special_ += counts.special;
    if (const std::optional<int32_t> end = data_.tokenizer->end_of_text())
      for (std::vector<int32_t>& ids : out)
        if (!ids.empty()) ids.push_back(*end);
    return out;
  }

  void split(const TokenStream& all) {
    data_.train = all;
    if (data_.valid.size() > 0) return;
    const double fraction = options_.valid_fraction.value_or(data_.is_text ? kTextValidFraction : 0.0);
    const auto count = static_cast<int64_t>(fraction * static_cast<double>(all.size()));
    if (fraction == 0.0) return;
    if (options_.valid_fraction && count == 0)
      throw_error(ErrorCode::invalid, "no validation data: --valid-fraction {} of {} ids is none", fraction,
                  all.size());
    if (!options_.valid_fraction && count < options_.seq + 1) {
      say_(fmt::format("no validation: {} of {} ids would be its part, a window needs {}", count, all.size(),
                       options_.seq + 1));
      return;
    }
    data_.train = all.part(0, all.size() - count);
    data_.valid = all.part(all.size() - count, all.size());
  }

  const DataOptions& options_;
  const Say& say_;
  Data data_;
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

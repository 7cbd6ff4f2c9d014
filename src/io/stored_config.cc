#include "io/stored_config.h"

#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "io/folder.h"
#include "io/hf_config.h"
#include "io/json.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kArgs = "model_args.";  // of nanoGPT's checkpoints

// `path`: a config.json under any name, or a folder that holds one.
StoredConfig read_given(std::string path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) path = (fs::path(path) / "config.json").string();
  HfConfig read = parse_hf_config(read_text_file(path, "a config.json"), path);
  const int64_t rows = read.model.vocab_size;
  return {.model = std::move(read.model),
          .table_rows = rows,
          .json = path,
          .source = path,
          .warnings = std::move(read.warnings)};
}

std::string config_beside(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) ? (fs::path(path) / "config.json").string()
                                         : fs::path(path).replace_filename("config.json").string();
}

// Ids of texts' ends that are no id of this vocabulary are none.
void drop_foreign_ids(ModelConfig& config) {
  for (std::optional<int64_t>* id : {&config.bos_token_id, &config.eos_token_id})
    if (*id && **id >= config.vocab_size) id->reset();
}

// nanoGPT's dictionary of sizes. Its models are GPT-2s whose GELU is the exact one since 2023, and say nothing of it.
class NanogptArgs {
 public:
  NanogptArgs(const TensorContent& content, const std::string& where) : where_(where) {
    for (const StoredValue& value : content.values)
      if (value.name.starts_with(kArgs)) values_.emplace(value.name.substr(kArgs.size()), &value);
  }

  bool present() const { return !values_.empty(); }

  StoredConfig read() const {
    StoredConfig out;
    out.source = where_;
    out.model.n_layer = count("n_layer");
    out.model.n_head = count("n_head");
    out.model.n_embd = count("n_embd");
    out.model.n_positions = count("block_size");
    out.model.vocab_size = out.table_rows = count("vocab_size");
    out.model.resid_pdrop = out.model.embd_pdrop = out.model.attn_pdrop = number("dropout");
    out.model.activation_function = "gelu";
    out.biases = flag("bias");
    out.warnings.push_back(
        fmt::format("{}: the file does not say which GELU it was trained with; activation_function "
                    "gelu is taken, as nanoGPT has it since 2023 (--config names another)",
                    where_));
    return out;
  }

 private:
  const StoredValue& at(const std::string& name) const {
    const auto found = values_.find(name);
    if (found == values_.end()) refuse(name, "nothing");
    return *found->second;
  }

  [[noreturn]] void refuse(const std::string& name, const std::string& got) const {
    throw_error(ErrorCode::invalid, "bad config: {}: {}{}: expected a value of nanoGPT's, got {}", where_, kArgs, name,
                got);
  }

  int64_t count(const std::string& name) const {
    const auto* value = std::get_if<int64_t>(&at(name).value);
    if (value == nullptr) refuse(name, "another type");
    return *value;
  }

  double number(const std::string& name) const {
    if (!values_.contains(name)) return 0.0;
    const StoredValue& value = at(name);
    if (const auto* whole = std::get_if<int64_t>(&value.value)) return static_cast<double>(*whole);
    const auto* real = std::get_if<double>(&value.value);
    if (real == nullptr) refuse(name, "another type");
    return *real;
  }

  bool flag(const std::string& name) const {
    if (!values_.contains(name)) return true;  // before there was a choice
    const auto* value = std::get_if<bool>(&at(name).value);
    if (value == nullptr) refuse(name, "another type");
    return *value;
  }

  std::string where_;
  std::map<std::string, const StoredValue*> values_;
};

// llm.c's header; the activation is the tanh form in its sources.
StoredConfig read_llmc(const TensorContent& content, const std::string& where) {
  const auto number = [&](const char* key) {
    const std::string& text = content.metadata.at(key);
    int64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  };
  StoredConfig out;
  out.source = where;
  out.model.n_positions = number("n_positions");
  out.model.vocab_size = number("vocab_size");
  out.table_rows = number("padded_vocab_size");
  out.model.n_layer = number("n_layer");
  out.model.n_head = number("n_head");
  out.model.n_embd = number("n_embd");
  return out;
}

// What the file says of itself; nothing where it says nothing.
std::optional<StoredConfig> said_by(const TensorFile& file) {
  if (const NanogptArgs args(file.content(), file.path()); args.present()) return args.read();
  if (file.content().format == "llm.c") return read_llmc(file.content(), file.path());
  return std::nullopt;
}

// A config.json decides what the file leaves open, and contradicts nothing that it says.
StoredConfig laid_over(StoredConfig config, const StoredConfig& said) {
  constexpr std::pair<const char*, int64_t ModelConfig::*> kSizes[] = {{"n_layer", &ModelConfig::n_layer},
                                                                       {"n_head", &ModelConfig::n_head},
                                                                       {"n_embd", &ModelConfig::n_embd},
                                                                       {"n_positions", &ModelConfig::n_positions},
                                                                       {"vocab_size", &ModelConfig::vocab_size}};
  for (const auto& [name, size] : kSizes)
    if (config.model.*size != said.model.*size)
      throw_error(ErrorCode::invalid, "bad config: {}: {}, expected {} as {} says, got {}", config.source, name,
                  said.model.*size, said.source, config.model.*size);
  config.table_rows = said.table_rows;
  config.biases = said.biases;
  return config;
}

}  // namespace

StoredConfig find_config(const std::string& path, const WeightFiles& files, const std::string& given) {
  std::optional<StoredConfig> said;
  if (!files.files.empty()) said = said_by(files.files.front());  // an index may name none
  const std::string config = !given.empty() ? given : config_beside(path);
  if (!given.empty() || path_exists(config)) {
    StoredConfig read = read_given(config);
    return said ? laid_over(std::move(read), *said) : read;
  }
  if (!said)
    throw Error(ErrorCode::invalid,
                fmt::format("no config: {}: expected {}, or sizes in the file, got neither", path, config),
                "--config CONFIG.json names one; the number of heads is in no tensor");
  drop_foreign_ids(said->model);
  validate(said->model);
  return *std::move(said);
}

}  // namespace lamina

#include "io/stored_config.h"

#include <charconv>
#include <filesystem>
#include <map>
#include <optional>

#include "base/error.h"
#include "io/folder.h"
#include "io/hf_config.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kArgs = "model_args.";  // of nanoGPT's checkpoints

StoredConfig read_given(const std::string& path) {
  HfConfig read = read_hf_config(path);
  const int64_t rows = read.model.vocab_size;
  return {.model = std::move(read.model), .table_rows = rows, .source = path, .warnings = std::move(read.warnings)};
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

}  // namespace

StoredConfig find_config(const std::string& path, const WeightFiles& files, const std::string& given) {
  if (!given.empty()) return read_given(given);
  if (path_exists(config_beside(path))) return read_given(config_beside(path));
  const TensorFile& file = files.files.front();
  StoredConfig out;
  if (const NanogptArgs args(file.content(), file.path()); args.present())
    out = args.read();
  else if (file.content().format == "llm.c")
    out = read_llmc(file.content(), file.path());
  else
    throw Error(ErrorCode::invalid,
                fmt::format("no config: {}: expected {}, or sizes in the file, got neither", path, config_beside(path)),
                "--config CONFIG.json names one; the number of heads is in no tensor");
  drop_foreign_ids(out.model);
  validate(out.model);
  return out;
}

}  // namespace lamina

// lamina inspect checkpoint: the tensors of a file of any format that is read, and what else it holds; of a checkpoint
// of training also its state, after every byte was compared with its hash.
#include <filesystem>
#include <variant>

#include "base/hash.h"
#include "inspect.h"
#include "io/checkpoint_folder.h"
#include "io/folder.h"
#include "io/formats.h"
#include "io/quote.h"

namespace lamina::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string path;
  bool hash = false;
  bool json = false;
};

// The file itself; the safetensors files of a folder, whatever they are; or what stands there for a folder's weights.
std::vector<std::string> files_of(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored) && !path.ends_with(".index.json")) return {path};
  std::vector<std::string> files;
  if (fs::is_directory(path, ignored))
    for (const std::string& name : list_folder(path))
      if (name.ends_with(".safetensors")) files.push_back((fs::path(path) / name).string());
  if (files.empty())
    for (const TensorFile& file : open_weights(path).files) files.push_back(file.path());
  return files;
}

// Of the packed bytes, so that it is the same for a tensor in whatever file and layout.
std::string hash_of(const TensorFile& file, const StoredTensor& tensor) {
  Hash128 hash;
  for_each_part(tensor, [&](std::span<const std::byte> part) { hash.add(part); });
  file.forget(tensor);
  return hash.text();
}

Json value_json(const StoredValue& value) {
  if (std::holds_alternative<std::monostate>(value.value)) return nullptr;
  if (const auto* flag = std::get_if<bool>(&value.value)) return *flag;
  if (const auto* integer = std::get_if<int64_t>(&value.value)) return *integer;
  if (const auto* number = std::get_if<double>(&value.value)) return *number;
  return std::get<std::string>(value.value);
}

// Sums of the file's own bytes are compared too, so that what is said to be sound was read.
void add_metadata(const TensorFile& file, Json& metadata) {
  check_sums(file.content(), file.path());
  for (const auto& [key, value] : file.content().metadata) metadata[key] = value;
  for (const StoredValue& value : file.content().values) metadata[value.name] = value_json(value);
}

// What the manifest of a checkpoint says about it.
Json checkpoint_metadata(const std::string& path) {
  const Manifest manifest = read_manifest(path);
  check_files(path, manifest);
  Json out = manifest.state;
  out["step"] = manifest.step;
  out["run_id"] = manifest.run_id;
  Json& files = out["files"] = Json::object();
  for (const auto& [name, file] : manifest.files) files[name] = {{"bytes", file.bytes}, {"xxh3_128", file.hash}};
  return out;
}

// A line for each entry, nested ones by a dotted name.
std::string metadata_text(const Json& metadata, const std::string& front = {}) {
  std::string out;
  for (const auto& [key, value] : metadata.items())
    out += value.is_object() ? metadata_text(value, front + key + ".")
                             : fmt::format("{}{}: {}\n", front, key, value.dump());
  return out;
}

int run(const Options& options) {
  std::error_code ignored;
  const bool training = fs::exists(options.path + "/manifest.json", ignored);
  Json tensors = Json::array(), metadata = training ? checkpoint_metadata(options.path) : Json::object();
  int64_t bytes = 0;
  std::string text, format = training ? "lamina-checkpoint" : "";
  for (const std::string& path : files_of(options.path)) {
    const TensorFile file(path);
    if (format.empty()) format = file.content().format;
    if (!training) add_metadata(file, metadata);
    for (const StoredTensor& tensor : file.content().tensors) {
      bytes += tensor.bytes;
      tensors.push_back(
          {{"name", tensor.name}, {"shape", tensor.shape}, {"dtype", tensor.dtype}, {"bytes", tensor.bytes}});
      if (options.hash) tensors.back()["xxh3_128"] = hash_of(file, tensor);
      text += fmt::format("{:<6} {:>14} {:>14}  {}{}\n", tensor.dtype, shape_text(tensor.shape), tensor.bytes,
                          options.hash ? tensors.back()["xxh3_128"].get<std::string>() + "  " : "",
                          plain_or_quoted(tensor.name));
    }
  }
  if (options.json) {
    print_json({{"format", format}, {"tensors", tensors}, {"metadata", metadata}});
    return 0;
  }
  print(text);
  print(fmt::format("{} tensors, {} bytes, {}, ", tensors.size(), bytes, format));
  print(training ? "every file as its hash says\n" + metadata_text(metadata) : "metadata " + metadata.dump() + "\n");
  return 0;
}

}  // namespace

void add_inspect_checkpoint(const Command& inspect) {
  const Command command = inspect.add("checkpoint", "the tensors of a file; the state of a checkpoint of training");
  const auto options = std::make_shared<Options>();
  command.positional("PATH", options->path,
                     "a file of weights (safetensors, torch, MindSpore, llm.c) or a folder, such as "
                     "RUN/checkpoints/step-100");
  command.option({"hash", "", "with the XXH3 hash of each tensor's bytes, the same in every format"}, options->hash);
  command.run(options, &run);
}

}  // namespace lamina::cli

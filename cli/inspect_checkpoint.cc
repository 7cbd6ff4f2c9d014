// lamina inspect checkpoint: the tensors of safetensors files, from their headers; of a checkpoint of training also its
// state, after every byte was compared with its hash.
#include <algorithm>
#include <filesystem>

#include "inspect.h"
#include "io/checkpoint_folder.h"
#include "io/folder.h"
#include "io/quote.h"
#include "io/safetensors.h"

namespace lamina::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string path;
  bool json = false;
};

// The file itself, or the safetensors files of a folder.
std::vector<std::string> files_of(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return {path};
  std::vector<std::string> files;
  for (const std::string& name : list_folder(path))
    if (name.ends_with(".safetensors")) files.push_back((fs::path(path) / name).string());
  if (files.empty())
    throw_error(ErrorCode::invalid, "no weights: {}: expected a .safetensors file in the folder, got none", path);
  return files;
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
  std::string text;
  for (const std::string& path : files_of(options.path)) {
    const SafetensorsFile file(path);
    if (!training)
      for (const auto& [key, value] : file.metadata()) metadata[key] = value;
    for (const SafetensorsTensor& tensor : file.tensors()) {
      const int64_t size = std::ssize(tensor.bytes);
      bytes += size;
      tensors.push_back({{"name", tensor.name}, {"shape", tensor.shape}, {"dtype", tensor.dtype}, {"bytes", size}});
      text += fmt::format("{:<6} {:>14} {:>14}  {}\n", tensor.dtype, shape_text(tensor.shape), size, tensor.name);
    }
  }
  if (options.json) {
    print_json(
        {{"format", training ? "lamina-checkpoint" : "safetensors"}, {"tensors", tensors}, {"metadata", metadata}});
    return 0;
  }
  print(text);
  print(fmt::format("{} tensors, {} bytes, ", tensors.size(), bytes));
  print(training ? "every file as its hash says\n" + metadata_text(metadata) : "metadata " + metadata.dump() + "\n");
  return 0;
}

}  // namespace

void add_inspect_checkpoint(const Command& inspect) {
  const Command command = inspect.add("checkpoint", "the tensors of a file; the state of a checkpoint of training");
  const auto options = std::make_shared<Options>();
  command.positional("PATH", options->path,
                     "a .safetensors file or a folder that holds some, such as RUN/checkpoints/step-100");
  command.run(options, &run);
}

}  // namespace lamina::cli

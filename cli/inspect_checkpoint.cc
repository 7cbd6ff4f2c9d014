// lamina inspect checkpoint: the tensors of safetensors files. Reads headers, no weights.
#include <algorithm>
#include <filesystem>

#include "inspect.h"
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
  for (const fs::directory_entry& entry : fs::directory_iterator(path))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  if (files.empty())
    throw_error(ErrorCode::invalid, "no weights: {}: expected a .safetensors file in the folder, got none", path);
  return files;
}

int run(const Options& options) {
  Json tensors = Json::array(), metadata = Json::object();
  int64_t bytes = 0;
  std::string text;
  for (const std::string& path : files_of(options.path)) {
    const SafetensorsFile file(path);
    for (const auto& [key, value] : file.metadata()) metadata[key] = value;
    for (const SafetensorsTensor& tensor : file.tensors()) {
      const int64_t size = std::ssize(tensor.bytes);
      bytes += size;
      tensors.push_back({{"name", tensor.name}, {"shape", tensor.shape}, {"dtype", tensor.dtype}, {"bytes", size}});
      text += fmt::format("{:<6} {:>14} {:>14}  {}\n", tensor.dtype, shape_text(tensor.shape), size, tensor.name);
    }
  }
  if (options.json) {
    print_json({{"format", "safetensors"}, {"tensors", tensors}, {"metadata", metadata}});
    return 0;
  }
  print(text);
  print(fmt::format("{} tensors, {} bytes, metadata {}\n", tensors.size(), bytes, metadata.dump()));
  return 0;
}

}  // namespace

void add_inspect_checkpoint(const Command& inspect) {
  const Command command = inspect.add("checkpoint", "names, shapes and types of the tensors of a file");
  const auto options = std::make_shared<Options>();
  command.positional("PATH", options->path, "a .safetensors file or a folder that holds some");
  command.run(options, &run);
}

}  // namespace lamina::cli

#include "io/hf_folder.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "io/atomic_file.h"
#include "io/hf_config.h"
#include "io/quote.h"
#include "io/shard_index.h"
#include "io/sniff.h"
#include "io/widen.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWeights = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kPickle = "pytorch_model.bin";

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool file_exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// A file that a person may take for weights, named for what it is.
[[noreturn]] void refuse_pickle(const std::string& path) {
  const FileMap file(path);
  refuse_foreign_file(file.bytes(), path, "a safetensors file");
  const std::string format = known_format(file.bytes());
  throw Error(ErrorCode::unsupported,
              fmt::format("unsupported weights: {}: expected a safetensors file, got {}", path,
                          format.empty() ? "another format" : format),
              "save the model with safe_serialization=True");
}

std::string file_name(const SafetensorsFile& file) { return fs::path(file.path()).filename().string(); }

// Whether two tensors hold the same values, bit by bit, whatever their types.
bool equal_values(const SafetensorsTensor& a, const SafetensorsTensor& b) {
  if (a.shape != b.shape) return false;
  if (a.dtype == b.dtype)
    return a.bytes.size() == b.bytes.size() && std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin());
  constexpr size_t kChunk = 1 << 16;
  std::vector<float> x(kChunk), y(kChunk);
  const size_t width_a = a.dtype == "F32" ? 4 : 2, width_b = b.dtype == "F32" ? 4 : 2;
  const size_t count = a.bytes.size() / width_a;
  for (size_t at = 0; at < count; at += kChunk) {
    const size_t n = std::min(kChunk, count - at);
    widen(a.dtype, a.bytes.subspan(at * width_a, n * width_a), x.data());
    widen(b.dtype, b.bytes.subspan(at * width_b, n * width_b), y.data());
    if (std::memcmp(x.data(), y.data(), n * sizeof(float)) != 0) return false;
  }
  return true;
}

// One tensor as aligned fp32: where it lies in the file, or in `buffer`.
const float* as_floats(const SafetensorsTensor& tensor, std::vector<float>& buffer) {
  const std::byte* data = tensor.bytes.data();
  if (tensor.dtype == "F32" && reinterpret_cast<uintptr_t>(data) % alignof(float) == 0)
    return reinterpret_cast<const float*>(data);
  buffer.resize(tensor.bytes.size() / (tensor.dtype == "F32" ? 4 : 2));
  widen(tensor.dtype, tensor.bytes, buffer.data());
  return buffer.data();
}

// Strides of a parameter within its HuggingFace tensor.
struct Strides {
  int64_t offset, k, n;
};

Strides strides_of(const ParameterSpec& spec) {
  const int64_t last = spec.hf.shape.last();
  if (spec.shape.rank == 1) return {spec.hf.column, 0, 1};
  return spec.hf.transposed ? Strides{0, 1, last} : Strides{spec.hf.column, last, 1};
}

// HuggingFace's tensors in their order, each with the parameters that lie in it.
struct HfTensor {
  std::string name;
  Shape shape;
  std::vector<size_t> specs;
};

std::vector<HfTensor> hf_tensors(const std::vector<ParameterSpec>& specs) {
  std::vector<HfTensor> tensors;
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < specs.size(); ++i) {
    const HfSlice& hf = specs[i].hf;
    const auto [at, fresh] = places.emplace(hf.name, tensors.size());
    if (fresh) tensors.push_back({hf.name, hf.shape, {}});
    tensors[at->second].specs.push_back(i);
  }
  return tensors;
}

std::vector<int64_t> sizes_of(const Shape& shape) { return {shape.dims.begin(), shape.dims.begin() + shape.rank}; }

}  // namespace

std::string LoadReport::summary() const {
  return fmt::format("{} of {} tensors, {} left over", used, wanted, wanted - used);
}

HfWeights::HfWeights(const std::string& path, const ModelConfig& config) : path_(path) {
  open(path);
  for (const SafetensorsFile& file : files_)
    for (const SafetensorsTensor& tensor : file.tensors()) sources_.push_back({&file, &tensor});
  match(config);
}

void HfWeights::open(const std::string& path) {
  if (!is_folder(path)) {
    if (path.ends_with(".index.json")) return open_index(path);
    files_.emplace_back(path);
    return;
  }
  const fs::path folder(path);
  const bool has_index = file_exists(folder / kIndex);
  if (file_exists(folder / kWeights)) {
    files_.emplace_back((folder / kWeights).string());
    if (has_index)
      report_.warnings.push_back(fmt::format("{}: not used, {} is there", (folder / kIndex).string(), kWeights));
    return warn_of_strays(path, fmt::format("{} is there", kWeights));
  }
  if (has_index) return open_index((folder / kIndex).string());
  if (file_exists(folder / kPickle)) refuse_pickle((folder / kPickle).string());
  throw_error(ErrorCode::io, "no weights: {}: expected {} or {}, got neither", path, kWeights, kIndex);
}

void HfWeights::open_index(const std::string& index_path) {
  const ShardIndex index = read_shard_index(index_path);
  const fs::path folder = fs::path(index_path).parent_path();
  std::vector<Shard> shards;
  int64_t bytes = 0;
  for (const std::string& name : index.shards) {
    files_.emplace_back((folder / name).string());
    shards.push_back({name, {}});
    for (const SafetensorsTensor& tensor : files_.back().tensors()) {
      shards.back().tensors.push_back(tensor.name);
      bytes += static_cast<int64_t>(tensor.bytes.size());
    }
  }
  const std::vector<NameProblem> problems = compare_with_index(shards, index);
  if (!problems.empty()) throw_problems(index_path, problems);
  if (index.total_size && *index.total_size != bytes)
    report_.warnings.push_back(
        fmt::format("{}: total_size {}, the shards hold {} bytes", index_path, *index.total_size, bytes));
  warn_of_strays(folder.empty() ? "." : folder.string(), "it is not in the index");
}

void HfWeights::warn_of_strays(const std::string& folder, const std::string& why) {
  std::set<std::string> used, strays;
  for (const SafetensorsFile& file : files_) used.insert(file_name(file));
  std::error_code error;  // a folder that cannot be listed has no strays to tell of
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name == "optimizer.safetensors") continue;  // the moments in a checkpoint
    if (name.ends_with(".safetensors") && name.front() != '.' && !used.contains(name)) strays.insert(name);
  }
  for (const std::string& name : strays)
    report_.warnings.push_back(fmt::format("{}: not used, {}", (fs::path(folder) / name).string(), why));
}

void HfWeights::match(const ModelConfig& config) {
  std::vector<FileTensor> tensors;
  for (const Source& source : sources_)
    tensors.push_back({source.tensor->name, source.tensor->dtype, source.tensor->shape});
  NameMatch found = match_gpt2_names(tensors, config);
  if (!found.problems.empty()) throw_problems(path_, found.problems);
  check_tie(config, found);
  for (const WantedTensor& wanted : found.wanted)
    by_name_.emplace_back(wanted.name, sources_[static_cast<size_t>(wanted.source)]);
  warn_of_types(found);
  std::sort(by_name_.begin(), by_name_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  report_.used = report_.wanted = static_cast<int64_t>(found.wanted.size());
  report_.removed = std::move(found.removed);
  report_.ignored = std::move(found.ignored);
}

void HfWeights::check_tie(const ModelConfig& config, const NameMatch& match) {
  if (match.tied_head < 0) return;
  LAMINA_CHECK(config.tie_word_embeddings, "tied head of an untied model");
  const Source& head = sources_[static_cast<size_t>(match.tied_head)];
  const Source& table = sources_[static_cast<size_t>(match.wanted.front().source)];
  LAMINA_CHECK(match.wanted.front().name == "wte.weight", "first tensor {}", match.wanted.front().name);
  const bool equal = equal_values(*head.tensor, *table.tensor);
  head.file->forget(*head.tensor);
  table.file->forget(*table.tensor);
  if (!equal)
    throw_error(ErrorCode::invalid,
                "cannot load weights: {}: {} and {} differ, and tie_word_embeddings true (or absent) makes them one",
                path_, quote_text(table.tensor->name), quote_text(head.tensor->name));
}

// One line for all tensors that are not fp32, with the first of them.
void HfWeights::warn_of_types(const NameMatch& match) {
  std::map<std::string, std::pair<int64_t, std::string>> kinds;  // type -> number, first name
  for (const WantedTensor& wanted : match.wanted) {
    const SafetensorsTensor& tensor = *sources_[static_cast<size_t>(wanted.source)].tensor;
    if (tensor.dtype == "F32") continue;
    auto& [count, first] = kinds[tensor.dtype];
    if (count++ == 0) first = tensor.name;
  }
  std::string text;
  for (const auto& [type, kind] : kinds)
    text += fmt::format("{}{} of {} tensors {} {} ({}{})", text.empty() ? "" : "; ", kind.first, match.wanted.size(),
                        kind.first == 1 ? "is" : "are", type, quote_text(kind.second), kind.first > 1 ? ", …" : "");
  if (!text.empty()) report_.warnings.push_back(fmt::format("{}: {}: converted to fp32 exactly", path_, text));
}

void HfWeights::read(const std::vector<ParameterSpec>& specs, const ParameterSink& sink) const {
  std::vector<float> buffer;
  for (const HfTensor& tensor : hf_tensors(specs)) {
    const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), tensor.name,
                                     [](const auto& entry, const std::string& name) { return entry.first < name; });
    LAMINA_CHECK(at != by_name_.end() && at->first == tensor.name, "parameter tensor {} is not of this model",
                 tensor.name);
    const Source& source = at->second;
    LAMINA_CHECK(source.tensor->shape == sizes_of(tensor.shape), "shape of {}", tensor.name);
    const float* data = as_floats(*source.tensor, buffer);
    for (const size_t i : tensor.specs) {
      const Strides strides = strides_of(specs[i]);
      sink(i, data + strides.offset, strides.k, strides.n);
    }
    source.file->forget(*source.tensor);
  }
}

void save_hf_weights(const std::string& path, const std::vector<ParameterSpec>& specs, const ParameterSource& source) {
  const std::vector<HfTensor> tensors = hf_tensors(specs);
  std::vector<TensorEntry> entries;
  for (const HfTensor& tensor : tensors) {
    const bool head = tensor.name == "lm_head.weight";
    entries.push_back({head ? tensor.name : "transformer." + tensor.name, "F32", sizes_of(tensor.shape)});
  }
  AtomicFile file(path);
  SafetensorsWriter writer(file, entries);
  std::vector<float> buffer;
  for (const HfTensor& tensor : tensors) {
    buffer.resize(static_cast<size_t>(tensor.shape.elements()));
    for (const size_t i : tensor.specs) {
      const Strides strides = strides_of(specs[i]);
      source(i, buffer.data() + strides.offset, strides.k, strides.n);
    }
    writer.write(std::as_bytes(std::span(buffer)));
  }
  writer.finish();
  file.commit();
}

void save_hf_folder(const std::string& folder, const ModelConfig& config, const ParameterSource& source) {
  make_folder(folder);
  const fs::path base(folder);
  write_file((base / "config.json").string(), hf_config_text(config));
  write_file((base / "generation_config.json").string(), generation_config_text(config));
  save_hf_weights((base / kWeights).string(), parameter_specs(config), source);
}

}  // namespace lamina

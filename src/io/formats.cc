#include "io/formats.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/error.h"
#include "io/element_type.h"
#include "io/folder.h"
#include "io/little_endian.h"
#include "io/llmc_checkpoint.h"
#include "io/load_error.h"
#include "io/pages.h"
#include "io/quote.h"
#include "io/shard_index.h"
#include "io/sniff.h"
#include "io/torch_file.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;
using Bytes = std::span<const std::byte>;

bool begins_with(Bytes file, std::string_view text) {
  return file.size() >= text.size() && std::equal(text.begin(), text.end(), file.begin(),
                                                  [](char a, std::byte b) { return static_cast<std::byte>(a) == b; });
}

bool looks_like_zip(Bytes file) { return begins_with(file, "PK\x03\x04") || begins_with(file, "PK\x05\x06"); }

bool looks_like_pickle(Bytes file) {
  return file.size() >= 2 && file[0] == std::byte{0x80} && file[1] >= std::byte{2} && file[1] <= std::byte{5};
}

// A header's length may begin like any other format's magic, so what has all signs of this one is tried first.
bool is_safetensors(Bytes file) {
  return file.size() > 8 && file[8] == std::byte{'{'} && read_le<uint32_t>(file, 4) == 0;
}

// With an impossible length, which its reader then names.
bool looks_like_safetensors(Bytes file) { return file.size() > 8 && file[8] == std::byte{'{'}; }

// A row for each format; the first that recognises the bytes reads them.
struct Format {
  bool (*recognises)(Bytes);
  TensorContent (*parse)(Bytes, const std::string&);
};

constexpr Format kFormats[] = {{is_safetensors, parse_safetensors_content},
                               {looks_like_zip, parse_torch_zip},
                               {looks_like_pickle, parse_torch_legacy},
                               {looks_like_llmc, parse_llmc},
                               {looks_like_ckpt, parse_ckpt},
                               {looks_like_safetensors, parse_safetensors_content}};

constexpr const char* kExpected = "safetensors, a torch file, a MindSpore checkpoint or an llm.c checkpoint";

[[noreturn]] void refuse_unknown(Bytes file, const std::string& where) {
  if (file.size() < 8)
    throw_error(ErrorCode::invalid, "truncated file: {}: expected at least 8 bytes, got {}", where, file.size());
  const std::string known = known_format(file);
  throw_error(ErrorCode::invalid, "not a model file: {}: expected {}, got {}", where, kExpected,
              known.empty() ? "another format" : known);
}

constexpr const char* kSingle[] = {"model.safetensors", "pytorch_model.bin", "model.ckpt"};
constexpr const char* kIndexes[] = {"model.safetensors.index.json", "pytorch_model.bin.index.json"};

WeightFiles open_index(const std::string& path) {
  const ShardIndex index = read_shard_index(path);
  const fs::path folder = fs::path(path).parent_path();
  WeightFiles out;
  std::vector<Shard> shards;
  int64_t bytes = 0;
  for (const std::string& name : index.shards) {
    out.files.emplace_back((folder / name).string());
    shards.push_back({name, {}});
    for (const StoredTensor& tensor : out.files.back().content().tensors) {
      shards.back().tensors.push_back(tensor.name);
      bytes += tensor.bytes;
    }
  }
  const std::vector<NameProblem> problems = compare_with_index(shards, index);
  if (!problems.empty()) throw_problems(path, problems);
  if (index.total_size && *index.total_size != bytes)
    out.warnings.push_back(fmt::format("{}: total_size {}, the shards hold {} bytes", path, *index.total_size, bytes));
  return out;
}

// .bin is also the ending of token files and of much else: those that torch writes are archives and pickles.
bool is_weights_file(const fs::path& path) {
  const std::string name = path.filename().string();
  for (const char* ending : {".safetensors", ".ckpt", ".pt", ".pth", ".index.json"})
    if (name.ends_with(ending)) return true;
  if (!name.ends_with(".bin")) return false;
  std::array<std::byte, 4> begin{};
  std::ifstream(path, std::ios::binary).read(reinterpret_cast<char*>(begin.data()), begin.size());
  return looks_like_zip(begin) || looks_like_pickle(begin);
}

// What else in the folder could be taken for its weights, each with the file that was taken.
void warn_of_others(const fs::path& folder, const std::string& taken, WeightFiles& out) {
  std::vector<std::string> names{taken};
  for (const TensorFile& file : out.files) names.push_back(fs::path(file.path()).filename().string());
  for (const std::string& name : list_folder(folder.string())) {
    if (name.front() == '.' || std::find(names.begin(), names.end(), name) != names.end()) continue;
    const bool of_training = name == "optimizer.safetensors" || name == "optimizer.pt" || name == "scheduler.pt" ||
                             name == "training_args.bin" || name.starts_with("rng_state");
    if (of_training) continue;  // beside the weights on purpose
    if (is_weights_file(folder / name))
      out.warnings.push_back(fmt::format("{}: not used, {} is there", (folder / name).string(), taken));
  }
}

void check_for_mindspore(const std::vector<TensorEntry>& entries, const std::map<std::string, std::string>& metadata,
                         const std::string& path) {
  if (entries.empty())
    throw_error(ErrorCode::unsupported, "cannot write MindSpore file: {}: expected one tensor at least, got none",
                path);
  for (const TensorEntry& entry : entries) {
    const ElementType* type = find_type(&ElementType::name, entry.dtype);
    if (type == nullptr || type->mindspore.empty())
      throw_error(ErrorCode::unsupported,
                  "cannot write MindSpore file: {}: tensor {}: expected a type of MindSpore, got {}", path,
                  quote_text(entry.name), entry.dtype);
    if (metadata.contains(entry.name))
      throw_error(ErrorCode::unsupported,
                  "cannot write MindSpore file: {}: tensor {}: expected a name that is no key of the metadata, got one",
                  path, quote_text(entry.name));
  }
}

SafetensorsWriter safetensors_writer(AtomicFile& file, const std::vector<TensorEntry>& entries, bool mindspore) {
  std::map<std::string, std::string> metadata{{"format", mindspore ? "ms" : "pt"}};
  for (const TensorEntry& entry : entries) {
    if (safetensors_bits(entry.dtype) == 0 || entry.name == "__metadata__")
      throw_error(ErrorCode::unsupported, "cannot write safetensors file: {}: tensor {}: expected {}, got {}",
                  file.path(), quote_text(entry.name),
                  entry.name == "__metadata__" ? "another name" : "a type of safetensors",
                  entry.name == "__metadata__" ? "a reserved one" : entry.dtype);
  }
  check_names(entries, file.path());
  if (mindspore) check_for_mindspore(entries, metadata, file.path());
  return {file, entries, std::move(metadata)};
}

std::variant<SafetensorsWriter, TorchWriter, CkptWriter> writer_of(WeightFormat format, AtomicFile& file,
                                                                   const std::vector<TensorEntry>& entries,
                                                                   const WriteOptions& options) {
  switch (format) {
    case WeightFormat::torch: return TorchWriter(file, entries, {.groups = options.torch_groups});
    case WeightFormat::mindspore_ckpt: return CkptWriter(file, entries);
    case WeightFormat::safetensors: return safetensors_writer(file, entries, false);
    case WeightFormat::mindspore_safetensors: break;
  }
  return safetensors_writer(file, entries, true);
}

}  // namespace

TensorContent parse_tensors(std::span<const std::byte> file, const std::string& where) {
  refuse_foreign_file(file, where, kExpected);
  const auto* format = std::find_if(std::begin(kFormats), std::end(kFormats),
                                    [&](const Format& candidate) { return candidate.recognises(file); });
  if (format == std::end(kFormats)) refuse_unknown(file, where);
  return format->parse(file, where);
}

TensorFile::TensorFile(const std::string& path) : map_(path), content_(parse_tensors(map_.bytes(), path)) {}

void TensorFile::forget(const StoredTensor& tensor) const {
  for (const auto& piece : tensor.pieces) drop_pages(map_, piece);
}

WeightFiles open_weights(const std::string& path) {
  std::error_code ignored;
  WeightFiles out;
  if (!fs::is_directory(path, ignored)) {
    if (path.ends_with(".index.json")) return open_index(path);
    out.files.emplace_back(path);
    return out;
  }
  const fs::path folder(path);
  std::string taken;
  for (const char* name : {kSingle[0], kIndexes[0], kSingle[1], kIndexes[1], kSingle[2]})
    if (taken.empty() && path_exists((folder / name).string())) taken = name;
  if (taken.empty())
    throw_error(ErrorCode::io, "no weights: {}: expected {}, {}, {} or an index of shards, got none", path, kSingle[0],
                kSingle[1], kSingle[2]);
  out = open_weights((folder / taken).string());
  warn_of_others(folder, taken, out);
  return out;
}

TensorWriter::TensorWriter(WeightFormat format, AtomicFile& file, const std::vector<TensorEntry>& entries,
                           const WriteOptions& options)
    : writer_(writer_of(format, file, entries, options)) {}

void TensorWriter::write(std::span<const std::byte> bytes) {
  std::visit([&](auto& writer) { writer.write(bytes); }, writer_);
}

void TensorWriter::finish() {
  std::visit([](auto& writer) { writer.finish(); }, writer_);
}

}  // namespace lamina

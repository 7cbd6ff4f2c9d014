#include "io/checkpoint_folder.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/file_map.h"
#include "base/hash.h"
#include "io/atomic_file.h"
#include "io/folder.h"
#include "io/json.h"
#include "io/pages.h"
#include "io/quote.h"
#include "io/safetensors.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::string_view kFormat = "lamina-checkpoint";
constexpr const char* kManifest = "manifest.json";
constexpr const char* kHash = "xxh3_128";
constexpr size_t kBlock = size_t{16} << 20;

std::string join(const std::string& folder, const std::string& name) { return folder + "/" + name; }

bool ends_with_tensors(const std::string& name) { return name.ends_with(".safetensors"); }

[[noreturn]] void damaged(const std::string& where, const std::string& what) {
  throw_error(ErrorCode::invalid, "damaged checkpoint: {}: {}", where, what);
}

// A name in a manifest is one of a file in the same folder, never a way out of it.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name.front() != '.' && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos && name != kManifest;
}

bool is_hash(const Json& value) {
  if (!value.is_string()) return false;
  const std::string& text = value.get_ref<const std::string&>();
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::string hash_file(const FileMap& file) {
  Hash128 hash;
  for (std::span<const std::byte> rest = file.bytes(); !rest.empty();) {
    const std::span<const std::byte> block = rest.first(std::min(kBlock, rest.size()));
    hash.add(block);
    drop_pages(file, block);
    rest = rest.subspan(block.size());
  }
  return hash.text();
}

CheckpointFile sum_up(const std::string& path) {
  const FileMap file(path);
  CheckpointFile out{std::ssize(file.bytes()), hash_file(file), {}};
  if (!ends_with_tensors(path)) return out;
  const SafetensorsFile content(path);
  for (const SafetensorsTensor& tensor : content.tensors()) {
    out.tensors[tensor.name] = hash128(tensor.bytes);
    content.forget(tensor);
  }
  return out;
}

// Which part of a file with a wrong hash it is, for people.
std::string damaged_part(const std::string& path, const CheckpointFile& expected) {
  if (!ends_with_tensors(path)) return "its content";
  try {
    const SafetensorsFile content(path);
    for (const auto& [name, hash] : expected.tensors) {
      const SafetensorsTensor* tensor = content.find(name);
      if (tensor == nullptr || hash128(tensor->bytes) != hash) return "tensor " + quote_text(name);
    }
  } catch (const Error&) {
  }
  return "its header";
}

class ManifestReader {
 public:
  ManifestReader(const Json& root, const std::string& where) : root_(root), where_(where) {}

  Manifest read() {
    const JsonReader read(root_, "damaged checkpoint: " + where_);
    if (read["format"].as<std::string>() != kFormat) read["format"].refuse(kFormat);
    if (read[kHash].as<std::string>() != manifest_hash(root_)) damaged(where_, "its content does not match its hash");
    const int64_t version = read["version"].count();
    if (version > kCheckpointVersion)
      throw Error(ErrorCode::unsupported,
                  fmt::format("checkpoint of a newer version: {}: version, expected at most {}, got {}", where_,
                              kCheckpointVersion, version),
                  "use the version of lamina that wrote it");
    Manifest out;
    out.step = read["step"].count();
    out.run_id = read["run_id"].as<std::string>();
    out.state = read["state"].object();
    const JsonReader files = read["files"];
    for (const auto& [name, file] : files.object().items()) out.files[name] = read_file(name, files[name]);
    return out;
  }

 private:
  static std::string hash(const JsonReader& value) {
    if (!value.present() || !is_hash(value.json())) value.refuse("a hash of 32 digits");
    return value.as<std::string>();
  }

  CheckpointFile read_file(const std::string& name, const JsonReader& file) {
    if (!is_plain_name(name)) damaged(where_, "bad name of a file: " + quote_text(name));
    CheckpointFile out;
    out.bytes = file["bytes"].count();
    out.hash = hash(file[kHash]);
    if (const JsonReader tensors = file["tensors"]; tensors.present())
      for (const auto& [tensor, value] : tensors.object().items()) out.tensors[tensor] = hash(tensors[tensor]);
    return out;
  }

  const Json& root_;
  const std::string& where_;
};

[[noreturn]] void fail(const char* what, const std::string& path, int reason) {
  throw_error(ErrorCode::io, "cannot {}: {}: {}", what, path, std::strerror(reason));
}

std::string parent_of(const std::string& path) { return fs::path(path).parent_path().string(); }

void move_over(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) == 0) return;
  const int reason = errno;
  if (reason != ENOTEMPTY && reason != EEXIST) fail("rename folder", to, reason);
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return;
  // A file system without exchange: the old one steps aside, and goes once the new one has its place.
  const std::string aside = temporary_name(to);
  if (std::rename(to.c_str(), aside.c_str()) != 0) fail("rename folder", to, errno);
  if (std::rename(from.c_str(), to.c_str()) != 0) {
    const int refused = errno;
    std::rename(aside.c_str(), to.c_str());
    fail("rename folder", to, refused);
  }
  std::error_code ignored;
  fs::remove_all(aside, ignored);
}

}  // namespace

std::string manifest_hash(const Json& content) {
  Json rest = content;
  rest.erase(kHash);
  const std::string text = rest.dump(-1, ' ', false, Json::error_handler_t::replace);
  return hash128(std::span(text.data(), text.size()));
}

std::string manifest_text(const Manifest& manifest) {
  Json files = Json::object();
  for (const auto& [name, file] : manifest.files) {
    files[name] = {{"bytes", file.bytes}, {kHash, file.hash}};
    if (!file.tensors.empty()) files[name]["tensors"] = file.tensors;
  }
  Json out = {{"format", kFormat},         {"version", kCheckpointVersion}, {"step", manifest.step},
              {"run_id", manifest.run_id}, {"files", std::move(files)},     {"state", manifest.state}};
  out[kHash] = manifest_hash(out);
  return out.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";  // a path need not be UTF-8
}

Manifest parse_manifest(std::string_view text, const std::string& where) {
  const Json root = parse_json(text, where);
  return ManifestReader(root, where).read();
}

Manifest read_manifest(const std::string& checkpoint) {
  const std::string path = join(checkpoint, kManifest);
  if (!path_exists(path)) damaged(path, "the file is missing");
  return parse_manifest(read_text_file(path, "the manifest of a checkpoint"), path);
}

void check_files(const std::string& checkpoint, const Manifest& manifest) {
  for (const auto& [name, file] : manifest.files) {
    const std::string path = join(checkpoint, name);
    std::error_code ignored;
    if (!path_exists(path) || !fs::is_regular_file(path, ignored)) damaged(path, "the file is missing");
    const auto bytes = static_cast<int64_t>(fs::file_size(path, ignored));
    if (bytes != file.bytes) damaged(path, fmt::format("expected {} bytes, got {}", file.bytes, bytes));
  }
  for (const auto& [name, file] : manifest.files) {
    const std::string path = join(checkpoint, name);
    if (hash_file(FileMap(path)) != file.hash) damaged(path, damaged_part(path, file) + " does not match its hash");
  }
}

void require_free_place(const std::string& checkpoint, const std::string& run_id) {
  if (!path_exists(checkpoint)) return;
  std::string other = run_id;
  try {
    other = read_manifest(checkpoint).run_id;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid) throw;
  }
  if (other != run_id)
    throw Error(ErrorCode::invalid,
                fmt::format("checkpoint of another run in the way: {}: expected run {}, got {}", checkpoint, run_id,
                            quote_text(other)),
                "move it to a folder of its own");
}

CheckpointWriter::CheckpointWriter(const std::string& folder, int64_t step) : folder_(folder), step_(step) {
  target_ = join(folder, fmt::format("step-{}", step));
  temporary_ = temporary_name(target_);
  std::error_code error;
  if (!fs::create_directory(temporary_, error) || error)
    fail("create folder", temporary_, error ? error.value() : EEXIST);
}

CheckpointWriter::~CheckpointWriter() {
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
}

void CheckpointWriter::commit(const std::string& run_id, const Json& state) {
  require_free_place(target_, run_id);
  Manifest manifest{.step = step_, .run_id = run_id, .files = {}, .state = state};
  for (const std::string& name : list_folder(temporary_)) manifest.files[name] = sum_up(join(temporary_, name));
  write_file(join(temporary_, kManifest), manifest_text(manifest));
  sync_folder(temporary_);
  move_over(temporary_, target_);
  sync_folder(folder_);
}

std::vector<CheckpointPlace> list_checkpoints(const std::string& folder) {
  std::vector<CheckpointPlace> out;
  for (const std::string& name : list_folder(folder)) {
    CheckpointPlace place{.path = join(folder, name)};
    const auto [last, bad] =
        std::from_chars(name.data() + std::min<size_t>(5, name.size()), name.data() + name.size(), place.step);
    if (bad == std::errc() && place.step > 0 && name == fmt::format("step-{}", place.step) &&
        last == name.data() + name.size())
      out.push_back(std::move(place));
  }
  std::sort(out.begin(), out.end(), [](const CheckpointPlace& a, const CheckpointPlace& b) { return a.step > b.step; });
  return out;
}

void remove_checkpoint(const std::string& path) {
  const std::string parent = parent_of(path);
  const std::string hidden = temporary_name(path);
  if (std::rename(path.c_str(), hidden.c_str()) != 0) fail("remove folder", path, errno);
  sync_folder(parent);
  std::error_code error;
  fs::remove_all(hidden, error);
  if (error) fail("remove folder", hidden, error.value());
}

int64_t remove_temporaries(const std::string& folder) {
  int64_t removed = 0;
  for (const std::string& name : list_folder(folder)) {
    if (!is_temporary(name)) continue;
    std::error_code error;
    fs::remove_all(join(folder, name), error);
    if (error) fail("remove what a killed process left", join(folder, name), error.value());
    ++removed;
  }
  return removed;
}

}  // namespace lamina

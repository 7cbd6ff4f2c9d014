#include "io/torch_file.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "base/error.h"
#include "io/little_endian.h"
#include "io/quote.h"
#include "io/torch_pickle.h"
#include "io/zip.h"

namespace lamina {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::string_view kPickle = "/data.pkl";
// 0x1950a86a20f9469cfc6c, as a pickle holds it.
constexpr std::string_view kMagic = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw_error(ErrorCode::invalid, "bad torch file: {}: {}", where, what);
}

// The folder in the archive that everything lies in.
std::string_view folder_of(const std::vector<ZipEntry>& entries, const std::string& where) {
  std::string_view folder;
  for (const ZipEntry& entry : entries) {
    if (!entry.name.ends_with(kPickle)) continue;
    const std::string_view front = entry.name.substr(0, entry.name.size() - kPickle.size() + 1);
    if (front.find('/') != front.size() - 1) continue;
    if (!folder.empty())
      fail(where, fmt::format("expected one model, got two: {} and {}", quote_text(folder), quote_text(front)));
    folder = front;
  }
  if (folder.empty()) fail(where, "expected a zip archive with NAME/data.pkl, got one without");
  for (const ZipEntry& entry : entries)
    if (!entry.name.starts_with(folder))
      fail(where, fmt::format("expected all entries in {}, got {}", quote_text(folder), quote_text(entry.name)));
  return folder;
}

// The storages of an archive by their keys.
class Archive {
 public:
  Archive(Bytes file, const std::string& where) : where_(where), entries_(read_zip(file, where)) {
    folder_ = folder_of(entries_, where);
    std::sort(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    for (const ZipEntry& entry : entries_) {
      const std::string_view name = entry.name.substr(folder_.size());
      if (name == "constants.pkl" || name.starts_with("code/"))
        fail(where, "expected tensors of torch.save, got a TorchScript program");
      if (name == "byteorder" && as_text(entry.bytes) != "little")
        fail(where, fmt::format("byteorder: expected little, got {}", quote_text(as_text(entry.bytes), 20)));
    }
  }

  const ZipEntry* find(const std::string& name) const {
    const std::string whole = std::string(folder_) + name;
    const auto at = std::lower_bound(entries_.begin(), entries_.end(), whole,
                                     [](const ZipEntry& entry, const std::string& key) { return entry.name < key; });
    return at != entries_.end() && at->name == whole ? &*at : nullptr;
  }

  Bytes storage(const TorchStorage& storage) const {
    const ZipEntry* entry = find("data/" + std::string(storage.key));
    if (entry == nullptr) fail(where_, fmt::format("storage {}: expected it, got none", quote_text(storage.key, 40)));
    if (std::ssize(entry->bytes) != storage.bytes())
      fail(where_, fmt::format("storage {}: expected {} bytes, got {}", quote_text(storage.key, 40), storage.bytes(),
                               entry->bytes.size()));
    return entry->bytes;
  }

  // A sum of 0 stands for none: torch can leave them out.
  std::vector<StoredSum> sums() const {
    std::vector<StoredSum> out;
    for (const ZipEntry& entry : entries_)
      if (entry.crc32 != 0) out.push_back({quote_text(entry.name), entry.bytes, entry.crc32});
    return out;
  }

 private:
  const std::string& where_;
  std::vector<ZipEntry> entries_;
  std::string_view folder_;
};

// ---- the form before 1.6

// The storages behind the pickles: their places, in the order of the keys.
class LegacyStorages {
 public:
  LegacyStorages(const Pickle& data, const Pickle& keys, Bytes rest, const std::string& where) : where_(where) {
    std::map<std::string_view, TorchStorage> stated;
    for (size_t i = 0; i < data.nodes.size(); ++i) {
      if (data.nodes[i].kind != PickleKind::persistent) continue;
      const TorchStorage storage = torch_storage(data, static_cast<PickleId>(i), where);
      const auto [at, fresh] = stated.emplace(storage.key, storage);
      if (at->second.bytes() != storage.bytes() || at->second.type != storage.type)
        fail(where, fmt::format("storage {}: expected one type and size, got two", quote_text(storage.key, 40)));
    }
    if (keys[keys.root].kind != PickleKind::list) fail(where, "expected a list of storages' keys, got another value");
    for (const PickleId id : keys[keys.root].items) {
      const auto at = stated.find(keys[id].text);
      if (keys[id].kind != PickleKind::text || at == stated.end())
        fail(where,
             fmt::format("storage {}: expected one that a tensor uses, got another", quote_text(keys[id].text, 40)));
      place(at->second, rest);
    }
    if (!rest.empty()) fail(where, fmt::format("expected nothing behind the last storage, got {} bytes", rest.size()));
  }

  Bytes find(const TorchStorage& storage) const {
    const auto at = places_.find(storage.key);
    if (at == places_.end())
      fail(where_, fmt::format("storage {}: expected it, got none", quote_text(storage.key, 40)));
    return at->second;
  }

 private:
  void place(const TorchStorage& storage, Bytes& rest) {
    const std::string what = fmt::format("storage {}", quote_text(storage.key, 40));
    if (rest.size() < 8) fail(where_, fmt::format("truncated: {}: expected 8 bytes, got {}", what, rest.size()));
    const auto count = read_le<int64_t>(rest, 0);
    rest = rest.subspan(8);
    if (count != storage.count)
      fail(where_, fmt::format("{}: expected {} elements, got {}", what, storage.count, count));
    if (storage.bytes() > std::ssize(rest))
      fail(where_, fmt::format("truncated: {}: expected {} bytes, got {}", what, storage.bytes(), rest.size()));
    if (!places_.emplace(storage.key, rest.first(static_cast<size_t>(storage.bytes()))).second)
      fail(where_, fmt::format("duplicate {}", what));
    rest = rest.subspan(static_cast<size_t>(storage.bytes()));
  }

  const std::string& where_;
  std::map<std::string_view, Bytes> places_;
};

// The next pickle of a row of them.
Pickle next_pickle(Bytes& rest, const std::string& where) {
  Pickle out = read_pickle(rest, where, torch_callables());
  rest = rest.subspan(out.size);
  return out;
}

// The system that wrote the file: its numbers have to be little-endian.
void check_system(const Pickle& system, const std::string& where) {
  const PickleNode& root = system[system.root];
  if (root.kind != PickleKind::dict) fail(where, "expected a dictionary about the system, got another value");
  for (size_t i = 0; i + 1 < root.items.size(); i += 2)
    if (system[root.items[i]].text == "little_endian" && system[root.items[i + 1]].integer != 1)
      fail(where, "little_endian: expected True, got False");
}

}  // namespace

TensorContent parse_torch_zip(std::span<const std::byte> file, const std::string& where) {
  const Archive archive(file, where);
  TensorContent out{.format = "torch-zip", .tensors = {}, .values = {}, .metadata = {}, .sums = archive.sums()};
  const Bytes data = archive.find("data.pkl")->bytes;
  const Pickle pickle = read_pickle(data, where, torch_callables());
  if (pickle.size != data.size())
    fail(where, fmt::format("data.pkl: expected one pickle of {} bytes, got {}", pickle.size, data.size()));
  read_torch_tree(
      pickle, [&](const TorchStorage& storage) { return archive.storage(storage); }, where, out);
  check_names(out, where);
  return out;
}

TensorContent parse_torch_legacy(std::span<const std::byte> file, const std::string& where) {
  Bytes rest = file;
  const Pickle magic = next_pickle(rest, where);
  if (magic[magic.root].kind != PickleKind::big_integer || magic[magic.root].text != kMagic)
    fail(where, "expected the magic number of torch, got another pickle");
  const Pickle version = next_pickle(rest, where);
  if (version[version.root].kind != PickleKind::integer || version[version.root].integer != 1001)
    fail(where, "protocol version: expected 1001, got another value");
  check_system(next_pickle(rest, where), where);
  const Pickle data = next_pickle(rest, where), keys = next_pickle(rest, where);
  const LegacyStorages storages(data, keys, rest, where);
  TensorContent out{.format = "torch-legacy", .tensors = {}, .values = {}, .metadata = {}, .sums = {}};
  read_torch_tree(
      data, [&](const TorchStorage& storage) { return storages.find(storage); }, where, out);
  check_names(out, where);
  return out;
}

}  // namespace lamina

// Small files of other programs, made by hand, right or wrong: pickles, zip archives and legacy files of torch, records
// of MindSpore.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/little_endian.h"
#include "io/tensor_content.h"

namespace lamina::test {

inline std::string le32(uint32_t value) {
  std::string out;
  append_le<uint32_t>(out, value);
  return out;
}

// ---- pickles

inline std::string pickled_text(std::string_view text) {
  return "X" + le32(static_cast<uint32_t>(text.size())) + std::string(text);
}

inline std::string pickled_number(int64_t value) { return "J" + le32(static_cast<uint32_t>(value)); }

inline std::string pickled_tuple(const std::vector<int64_t>& values) {
  std::string out = "(";
  for (const int64_t value : values) out += pickled_number(value);
  return out + "t";
}

// A window on a storage, as torch pickles it.
struct Window {
  std::string storage = "FloatStorage";
  std::string key = "0";
  int64_t count = 4;  // of the storage
  int64_t offset = 0;
  std::vector<int64_t> shape = {2, 2};
  std::vector<int64_t> strides = {2, 1};
};

inline std::string pickled_tensor(const Window& w, bool legacy = false) {
  return "ctorch._utils\n_rebuild_tensor_v2\n((" + pickled_text("storage") + "ctorch\n" + w.storage + "\n" +
         pickled_text(w.key) + pickled_text("cpu") + pickled_number(w.count) + (legacy ? "N" : "") + "tQ" +
         pickled_number(w.offset) + pickled_tuple(w.shape) + pickled_tuple(w.strides) +
         "\x89"
         "ccollections\nOrderedDict\n)RtR";
}

// {name: value, …}
inline std::string pickled_dict(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string out = "}(";
  for (const auto& [name, value] : items) out += pickled_text(name) + value;
  return out + "u";
}

inline std::string pickle(const std::string& value) { return "\x80\x02" + value + "."; }

// ---- archives

using Entries = std::vector<std::pair<std::string, std::string>>;

inline std::string zip_bytes(const Entries& entries) {
  std::string out, directory;
  for (const auto& [name, content] : entries) {
    std::string sizes = le32(crc32(std::as_bytes(std::span(content))));
    for (int i = 0; i < 2; ++i) append_le<uint32_t>(sizes, static_cast<uint32_t>(content.size()));
    append_le<uint32_t>(sizes, static_cast<uint32_t>(name.size()));  // of the name, then of the extra field: none
    const std::string common = std::string("\x14\0\0\0\0\0\0\0\x21\0", 10) + sizes;
    directory += "PK\x01\x02" + std::string("\x14\0", 2) + common + std::string(10, '\0') +
                 le32(static_cast<uint32_t>(out.size())) + name;
    out += "PK\x03\x04" + common + name + content;
  }
  std::string end = "PK\x05\x06" + le32(0);
  for (int i = 0; i < 2; ++i) append_le<uint16_t>(end, static_cast<uint16_t>(entries.size()));
  end += le32(static_cast<uint32_t>(directory.size())) + le32(static_cast<uint32_t>(out.size())) + std::string(2, '\0');
  return out + directory + end;
}

// torch's archive with this pickle and storages "0", "1", …
inline std::string torch_zip(const std::string& data_pkl, const std::vector<std::string>& storages) {
  Entries entries{{"a/data.pkl", data_pkl}, {"a/byteorder", "little"}};
  for (size_t i = 0; i < storages.size(); ++i) entries.emplace_back("a/data/" + std::to_string(i), storages[i]);
  entries.emplace_back("a/version", "3\n");
  return zip_bytes(entries);
}

// The form before 1.6. storages: key, number of elements, bytes.
struct LegacyStorage {
  std::string key;
  int64_t count;
  std::string bytes;
};

inline std::string torch_legacy(const std::string& data_pkl, const std::vector<LegacyStorage>& storages) {
  std::string keys = "](";
  for (const LegacyStorage& storage : storages) keys += pickled_text(storage.key);
  std::string out = pickle("\x8A\x0A\x6C\xFC\x9C\x46\xF9\x20\x6A\xA8\x50\x19") + pickle(pickled_number(1001)) +
                    pickle(pickled_dict({{"little_endian", "\x88"}})) + data_pkl + pickle(keys + "e");
  for (const LegacyStorage& storage : storages) {
    append_le<int64_t>(out, storage.count);
    out += storage.bytes;
  }
  return out;
}

// ---- MindSpore

inline std::string proto(int key, std::string_view bytes) {
  std::string out(1, static_cast<char>(key));
  size_t size = bytes.size();
  for (; size > 127; size >>= 7) out.push_back(static_cast<char>((size & 127) | 128));
  out.push_back(static_cast<char>(size));
  return out + std::string(bytes);
}

inline std::string ckpt_record(std::string_view name, std::string_view type, const std::vector<int>& dims,
                               std::string_view content) {
  std::string tensor;
  for (const int size : dims) tensor += {'\x08', static_cast<char>(size)};  // below 128
  tensor += proto(0x12, type) + proto(0x1A, content);
  return proto(0x0A, proto(0x0A, name) + proto(0x12, tensor));
}

inline std::string ckpt_trailer(const std::string& body) {
  const uint32_t sum = crc32(std::as_bytes(std::span(body)));
  std::string out = "crc_num" + std::string(6, '\0');
  for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<char>(sum >> shift & 0xFF));
  return out;
}

// ---- llm.c

// A model of these sizes whose bytes are all `fill`.
inline std::string llmc_bytes(int version, int positions, int vocabulary, int layers, int heads, int channels,
                              int padded, char fill = 1) {
  std::string out;
  for (const int value : {20240326, version, positions, vocabulary, layers, heads, channels, padded})
    append_le<int32_t>(out, value);
  out.resize(1024);
  const int count = (padded + positions + 2) * channels + layers * (12 * channels * channels + 13 * channels);
  return out + std::string(static_cast<size_t>(count * (version == 3 ? 4 : 2)), fill);
}

}  // namespace lamina::test

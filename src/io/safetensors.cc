#include "io/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"
#include "io/json.h"
#include "io/little_endian.h"
#include "io/pages.h"
#include "io/quote.h"
#include "io/sniff.h"

namespace lamina {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMetadata = "__metadata__";

struct TypeRow {
  std::string_view name;
  int64_t bits;
};

constexpr TypeRow kTypes[] = {{"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
                              {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
                              {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
                              {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
                              {"I64", 64},        {"U64", 64}};

// One entry of the header as it stands there.
struct RawEntry {
  std::string name = {};
  std::string dtype = {};
  std::vector<int64_t> shape = {};
  std::vector<int64_t> offsets = {};
  bool has_dtype = false, has_shape = false, has_offsets = false;
};

// Receives the events of the header's JSON. A machine of few states, so that no tree is built of what a stranger wrote:
//   top -> root -> (entry -> (dtype | shape | offsets)) | metadata
class HeaderReader {
 public:
  explicit HeaderReader(const std::string& where) : where_(where) {}

  bool null() {
    if (state_ == State::metadata_value) {  // written by some tools for "none"
      state_ = State::root;
      return true;
    }
    unexpected("null");
  }
  bool boolean(bool value) { unexpected(value ? "true" : "false"); }
  bool number_integer(Json::number_integer_t value) { unexpected(std::to_string(value)); }
  bool number_float(Json::number_float_t, const std::string& text) { unexpected(text.substr(0, 40)); }
  bool binary(Json::binary_t&) { unexpected("binary"); }

  bool number_unsigned(Json::number_unsigned_t value) {
    if (state_ != State::shape && state_ != State::offsets) unexpected(std::to_string(value));
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) unexpected(std::to_string(value));
    list().push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(std::string& value) {
    if (state_ == State::dtype) {
      entry().dtype = std::move(value);
      state_ = State::entry;
    } else if (state_ == State::metadata_text) {
      metadata_[key_] = std::move(value);
      state_ = State::metadata;
    } else {
      unexpected(quote_text(value, 40));
    }
    return true;
  }

  bool start_object(size_t) {
    if (state_ == State::top)
      state_ = State::root;
    else if (state_ == State::metadata_value)
      state_ = State::metadata;
    else if (state_ == State::entry_value)
      state_ = State::entry;
    else
      unexpected("an object");
    return true;
  }

  bool end_object() {
    if (state_ == State::entry) check_entry();
    state_ = State::root;
    return true;
  }

  bool start_array(size_t) {
    if (state_ == State::shape_value)
      state_ = State::shape;
    else if (state_ == State::offsets_value)
      state_ = State::offsets;
    else
      unexpected("a list");
    return true;
  }

  bool end_array() {
    state_ = State::entry;
    return true;
  }

  bool key(std::string& name) {
    if (state_ == State::root) return root_key(name);
    if (state_ == State::metadata) {
      if (metadata_.contains(name)) duplicate(fmt::format("{} of {}", quote_text(name), kMetadata));
      key_ = std::move(name);
      state_ = State::metadata_text;
      return true;
    }
    return entry_key(name);
  }

  bool parse_error(size_t byte, const std::string&, const Json::exception& error) {
    throw_error(ErrorCode::invalid, "bad safetensors header: {}: byte {}: {}", where_, 8 + byte,
                json_reason(error.what()));
  }

  std::vector<RawEntry> take_entries() { return std::move(entries_); }
  std::map<std::string, std::string> take_metadata() { return std::move(metadata_); }

 private:
  enum class State {
    top,             // before the header's own object
    root,            // between its entries
    metadata_value,  // behind the key __metadata__
    metadata,
    metadata_text,  // behind a key of the metadata
    entry_value,    // behind a tensor's name
    entry,
    dtype,
    shape_value,  // behind "shape", before its list
    shape,
    offsets_value,
    offsets
  };

  RawEntry& entry() { return entries_.back(); }
  std::vector<int64_t>& list() { return state_ == State::shape ? entry().shape : entry().offsets; }

  bool root_key(std::string& name) {
    if (name == kMetadata) {
      if (has_metadata_) duplicate(std::string(kMetadata));
      has_metadata_ = true;
      state_ = State::metadata_value;
      return true;
    }
    if (name.find('\0') != std::string::npos)
      throw_error(ErrorCode::invalid, "bad safetensors header: {}: tensor name with a zero byte: {}", where_,
                  quote_text(name));
    entries_.push_back({.name = std::move(name)});
    state_ = State::entry_value;
    return true;
  }

  bool entry_key(const std::string& name) {
    RawEntry& e = entry();
    bool* seen = name == "dtype" ? &e.has_dtype : name == "shape" ? &e.has_shape : &e.has_offsets;
    if (name != "dtype" && name != "shape" && name != "data_offsets")
      throw_error(ErrorCode::invalid,
                  "bad safetensors header: {}: tensor {}: expected dtype, shape and data_offsets, got {}", where_,
                  quote_text(e.name), quote_text(name));
    if (*seen) duplicate(fmt::format("{} of tensor {}", quote_text(name), quote_text(e.name)));
    *seen = true;
    state_ = name == "dtype" ? State::dtype : name == "shape" ? State::shape_value : State::offsets_value;
    return true;
  }

  void check_entry() {
    const RawEntry& e = entry();
    for (const auto& [has, key] :
         {std::pair{e.has_dtype, "dtype"}, {e.has_shape, "shape"}, {e.has_offsets, "data_offsets"}})
      if (!has)
        throw_error(ErrorCode::invalid,
                    "bad safetensors header: {}: tensor {}: {} is missing: expected a value, got nothing", where_,
                    quote_text(e.name), key);
    if (e.offsets.size() != 2)
      throw_error(ErrorCode::invalid, "bad safetensors header: {}: tensor {}: data_offsets, expected 2 numbers, got {}",
                  where_, quote_text(e.name), e.offsets.size());
  }

  [[noreturn]] void duplicate(const std::string& what) {
    throw_error(ErrorCode::invalid, "bad safetensors header: {}: duplicate key {}", where_, what);
  }

  [[noreturn]] void unexpected(const std::string& got) {
    const char* expected = "";
    switch (state_) {
      case State::top: expected = "an object"; break;
      case State::metadata_value: expected = "an object as __metadata__"; break;
      case State::metadata_text: expected = "a text"; break;
      case State::entry_value: expected = "an object"; break;
      case State::dtype: expected = "a text as dtype"; break;
      case State::shape_value: expected = "a list as shape"; break;
      case State::offsets_value: expected = "a list as data_offsets"; break;
      case State::shape: expected = "whole numbers from 0 on as shape"; break;
      case State::offsets: expected = "whole numbers from 0 on as data_offsets"; break;
      case State::root:
      case State::metadata:
      case State::entry: expected = "a key"; break;
    }
    const std::string place = state_ == State::metadata_text ? fmt::format("metadata {}", quote_text(key_))
                              : entries_.empty()             ? std::string("header")
                                                             : fmt::format("tensor {}", quote_text(entry().name));
    throw_error(ErrorCode::invalid, "bad safetensors header: {}: {}: expected {}, got {}", where_, place, expected,
                got);
  }

  const std::string& where_;
  State state_ = State::top;
  std::string key_;  // of the metadata
  bool has_metadata_ = false;
  std::vector<RawEntry> entries_;
  std::map<std::string, std::string> metadata_;
};

// Π shape × bits ÷ 8, or nothing where it does not fit or is no whole number of bytes.
std::optional<int64_t> byte_count(const std::vector<int64_t>& shape, int64_t bits) {
  const std::optional<int64_t> all = packed_bytes(shape, bits);
  if (!all || *all % 8 != 0) return std::nullopt;
  return *all / 8;
}

// The range of one tensor against its shape and the data that is there.
void check_range(const RawEntry& e, int64_t data_bytes, const std::string& where) {
  const std::string what = fmt::format("bad safetensors file: {}: tensor {}", where, quote_text(e.name));
  const int64_t bits = safetensors_bits(e.dtype);
  if (bits == 0)
    throw_error(ErrorCode::invalid, "{}: dtype, expected one of safetensors', got {}", what, quote_text(e.dtype, 40));
  const int64_t begin = e.offsets[0], end = e.offsets[1];
  if (begin > end)
    throw_error(ErrorCode::invalid, "{}: its range, expected an end from {} on, got {}", what, begin, end);
  const std::optional<int64_t> bytes = byte_count(e.shape, bits);
  if (!bytes)
    throw_error(ErrorCode::invalid, "{}: expected a possible number of bytes, got {} {}", what, e.dtype,
                shape_text(e.shape));
  if (end - begin != *bytes)
    throw_error(ErrorCode::invalid, "{}: its range [{}, {}), expected {} bytes for {} {}, got {}", what, begin, end,
                *bytes, e.dtype, shape_text(e.shape), end - begin);
  if (end > data_bytes)
    throw_error(ErrorCode::invalid, "{}: its range [{}, {}) ends beyond the data, expected at least {} bytes, got {}",
                what, begin, end, end, data_bytes);
}

// No two tensors share a byte, and no byte belongs to none.
void check_tiling(const std::vector<RawEntry>& entries, int64_t data_bytes, const std::string& where) {
  int64_t at = 0;
  for (const RawEntry& e : entries) {
    if (e.offsets[0] != at)
      throw_error(ErrorCode::invalid,
                  "bad safetensors file: {}: tensor {}: its range {}, expected to begin at {}, got [{}, {})", where,
                  quote_text(e.name), e.offsets[0] < at ? "overlaps another tensor's" : "leaves a gap", at,
                  e.offsets[0], e.offsets[1]);
    at = e.offsets[1];
  }
  if (at != data_bytes)
    throw_error(ErrorCode::invalid,
                "bad safetensors file: {}: expected {} bytes of data, where the tensors end, got {}", where, at,
                data_bytes);
}

void check_names(const std::vector<RawEntry>& entries, const std::string& where) {
  std::vector<std::string_view> names;
  names.reserve(entries.size());
  for (const RawEntry& e : entries) names.push_back(e.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end())
    throw_error(ErrorCode::invalid, "bad safetensors header: {}: duplicate tensor {}", where, quote_text(*twice));
}

// The length of the header, checked against the file.
int64_t header_length(std::span<const std::byte> file, const std::string& where, const SafetensorsLimits& limits) {
  refuse_foreign_file(file, where, "a safetensors file");
  const std::string other = known_format(file);
  const std::string hint = other.empty() ? "" : "the file looks like " + other;
  if (file.size() < 8)
    throw Error(ErrorCode::invalid,
                fmt::format("truncated safetensors file: {}: expected at least 8 bytes, got {}", where, file.size()),
                hint);
  const auto length = read_le<uint64_t>(file, 0);
  if (length > file.size() - 8)
    throw Error(ErrorCode::invalid,
                fmt::format("bad safetensors file: {}: expected the {} bytes of a header, got a file of {}", where,
                            length, file.size()),
                hint);
  if (length > static_cast<uint64_t>(limits.header_bytes))
    throw Error(ErrorCode::invalid,
                fmt::format("bad safetensors file: {}: header, expected at most {} bytes, got {}", where,
                            limits.header_bytes, length),
                hint);
  if (length == 0 || std::to_integer<char>(file[8]) != '{')
    throw Error(ErrorCode::invalid,
                fmt::format("bad safetensors header: {}: byte 8: expected {{, got another byte", where), hint);
  return static_cast<int64_t>(length);
}

std::string header_text(const std::vector<TensorEntry>& entries, std::map<std::string, std::string> metadata) {
  metadata.try_emplace("format", "pt");
  std::string text = "{\"__metadata__\":" + Json(metadata).dump();
  int64_t at = 0;
  for (const TensorEntry& entry : entries) {
    const int64_t end = at + safetensors_bytes(entry);
    text += fmt::format(",{}:{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}", Json(entry.name).dump(),
                        entry.dtype, Json(entry.shape).dump(), at, end);
    at = end;
  }
  text += "}";
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

}  // namespace

int64_t safetensors_bits(std::string_view dtype) {
  for (const TypeRow& row : kTypes)
    if (row.name == dtype) return row.bits;
  return 0;
}

Safetensors parse_safetensors(std::span<const std::byte> file, const std::string& where,
                              const SafetensorsLimits& limits) {
  const int64_t length = header_length(file, where, limits);
  const char* text = reinterpret_cast<const char*>(file.data()) + 8;
  HeaderReader reader(where);
  Json::sax_parse(text, text + length, &reader);
  std::vector<RawEntry> entries = reader.take_entries();
  check_names(entries, where);

  const int64_t data_bytes = static_cast<int64_t>(file.size()) - 8 - length;
  for (const RawEntry& e : entries) check_range(e, data_bytes, where);
  std::sort(entries.begin(), entries.end(), [](const RawEntry& a, const RawEntry& b) {
    return std::tie(a.offsets, a.name) < std::tie(b.offsets, b.name);
  });
  check_tiling(entries, data_bytes, where);

  Safetensors out{.tensors = {}, .metadata = reader.take_metadata(), .data_begin = 8 + length};
  out.tensors.reserve(entries.size());
  for (RawEntry& e : entries)
    out.tensors.push_back({std::move(e.name), std::move(e.dtype), std::move(e.shape),
                           file.subspan(static_cast<size_t>(out.data_begin + e.offsets[0]),
                                        static_cast<size_t>(e.offsets[1] - e.offsets[0]))});
  return out;
}

TensorContent parse_safetensors_content(std::span<const std::byte> file, const std::string& where) {
  Safetensors content = parse_safetensors(file, where);
  TensorContent out{
      .format = "safetensors", .tensors = {}, .values = {}, .metadata = std::move(content.metadata), .sums = {}};
  out.tensors.reserve(content.tensors.size());
  for (SafetensorsTensor& tensor : content.tensors)
    out.tensors.push_back({std::move(tensor.name),
                           std::move(tensor.dtype),
                           std::move(tensor.shape),
                           {},
                           {tensor.bytes},
                           std::ssize(tensor.bytes)});
  return out;
}

SafetensorsFile::SafetensorsFile(const std::string& path, const SafetensorsLimits& limits)
    : map_(path), content_(parse_safetensors(map_.bytes(), path, limits)) {
  for (size_t i = 0; i < content_.tensors.size(); ++i) by_name_.push_back(i);
  std::sort(by_name_.begin(), by_name_.end(),
            [this](size_t a, size_t b) { return content_.tensors[a].name < content_.tensors[b].name; });
}

const SafetensorsTensor* SafetensorsFile::find(std::string_view name) const {
  const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                   [this](size_t i, std::string_view n) { return content_.tensors[i].name < n; });
  if (at == by_name_.end() || content_.tensors[*at].name != name) return nullptr;
  return &content_.tensors[*at];
}

void SafetensorsFile::forget(const SafetensorsTensor& tensor) const { drop_pages(map_, tensor.bytes); }

int64_t safetensors_bytes(const TensorEntry& entry) {
  const int64_t bits = safetensors_bits(entry.dtype);
  LAMINA_CHECK(bits > 0, "dtype {}", entry.dtype);
  const std::optional<int64_t> bytes = byte_count(entry.shape, bits);
  LAMINA_CHECK(bytes.has_value(), "tensor {} of shape {}", entry.name, shape_text(entry.shape));
  return *bytes;
}

SafetensorsWriter::SafetensorsWriter(AtomicFile& file, const std::vector<TensorEntry>& entries,
                                     std::map<std::string, std::string> metadata)
    : file_(file) {
  std::vector<std::string_view> names;
  for (const TensorEntry& entry : entries) {
    missing_ += safetensors_bytes(entry);
    names.push_back(entry.name);
  }
  std::sort(names.begin(), names.end());
  LAMINA_CHECK(std::adjacent_find(names.begin(), names.end()) == names.end(), "tensor name twice");
  const std::string text = header_text(entries, std::move(metadata));
  const uint64_t length = text.size();
  std::string front(8, '\0');
  for (size_t i = 0; i < 8; ++i) front[i] = static_cast<char>(length >> (8 * i) & 0xFF);
  file_.write(front + text);
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  missing_ -= static_cast<int64_t>(bytes.size());
  LAMINA_CHECK(missing_ >= 0, "{} bytes more than announced for {}", -missing_, file_.path());
  file_.write(bytes);
}

void SafetensorsWriter::finish() {
  LAMINA_CHECK(missing_ == 0, "{} bytes announced for {} are missing", missing_, file_.path());
}

}  // namespace lamina

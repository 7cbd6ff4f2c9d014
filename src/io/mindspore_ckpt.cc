#include "io/mindspore_ckpt.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "io/element_type.h"
#include "io/little_endian.h"
#include "io/quote.h"
#include "io/utf8.h"

namespace lamina {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::string_view kTrailer = "crc_num";
constexpr size_t kTrailerSize = 17;
constexpr std::byte kRecord{0x0A};

// A varint of at most 64 bits; takes it off `rest`. Nothing where it is cut or longer.
std::optional<uint64_t> take_varint(Bytes& rest) {
  uint64_t value = 0;
  for (size_t i = 0; i < rest.size() && i < 10; ++i) {
    const auto byte = std::to_integer<uint64_t>(rest[i]);
    if (i == 9 && byte > 1) return std::nullopt;
    value |= (byte & 0x7F) << (7 * i);
    if ((byte & 0x80) == 0) {
      rest = rest.subspan(i + 1);
      return value;
    }
  }
  return std::nullopt;
}

// A field of a message: its number, and its bytes or its value.
struct Field {
  uint64_t number = 0;
  bool is_bytes = false;
  Bytes bytes = {};
  uint64_t value = 0;
};

// Reads one message, field by field. `what` is its place, for errors.
class Message {
 public:
  Message(Bytes bytes, std::string what) : rest_(bytes), what_(std::move(what)) {}

  std::optional<Field> next() {
    if (rest_.empty()) return std::nullopt;
    const std::optional<uint64_t> key = take_varint(rest_);
    if (!key || *key < 8) fail("a field's key");
    Field out{.number = *key >> 3};
    switch (*key & 7) {
      case 0: {
        const std::optional<uint64_t> value = take_varint(rest_);
        if (!value) fail("a number");
        out.value = *value;
        return out;
      }
      case 1: skip(8); return out;
      case 5: skip(4); return out;
      case 2: {
        const std::optional<uint64_t> size = take_varint(rest_);
        if (!size) fail("a length");
        if (*size > rest_.size())
          throw_error(ErrorCode::invalid, "bad MindSpore checkpoint: {}: truncated: expected {} bytes, got {}", what_,
                      *size, rest_.size());
        out.is_bytes = true;
        out.bytes = rest_.first(*size);
        rest_ = rest_.subspan(*size);
        return out;
      }
      default: fail("a field's key");
    }
  }

  [[noreturn]] void fail(const char* expected) const {
    throw_error(ErrorCode::invalid, "bad MindSpore checkpoint: {}: expected {}, got other bytes", what_, expected);
  }

 private:
  void skip(size_t count) {
    if (count > rest_.size()) fail("a whole field");
    rest_ = rest_.subspan(count);
  }

  Bytes rest_;
  std::string what_;
};

// One record as it stands there.
struct Record {
  std::string_view tag;
  std::string_view type;
  std::vector<int64_t> dims;
  Bytes content;
  bool has_tag = false, has_type = false, has_content = false;
};

void add_dim(Record& record, uint64_t value, const Message& message) {
  if (value > static_cast<uint64_t>(INT64_MAX) || record.dims.size() == kMaxRank) message.fail("a possible shape");
  record.dims.push_back(static_cast<int64_t>(value));
}

void read_tensor(Bytes bytes, const std::string& what, Record& record) {
  Message message(bytes, what);
  while (const std::optional<Field> field = message.next()) {
    if (field->number == 1 && !field->is_bytes) {
      add_dim(record, field->value, message);
    } else if (field->number == 1) {  // packed
      for (Bytes rest = field->bytes; !rest.empty();) {
        const std::optional<uint64_t> value = take_varint(rest);
        if (!value) message.fail("a dimension");
        add_dim(record, *value, message);
      }
    } else if (field->number == 2 && field->is_bytes) {
      record.type = as_text(field->bytes);
      record.has_type = true;
    } else if (field->number == 3 && field->is_bytes) {
      record.content = field->bytes;
      record.has_content = true;
    }
  }
}

Record read_record(Bytes bytes, const std::string& where, int64_t offset) {
  std::string what = fmt::format("{}: byte {}", where, offset);
  Record out;
  Message message(bytes, what);
  bool has_tensor = false;
  while (const std::optional<Field> field = message.next()) {
    if (field->number == 1 && field->is_bytes) {
      out.tag = as_text(field->bytes);
      out.has_tag = true;
      what = fmt::format("{}: tensor {}", where, quote_text(out.tag));
    } else if (field->number == 2 && field->is_bytes) {
      if (has_tensor) message.fail("one tensor in a record");
      has_tensor = true;
      read_tensor(field->bytes, what, out);
    } else if (field->number == 3) {
      throw_error(ErrorCode::unsupported, "unsupported MindSpore checkpoint: {}: expected a tensor, got a hash table",
                  what);
    }
  }
  for (const auto& [has, part] : {std::pair{out.has_tag, "a name"}, {has_tensor, "a tensor"}, {out.has_type, "a type"}})
    if (!has) throw_error(ErrorCode::invalid, "bad MindSpore checkpoint: {}: expected {}, got none", what, part);
  return out;
}

// Letter case aside, with or without "mindspore." before it: writers differ.
const ElementType* type_of(std::string_view text) {
  constexpr std::string_view kFront = "mindspore.";
  const auto lower = [](std::string_view from) {
    std::string out(from);
    for (char& c : out)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return out;
  };
  std::string wanted = lower(text);
  if (wanted.starts_with(kFront)) wanted.erase(0, kFront.size());
  for (const ElementType& type : element_types())
    if (!type.mindspore.empty() && lower(type.mindspore) == wanted) return &type;
  return nullptr;
}

// UTF-32, little-endian.
std::string read_utf32(Bytes bytes, const std::string& what) {
  std::string out;
  for (size_t at = 0; at < bytes.size(); at += 4) {
    const uint32_t code = bytes.size() - at < 4 ? 0xFFFFFFFF : read_le<uint32_t>(bytes, at);
    if (code >= 0x110000 || (code >= 0xD800 && code < 0xE000))
      throw_error(ErrorCode::invalid, "bad MindSpore checkpoint: {}: expected text in UTF-32, got other bytes", what);
    append_utf8(out, code);
  }
  return out;
}

class CkptReader {
 public:
  CkptReader(Bytes file, const std::string& where) : where_(where) {
    out_.format = "mindspore-ckpt";
    take_trailer(file);
  }

  TensorContent run() {
    Bytes rest = body_;
    while (!rest.empty()) {
      const auto offset = static_cast<int64_t>(body_.size() - rest.size());
      if (rest[0] != kRecord)
        throw_error(ErrorCode::invalid, "bad MindSpore checkpoint: {}: byte {}: expected a record (0x0a), got 0x{:02x}",
                    where_, offset, std::to_integer<unsigned>(rest[0]));
      rest = rest.subspan(1);
      const std::optional<uint64_t> size = take_varint(rest);
      if (!size || *size > rest.size())
        throw_error(ErrorCode::invalid, "bad MindSpore checkpoint: {}: byte {}: truncated: expected {} bytes, got {}",
                    where_, offset, size ? std::to_string(*size) : "a length and its", rest.size());
      add(read_record(rest.first(*size), where_, offset));
      rest = rest.subspan(*size);
    }
    check_sizes();
    check_names(out_, where_);
    return std::move(out_);
  }

 private:
  void take_trailer(Bytes file) {
    body_ = file;
    if (file.size() < kTrailerSize) return;
    const Bytes trailer = file.last(kTrailerSize);
    if (as_text(trailer.first(kTrailer.size())) != kTrailer) return;
    uint64_t sum = 0;
    for (const std::byte b : trailer.last(8)) sum = sum << 8 | std::to_integer<uint64_t>(b);
    body_ = file.first(file.size() - kTrailerSize);
    if (sum > 0xFFFFFFFF || trailer[7] != std::byte{0} || trailer[8] != std::byte{0})
      throw_error(ErrorCode::invalid, "bad MindSpore checkpoint: {}: crc_num, expected 32 bits, got {}", where_, sum);
    out_.sums.push_back({"all before its crc_num", body_, static_cast<uint32_t>(sum)});
    out_.metadata["crc_num"] = std::to_string(sum);
  }

  void add(const Record& record) {
    const std::string what = fmt::format("{}: tensor {}", where_, quote_text(record.tag));
    if (std::ssize(out_.tensors) + std::ssize(out_.values) >= kMaxTensors)
      throw_error(ErrorCode::invalid, "bad MindSpore checkpoint: {}: expected at most {} entries, got more", what,
                  kMaxTensors);
    if (record.type == "str") {
      out_.values.push_back({std::string(record.tag), read_utf32(record.content, what)});
      last_is_tensor_ = false;
      return;
    }
    const ElementType* type = type_of(record.type);
    if (type == nullptr)
      throw_error(ErrorCode::invalid, "bad MindSpore checkpoint: {}: tensor_type, expected one of MindSpore's, got {}",
                  what, quote_text(record.type, 40));
    std::vector<int64_t> shape = record.dims;
    if (shape == std::vector<int64_t>{0} && !record.content.empty()) shape.clear();  // a scalar of older writers
    StoredTensor* last = last_is_tensor_ ? &out_.tensors.back() : nullptr;
    if (last != nullptr && last->name == record.tag) {
      if (last->shape != shape || last->dtype != type->name)
        throw_error(ErrorCode::invalid, "bad MindSpore checkpoint: {}: expected parts {} {}, got {} {}", what,
                    last->dtype, shape_text(last->shape), type->name, shape_text(shape));
      last->pieces.push_back(record.content);
      return;
    }
    const std::optional<int64_t> bytes = packed_bytes(shape, type->bytes);
    if (!bytes)
      throw_error(ErrorCode::invalid, "bad MindSpore checkpoint: {}: expected a possible number of bytes, got {} {}",
                  what, type->name, shape_text(shape));
    out_.tensors.push_back({std::string(record.tag), std::string(type->name), shape, {}, {record.content}, *bytes});
    last_is_tensor_ = true;
  }

  // The content of all parts is exactly what the shape says.
  void check_sizes() const {
    for (const StoredTensor& tensor : out_.tensors) {
      int64_t found = 0;
      for (const Bytes& piece : tensor.pieces) found += std::ssize(piece);
      if (found != tensor.bytes)
        throw_error(ErrorCode::invalid, "bad MindSpore checkpoint: {}: tensor {}: expected {} bytes for {} {}, got {}",
                    where_, quote_text(tensor.name), tensor.bytes, tensor.dtype, shape_text(tensor.shape), found);
    }
  }

  const std::string& where_;
  Bytes body_;
  TensorContent out_;
  bool last_is_tensor_ = false;  // what came last is the tensor at the end of the list
};

void append_varint(std::string& out, uint64_t value) {
  for (; value > 0x7F; value >>= 7) out.push_back(static_cast<char>((value & 0x7F) | 0x80));
  out.push_back(static_cast<char>(value));
}

void append_text(std::string& out, char key, std::string_view text) {
  out.push_back(key);
  append_varint(out, text.size());
  out += text;
}

// All of a record but its content.
std::string record_front(const TensorEntry& entry, const ElementType& type, uint64_t content) {
  std::string tensor;
  for (const int64_t size : entry.shape) {
    tensor.push_back(0x08);
    append_varint(tensor, static_cast<uint64_t>(size));
  }
  append_text(tensor, 0x12, type.mindspore);
  tensor.push_back(0x1A);
  append_varint(tensor, content);
  std::string value;
  append_text(value, 0x0A, entry.name);
  value.push_back(0x12);
  append_varint(value, tensor.size() + content);
  value += tensor;
  std::string out(1, '\x0A');
  append_varint(out, value.size() + content);
  return out + value;
}

const ElementType& writable_type(const TensorEntry& entry, const std::string& path) {
  const ElementType* type = find_type(&ElementType::name, entry.dtype);
  if (type == nullptr || type->mindspore.empty())
    throw_error(ErrorCode::unsupported,
                "cannot write MindSpore checkpoint: {}: tensor {}: expected a type of MindSpore, got {}", path,
                quote_text(entry.name), entry.dtype);
  return *type;
}

}  // namespace

bool looks_like_ckpt(std::span<const std::byte> file) {
  if (file.size() >= 4 && (read_le<uint32_t>(file, 0) >= 0x7F3A5ED8 && read_le<uint32_t>(file, 0) <= 0x7F3A5EDA))
    return true;
  if (file.size() < 3 || file[0] != kRecord) return false;
  Bytes rest = file.subspan(1);
  return take_varint(rest) && !rest.empty() && (rest[0] == std::byte{0x0A} || rest[0] == std::byte{0x12});
}

TensorContent parse_ckpt(std::span<const std::byte> file, const std::string& where) {
  if (file.empty())
    throw_error(ErrorCode::invalid, "bad MindSpore checkpoint: {}: expected records, got 0 bytes", where);
  if (file[0] != kRecord && looks_like_ckpt(file))
    throw Error(
        ErrorCode::unsupported,
        fmt::format("unsupported MindSpore checkpoint: {}: expected plain records, got an encrypted file", where),
        "load it in MindSpore with dec_key and save it without enc_key");
  return CkptReader(file, where).run();
}

CkptWriter::CkptWriter(AtomicFile& file, std::vector<TensorEntry> entries, const CkptOptions& options)
    : file_(file), entries_(std::move(entries)), options_(options) {
  for (const TensorEntry& entry : entries_) writable_type(entry, file.path());
  check_names(entries_, file.path());
  begin();
}

void CkptWriter::begin() {
  while (missing_ == 0 && (left_ > 0 || next_ < entries_.size())) {
    const TensorEntry& entry = entries_[left_ > 0 ? next_ - 1 : next_++];
    const ElementType& type = writable_type(entry, file_.path());
    if (left_ == 0) {
      const std::optional<int64_t> bytes = packed_bytes(entry.shape, type.bytes);
      LAMINA_CHECK(bytes.has_value(), "shape of {}", entry.name);
      left_ = *bytes;
    }
    missing_ = std::min(left_, options_.chunk);
    left_ -= missing_;
    const std::string front = record_front(entry, type, static_cast<uint64_t>(missing_));
    put(std::as_bytes(std::span(front)));
  }
}

void CkptWriter::put(std::span<const std::byte> bytes) {
  if (options_.crc) sum_ = crc32(bytes, sum_);
  file_.write(bytes);
}

void CkptWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    LAMINA_CHECK(missing_ > 0, "{} bytes more than announced for {}", bytes.size(), file_.path());
    const auto part = bytes.first(static_cast<size_t>(std::min(missing_, std::ssize(bytes))));
    put(part);
    missing_ -= std::ssize(part);
    bytes = bytes.subspan(part.size());
    begin();
  }
}

void CkptWriter::finish() {
  LAMINA_CHECK(missing_ == 0 && left_ == 0 && next_ == entries_.size(), "data announced for {} is missing",
               file_.path());
  if (!options_.crc) return;
  std::string trailer(kTrailer);
  trailer.append(6, '\0');
  for (int shift = 24; shift >= 0; shift -= 8) trailer.push_back(static_cast<char>(sum_ >> shift & 0xFF));
  file_.write(trailer);
}

}  // namespace lamina

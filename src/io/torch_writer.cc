#include "io/torch_writer.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/error.h"
#include "io/element_type.h"
#include "io/little_endian.h"
#include "io/quote.h"

namespace lamina {
namespace {

constexpr int64_t kAlignment = 64;
constexpr const char* kFolder = "archive/";
constexpr uint16_t kVersion = 20, kVersion64 = 45, kUtf8 = 0x0800, kFirstDay = 0x0021;  // 1980-01-01

const ElementType& writable_type(const TensorEntry& entry, const std::string& path) {
  const ElementType* type = find_type(&ElementType::name, entry.dtype);
  if (type == nullptr)
    throw_error(ErrorCode::unsupported, "cannot write torch file: {}: tensor {}: expected a type of torch, got {}",
                path, quote_text(entry.name), entry.dtype);
  return *type;
}

// ---- the pickle, protocol 2

void put_text(std::string& out, std::string_view text) {
  out.push_back('X');
  append_le<uint32_t>(out, static_cast<uint32_t>(text.size()));
  out += text;
}

void put_integer(std::string& out, int64_t value) {
  if (value < 256) {
    out.push_back('K');
    out.push_back(static_cast<char>(value));
  } else if (value <= INT32_MAX) {
    out.push_back('J');
    append_le<int32_t>(out, static_cast<int32_t>(value));
  } else {
    out += "\x8A\x08";
    append_le<int64_t>(out, value);
  }
}

void put_tuple(std::string& out, const std::vector<int64_t>& values) {
  out.push_back('(');
  for (const int64_t value : values) put_integer(out, value);
  out.push_back('t');
}

std::vector<int64_t> packed_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> out(shape.size());
  int64_t step = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    out[d] = step;
    if (__builtin_mul_overflow(step, std::max<int64_t>(shape[d], 1), &step)) step = 1;  // no elements: any number
  }
  return out;
}

int64_t entry_bytes(const TensorEntry& entry, const ElementType& type) {
  const std::optional<int64_t> bytes = packed_bytes(entry.shape, type.bytes);
  LAMINA_CHECK(bytes.has_value(), "shape of {}", entry.name);
  return *bytes;
}

// name: _rebuild_tensor(storage, 0, size, stride, False, OrderedDict()[, dtype]). What has no class of storage of its
// own is an untyped storage, and the type stands behind.
void put_tensor(std::string& out, std::string_view name, const TensorEntry& entry, const ElementType& type,
                size_t key) {
  const bool typed = !type.torch_storage.empty();
  const int64_t bytes = entry_bytes(entry, type);
  put_text(out, name);
  out += fmt::format("ctorch._utils\n_rebuild_tensor_v{}\n((", typed ? 2 : 3);
  put_text(out, "storage");
  out += typed ? fmt::format("ctorch\n{}\n", type.torch_storage) : std::string("ctorch.storage\nUntypedStorage\n");
  put_text(out, std::to_string(key));
  put_text(out, "cpu");
  put_integer(out, typed ? bytes / type.bytes : bytes);
  out += "tQ";
  put_integer(out, 0);
  put_tuple(out, entry.shape);
  put_tuple(out, packed_strides(entry.shape));
  out += "\x89";
  out += "ccollections\nOrderedDict\n)R";
  if (!typed) out += fmt::format("ctorch\n{}\n", type.torch_dtype);
  out += "tR";
}

std::string flat_pickle(const std::vector<TensorEntry>& entries, const std::string& path) {
  std::string out = "ccollections\nOrderedDict\n)R(";
  for (size_t i = 0; i < entries.size(); ++i)
    put_tensor(out, entries[i].name, entries[i], writable_type(entries[i], path), i);
  return out + "u";
}

void put_number(std::string& out, double value) {
  out.push_back('G');
  const auto bits = std::bit_cast<uint64_t>(value);
  for (int shift = 56; shift >= 0; shift -= 8) out.push_back(static_cast<char>(bits >> shift));
}

// The settings of torch.optim.AdamW and the places of the group's parameters.
void put_group(std::string& out, int64_t first, int64_t count) {
  constexpr std::pair<std::string_view, double> kNumbers[] = {{"lr", 1e-3}, {"eps", 1e-8}, {"weight_decay", 1e-2}};
  out += "}(";
  for (const auto& [name, value] : kNumbers) put_text(out, name), put_number(out, value);
  put_text(out, "betas");
  put_number(out, 0.9);
  put_number(out, 0.999);
  out += "\x86";
  for (const char* name : {"amsgrad", "maximize", "capturable", "differentiable"}) put_text(out, name), out += "\x89";
  for (const char* name : {"foreach", "fused"}) put_text(out, name), out += "N";
  put_text(out, "params");
  out += "](";
  for (int64_t i = 0; i < count; ++i) put_integer(out, first + i);
  out += "eu";
}

// {"state": {0: {"step": …}, …}, "param_groups": [{…, "params": [0, …]}, …]}
std::string optimizer_pickle(const std::vector<TensorEntry>& entries, const std::vector<int64_t>& groups,
                             const std::string& path) {
  std::string out = "}(";
  put_text(out, "state");
  out += "}(";
  std::string open;  // "state.0."
  int64_t parameters = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string front = entries[i].name.substr(0, entries[i].name.rfind('.') + 1);
    if (front != open) {
      LAMINA_CHECK(front == fmt::format("state.{}.", parameters), "entry {}", entries[i].name);
      if (!open.empty()) out += "u";
      put_integer(out, parameters++);
      out += "}(";
      open = front;
    }
    put_tensor(out, entries[i].name.substr(front.size()), entries[i], writable_type(entries[i], path), i);
  }
  out += open.empty() ? "u" : "uu";
  put_text(out, "param_groups");
  out += "](";
  int64_t first = 0;
  for (const int64_t count : groups) {
    put_group(out, first, count);
    first += count;
  }
  LAMINA_CHECK(first == parameters, "{} parameters in groups of {}", parameters, first);
  return out + "eu";
}

}  // namespace

TorchWriter::TorchWriter(AtomicFile& file, std::vector<TensorEntry> entries, const TorchOptions& options)
    : file_(file), entries_(std::move(entries)), options_(options) {
  const std::string pickle =
      "\x80\x02" + (options.groups.empty() ? flat_pickle(entries_, file.path())
                                           : optimizer_pickle(entries_, options.groups, file.path()));
  check_names(entries_, file.path());
  add("data.pkl", pickle + ".");
  add("byteorder", "little");
  next();
}

// Writes a local header; the data begins at a multiple of 64 bytes. The CRC is put in when it is known.
void TorchWriter::open(const std::string& name, int64_t size) {
  LAMINA_CHECK(missing_ == 0, "{} bytes missing before {}", missing_, name);
  members_.push_back({kFolder + name, file_.size(), size});
  const std::string& whole = members_.back().name;
  const bool wide = size >= options_.wide;
  std::string extra;
  if (wide) {
    append_le<uint16_t>(extra, 1);
    append_le<uint16_t>(extra, 16);
    append_le<int64_t>(extra, size);
    append_le<int64_t>(extra, size);
  }
  const int64_t fixed = file_.size() + 30 + std::ssize(whole) + std::ssize(extra) + 4;
  const int64_t padding = (kAlignment - fixed % kAlignment) % kAlignment;
  extra += "FB";  // torch's own padding
  append_le<uint16_t>(extra, static_cast<uint16_t>(padding));
  extra.append(static_cast<size_t>(padding), 'Z');

  std::string header = "PK\x03\x04";
  for (const uint16_t value : {wide ? kVersion64 : kVersion, kUtf8, uint16_t{0}, uint16_t{0}, kFirstDay})
    append_le<uint16_t>(header, value);
  append_le<uint32_t>(header, 0);
  for (int i = 0; i < 2; ++i) append_le<uint32_t>(header, narrow(size));
  append_le<uint16_t>(header, static_cast<uint16_t>(whole.size()));
  append_le<uint16_t>(header, static_cast<uint16_t>(extra.size()));
  file_.write(header + whole + extra);
  missing_ = size;
}

void TorchWriter::put(std::span<const std::byte> bytes) {
  members_.back().crc32 = crc32(bytes, members_.back().crc32);
  file_.write(bytes);
  missing_ -= std::ssize(bytes);
}

void TorchWriter::close() {
  std::string sum;
  append_le<uint32_t>(sum, members_.back().crc32);
  file_.rewrite(members_.back().offset + 14, std::as_bytes(std::span(sum)));
}

void TorchWriter::add(const std::string& name, std::string_view content) {
  open(name, std::ssize(content));
  put(std::as_bytes(std::span(content)));
  close();
}

void TorchWriter::next() {
  while (missing_ == 0 && storage_ < entries_.size()) {
    const TensorEntry& entry = entries_[storage_];
    open(fmt::format("data/{}", storage_++), *packed_bytes(entry.shape, writable_type(entry, file_.path()).bytes));
    if (missing_ == 0) close();
  }
}

void TorchWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    LAMINA_CHECK(missing_ > 0, "{} bytes more than announced for {}", bytes.size(), file_.path());
    const auto part = bytes.first(static_cast<size_t>(std::min(missing_, std::ssize(bytes))));
    put(part);
    bytes = bytes.subspan(part.size());
    if (missing_ > 0) continue;
    close();
    next();
  }
}

// The field of 32 bits for a number that may stand elsewhere with 64.
uint32_t TorchWriter::narrow(int64_t value) const {
  return value >= options_.wide ? 0xFFFFFFFF : static_cast<uint32_t>(value);
}

std::string TorchWriter::directory() const {
  std::string out;
  for (const Member& member : members_) {
    std::string extra;
    const bool wide = member.size >= options_.wide, far = member.offset >= options_.wide;
    if (wide || far) {
      append_le<uint16_t>(extra, 1);
      append_le<uint16_t>(extra, static_cast<uint16_t>((wide ? 16 : 0) + (far ? 8 : 0)));
      for (int i = 0; wide && i < 2; ++i) append_le<int64_t>(extra, member.size);
      if (far) append_le<int64_t>(extra, member.offset);
    }
    const uint16_t version = wide || far ? kVersion64 : kVersion;
    out += "PK\x01\x02";
    for (const uint16_t value : {version, version, kUtf8, uint16_t{0}, uint16_t{0}, kFirstDay})
      append_le<uint16_t>(out, value);
    append_le<uint32_t>(out, member.crc32);
    for (int i = 0; i < 2; ++i) append_le<uint32_t>(out, narrow(member.size));
    append_le<uint16_t>(out, static_cast<uint16_t>(member.name.size()));
    append_le<uint16_t>(out, static_cast<uint16_t>(extra.size()));
    out.append(10, '\0');  // no comment, first disk, no attributes
    append_le<uint32_t>(out, narrow(member.offset));
    out += member.name + extra;
  }
  return out;
}

void TorchWriter::finish() {
  LAMINA_CHECK(missing_ == 0 && storage_ == entries_.size(), "data announced for {} is missing", file_.path());
  add("version", "3\n");
  const std::string entries = directory();
  const int64_t begin = file_.size(), count = std::ssize(members_), size = std::ssize(entries);
  std::string end;
  if (begin >= options_.wide || size >= options_.wide || count >= 0xFFFF) {
    end += "PK\x06\x06";
    append_le<uint64_t>(end, 44);  // of what follows in this record
    for (const uint16_t version : {kVersion64, kVersion64}) append_le<uint16_t>(end, version);
    append_le<uint64_t>(end, 0);  // disks
    for (const int64_t value : {count, count, size, begin}) append_le<int64_t>(end, value);
    end += "PK\x06\x07";
    append_le<uint32_t>(end, 0);
    append_le<int64_t>(end, begin + size);
    append_le<uint32_t>(end, 1);
  }
  end += "PK\x05\x06";
  append_le<uint32_t>(end, 0);
  for (int i = 0; i < 2; ++i) append_le<uint16_t>(end, static_cast<uint16_t>(std::min<int64_t>(count, 0xFFFF)));
  append_le<uint32_t>(end, narrow(size));
  append_le<uint32_t>(end, narrow(begin));
  append_le<uint16_t>(end, 0);
  file_.write(entries + end);
}

}  // namespace lamina

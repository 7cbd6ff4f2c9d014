#include "io/torch_pickle.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/half.h"
#include "io/quote.h"
#include "io/utf8.h"

namespace lamina {
namespace {

constexpr int kMaxDepth = 64;
// Tensors that show elements of a storage many times (strides of 0, many views): their copies would be larger than the
// file. What is allowed beyond some times the storages, of one file.
constexpr int64_t kMaxRepeated = int64_t{256} << 20;
constexpr int64_t kMostTimes = 8;
constexpr size_t kMaxKey = 256;     // bytes of a storage's key
constexpr size_t kMaxScalar = 256;  // bytes of the text that holds a number of NumPy's

constexpr std::string_view kCallables[] = {"torch._utils._rebuild_tensor_v2",
                                           "torch._utils._rebuild_tensor_v3",
                                           "torch._utils._rebuild_tensor",
                                           "torch._utils._rebuild_parameter",
                                           "torch._utils._rebuild_parameter_with_state",
                                           "torch._tensor._rebuild_from_type_v2",
                                           "torch.Tensor",
                                           "torch.nn.parameter.Parameter",
                                           "torch.Size",
                                           "torch.device",
                                           "torch.storage.UntypedStorage",
                                           "collections.OrderedDict",
                                           "collections.defaultdict",
                                           "collections.Counter",
                                           "builtins.set",
                                           "builtins.frozenset",
                                           "builtins.dict",
                                           "builtins.list",
                                           "__builtin__.set",
                                           "__builtin__.frozenset",
                                           "__builtin__.dict",
                                           "__builtin__.list",
                                           "_codecs.encode",
                                           "numpy.dtype",
                                           "numpy.core.multiarray.scalar",
                                           "numpy._core.multiarray.scalar"};

std::vector<std::string> all_callables() {
  std::vector<std::string> names(std::begin(kCallables), std::end(kCallables));
  for (const ElementType& type : element_types()) {
    if (!type.torch_storage.empty()) names.push_back(fmt::format("torch.{}", type.torch_storage));
    names.push_back(fmt::format("torch.{}", type.torch_dtype));
  }
  return names;
}

constexpr std::string_view kTorch = "torch.";

const ElementType* type_of_callable(std::string_view ElementType::*field, std::string_view name) {
  return name.starts_with(kTorch) ? find_type(field, name.substr(kTorch.size())) : nullptr;
}

bool contiguous(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
  int64_t expected = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    if (shape[d] != 1 && strides[d] != expected) return false;
    expected *= shape[d];
  }
  return true;
}

class TreeReader {
 public:
  TreeReader(const Pickle& pickle, const StorageBytes& storages, const std::string& where, TensorContent& content)
      : pickle_(pickle), storages_(storages), where_(where), content_(content), budget_(budget_of(pickle)) {}

  void walk(PickleId id, const std::string& name, int depth) {
    const PickleNode& node = pickle_[id];
    if (depth > kMaxDepth) fail(node, fmt::format("expected at most {} levels of nesting, got more", kMaxDepth));
    spend(node, name.size() + node.text.size());
    switch (node.kind) {
      case PickleKind::dict: return walk_dict(node, name, depth);
      case PickleKind::list:
      case PickleKind::tuple: return walk_list(node.items, name, depth);
      case PickleKind::none: return add(name, std::monostate());
      case PickleKind::boolean: return add(name, node.integer != 0);
      case PickleKind::integer: return add(name, node.integer);
      case PickleKind::number: return add(name, node.number);
      case PickleKind::text: return add(name, text_of(node));
      case PickleKind::callable: return add(name, std::string(node.text));
      case PickleKind::call: return walk_call(node, name, depth);
      case PickleKind::big_integer: fail(node, "expected a whole number of 64 bits, got a longer one");
      case PickleKind::bytes: return add(name, std::string("bytes"));
      case PickleKind::persistent: fail(node, "expected a tensor, got a bare storage");
    }
  }

 private:
  // What is made of a pickle may be larger than it, since names repeat what stands above them and parts may be shared.
  static int64_t budget_of(const Pickle& pickle) {
    return (int64_t{128} << 20) + 16 * static_cast<int64_t>(pickle.size);
  }

  [[noreturn]] void fail(const PickleNode& node, const std::string& what) const {
    throw_error(ErrorCode::invalid, "bad torch file: {}: byte {} of its pickle: {}", where_, node.offset, what);
  }

  std::string text_of(const PickleNode& node) const {
    if (find_invalid_utf8(node.text) != kNoFault)
      fail(node, fmt::format("expected a text in UTF-8, got {}", quote_text(node.text, 40)));
    return std::string(node.text);
  }

  // Before so many bytes are looked at or copied.
  void spend(const PickleNode& node, size_t bytes) {
    budget_ -= static_cast<int64_t>(bytes) + 64;
    if (budget_ < 0 || std::ssize(content_.tensors) >= kMaxTensors)
      fail(node, "expected as many entries as the file could hold, got more");
  }

  template <typename T>
  void add(const std::string& name, T value) {
    content_.values.push_back({name, std::move(value)});
  }

  static std::string join(const std::string& front, std::string_view key) {
    return front.empty() ? std::string(key) : fmt::format("{}.{}", front, key);
  }

  void walk_dict(const PickleNode& node, const std::string& name, int depth) {
    for (size_t i = 0; i + 1 < node.items.size(); i += 2) {
      const PickleNode& key = pickle_[node.items[i]];
      spend(key, name.size() + key.text.size());
      if (key.kind == PickleKind::text)
        walk(node.items[i + 1], join(name, text_of(key)), depth + 1);
      else if (key.kind == PickleKind::integer)
        walk(node.items[i + 1], join(name, std::to_string(key.integer)), depth + 1);
      else
        fail(key, "expected a text or a whole number as key, got another value");
    }
  }

  void walk_list(const std::vector<PickleId>& items, const std::string& name, int depth) {
    for (size_t i = 0; i < items.size(); ++i) walk(items[i], join(name, std::to_string(i)), depth + 1);
  }

  const std::vector<PickleId>& arguments(const PickleNode& call, size_t at_least) const {
    const std::vector<PickleId>& items = pickle_[call.items[1]].items;
    if (items.size() < at_least)
      fail(call, fmt::format("{}: expected {} arguments, got {}", pickle_[call.items[0]].text, at_least, items.size()));
    return items;
  }

  void walk_call(const PickleNode& call, const std::string& name, int depth) {
    const std::string_view function = pickle_[call.items[0]].text;
    const bool tensor = function.starts_with("torch._utils._rebuild_tensor");
    if (call.items.size() > 2) fail(call, fmt::format("{}: expected no state set on it, got some", function));
    if (tensor) return add_tensor(call, name);
    if (function.starts_with("torch._utils._rebuild_parameter")) return walk_tensor(arguments(call, 1)[0], name, depth);
    if (function == "torch._tensor._rebuild_from_type_v2") return walk_from_type(call, name, depth);
    if (function == "torch.Size") return walk(arguments(call, 1)[0], name, depth + 1);
    if (function == "torch.device") return add_device(call, name);
    if (function.ends_with(".multiarray.scalar")) return add_scalar(call, name);
    if (function == "_codecs.encode") return add(name, std::string("bytes"));  // as protocol 2 has them
    fail(call, fmt::format("expected a tensor, a container or a number, got a call of {}", function));
  }

  void walk_tensor(PickleId id, const std::string& name, int depth) {
    if (pickle_[id].kind != PickleKind::call) fail(pickle_[id], "expected a tensor, got another value");
    walk(id, name, depth + 1);
  }

  // (function, type, arguments, attributes): a tensor with attributes of its own, which say nothing about its elements.
  void walk_from_type(const PickleNode& call, const std::string& name, int depth) {
    const std::vector<PickleId>& given = arguments(call, 4);
    const PickleNode &function = pickle_[given[0]], &type = pickle_[given[1]], &inner = pickle_[given[2]];
    if (function.kind != PickleKind::callable || inner.kind != PickleKind::tuple ||
        (type.text != "torch.Tensor" && type.text != "torch.nn.parameter.Parameter"))
      fail(call, "_rebuild_from_type_v2: expected a plain tensor, got another kind");
    PickleNode plain = call;
    plain.items = {given[0], given[2]};
    if (depth > kMaxDepth) fail(call, "expected a plain tensor, got one in many wrappers");
    walk_call(plain, name, depth + 1);
  }

  void add_device(const PickleNode& call, const std::string& name) {
    std::string text;
    for (const PickleId id : arguments(call, 1)) {
      const PickleNode& part = pickle_[id];
      spend(part, part.text.size());
      text +=
          (text.empty() ? "" : ":") + (part.kind == PickleKind::text ? text_of(part) : std::to_string(part.integer));
    }
    add(name, text);
  }

  int64_t integer(const PickleNode& call, PickleId id, const char* what) const {
    const PickleNode& node = pickle_[id];
    if (node.kind != PickleKind::integer || node.integer < 0)
      fail(call, fmt::format("{}: expected a whole number from 0 on, got another value", what));
    return node.integer;
  }

  std::vector<int64_t> integers(const PickleNode& call, PickleId id, const char* what) const {
    const PickleNode* node = &pickle_[id];
    if (node->kind == PickleKind::call && pickle_[node->items[0]].text == "torch.Size")
      node = &pickle_[arguments(*node, 1)[0]];
    if (node->kind != PickleKind::tuple && node->kind != PickleKind::list)
      fail(call, fmt::format("{}: expected a tuple, got another value", what));
    if (node->items.size() > kMaxRank)
      fail(call, fmt::format("{}: expected at most {} dimensions, got {}", what, kMaxRank, node->items.size()));
    std::vector<int64_t> out;
    for (const PickleId item : node->items) out.push_back(integer(call, item, what));
    return out;
  }

  // The type of a tensor: that of its storage, or of an argument where the storage is untyped.
  const ElementType& type_of(const PickleNode& call, const TorchStorage& storage) const {
    if (pickle_[call.items[0]].text != "torch._utils._rebuild_tensor_v3") {
      if (storage.type == nullptr) fail(call, "expected a storage with a type, got an untyped one");
      return *storage.type;
    }
    const PickleNode& dtype = pickle_[arguments(call, 7)[6]];
    const ElementType* type = type_of_callable(&ElementType::torch_dtype, dtype.text);
    if (dtype.kind != PickleKind::callable || type == nullptr) fail(call, "dtype: expected one of torch's, got none");
    return *type;
  }

  // The last argument may say that the elements are meant conjugated or negated.
  void refuse_flags(const PickleNode& call) const {
    const std::vector<PickleId>& given = pickle_[call.items[1]].items;
    const size_t at = pickle_[call.items[0]].text == "torch._utils._rebuild_tensor_v3" ? 7 : 6;
    if (given.size() > at && !pickle_[given[at]].items.empty())
      fail(call, "expected plain elements, got a conjugated or negated view");
  }

  void add_tensor(const PickleNode& call, const std::string& name) {
    const std::vector<PickleId>& given = arguments(call, 4);
    if (pickle_[given[0]].kind != PickleKind::persistent) fail(call, "expected a storage, got another value");
    const TorchStorage storage = torch_storage(pickle_, given[0], where_);
    const ElementType& type = type_of(call, storage);
    const int64_t offset = integer(call, given[1], "storage_offset");
    const std::vector<int64_t> shape = integers(call, given[2], "size");
    const std::vector<int64_t> strides = integers(call, given[3], "stride");
    const std::string what = fmt::format("tensor {} ({} {})", quote_text(name), type.name, shape_text(shape));
    if (strides.size() != shape.size())
      fail(call, fmt::format("{}: expected {} strides, got {}", what, shape.size(), strides.size()));
    const std::optional<int64_t> bytes = packed_bytes(shape, type.bytes);
    if (!bytes) fail(call, what + ": expected a possible number of bytes, got more than 2^63");
    refuse_flags(call);
    StoredTensor tensor{name, std::string(type.name), shape, {}, {}, *bytes};
    if (*bytes > 0) view(call, what, storage, type, offset, strides, tensor);
    content_.tensors.push_back(std::move(tensor));
  }

  // The window of a tensor with elements, checked against its storage.
  void view(const PickleNode& call, const std::string& what, const TorchStorage& storage, const ElementType& type,
            int64_t offset, const std::vector<int64_t>& strides, StoredTensor& tensor) {
    int64_t last = offset;
    for (size_t d = 0; d < strides.size(); ++d) {
      int64_t step = 0;
      if (__builtin_mul_overflow(strides[d], tensor.shape[d] - 1, &step) || __builtin_add_overflow(last, step, &last))
        fail(call, what + ": expected strides within its storage, got some beyond 2^63");
    }
    const std::span<const std::byte> bytes = storages_(storage);
    const int64_t held = std::ssize(bytes) / type.bytes;
    if (last >= held)
      fail(call, fmt::format("{}: expected elements up to {} in storage {}, got {}", what, last,
                             quote_text(storage.key, 40), held));
    if (seen_.insert(storage.key).second) stored_ += std::ssize(bytes);
    const int64_t most = kMostTimes * stored_ + kMaxRepeated;
    if (tensor.bytes > most - shown_)
      fail(call,
           fmt::format("{}: expected tensors of at most {} bytes from storages of {}, got more", what, most, stored_));
    shown_ += tensor.bytes;
    const bool packed = contiguous(tensor.shape, strides);
    if (!packed) tensor.strides = strides;
    for (size_t d = 0; d < tensor.strides.size(); ++d)
      if (tensor.shape[d] == 1) tensor.strides[d] = 0;  // any number, never a step
    const int64_t count = packed ? tensor.bytes : (last - offset + 1) * type.bytes;
    tensor.pieces = {bytes.subspan(static_cast<size_t>(offset * type.bytes), static_cast<size_t>(count))};
  }

  // ---- numbers of NumPy: scalar(dtype(name, …) with its state, bytes)

  std::string short_text(const PickleNode& node) const {
    if (node.text.size() > kMaxScalar) fail(node, "scalar: expected a few bytes, got more");
    return node.kind == PickleKind::bytes ? std::string(node.text) : text_of(node);
  }

  // Bytes, or a text whose letters are bytes: encode(text, "latin1"), as protocol 2 writes them.
  std::string raw_bytes(const PickleNode& node) const {
    if (node.kind == PickleKind::bytes) return short_text(node);
    if (node.kind != PickleKind::call || pickle_[node.items[0]].text != "_codecs.encode")
      fail(node, "scalar: expected bytes, got another value");
    const std::vector<PickleId>& given = arguments(node, 2);
    if (pickle_[given[1]].text != "latin1") fail(node, "_codecs.encode: expected latin1, got another code");
    const std::string text = short_text(pickle_[given[0]]);
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const Utf8Char next = decode_utf8(text, at);
      if (next.code > 0xFF) fail(node, "_codecs.encode: expected letters below 256, got another");
      out.push_back(static_cast<char>(next.code));
      at += next.length;
    }
    return out;
  }

  const ElementType& numpy_type(const PickleNode& dtype) const {
    if (dtype.kind != PickleKind::call || pickle_[dtype.items[0]].text != "numpy.dtype" || dtype.items.size() > 3)
      fail(dtype, "scalar: expected a numpy.dtype, got another value");
    const ElementType* type = find_type(&ElementType::numpy, pickle_[arguments(dtype, 1)[0]].text);
    if (type == nullptr) fail(dtype, "numpy.dtype: expected a number's, got another");
    if (dtype.items.size() == 3) {
      const std::vector<PickleId>& state = pickle_[dtype.items[2]].items;
      if (state.size() < 2 || pickle_[state[1]].text == ">")
        fail(dtype, "numpy.dtype: expected little-endian, got other bytes");
    }
    return *type;
  }

  template <typename T>
  static T value_of(const std::string& raw) {
    T value;
    std::memcpy(&value, raw.data(), sizeof value);
    return value;
  }

  void add_scalar(const PickleNode& call, const std::string& name) {
    const std::vector<PickleId>& given = arguments(call, 2);
    const ElementType& type = numpy_type(pickle_[given[0]]);
    const std::string raw = raw_bytes(pickle_[given[1]]);
    if (std::ssize(raw) != type.bytes)
      fail(call, fmt::format("scalar: expected {} bytes for {}, got {}", type.bytes, type.name, raw.size()));
    if (type.name == "F64") return add(name, value_of<double>(raw));
    if (type.name == "F32") return add(name, static_cast<double>(value_of<float>(raw)));
    if (type.name == "F16") return add(name, static_cast<double>(from_f16(value_of<uint16_t>(raw))));
    if (type.name == "BOOL") return add(name, raw[0] != 0);
    if (type.name == "C64" || (type.name == "U64" && value_of<int64_t>(raw) < 0))
      fail(call, "scalar: expected a real number of 64 bits, got another");
    uint64_t word = 0;
    std::memcpy(&word, raw.data(), raw.size());
    const bool negative = type.name.starts_with("I") && (static_cast<unsigned char>(raw.back()) & 0x80) != 0;
    if (negative && raw.size() < 8) word |= ~uint64_t{0} << (8 * raw.size());
    add(name, static_cast<int64_t>(word));
  }

  const Pickle& pickle_;
  const StorageBytes& storages_;
  const std::string& where_;
  TensorContent& content_;
  int64_t budget_;                             // bytes that may still be looked at or made
  std::unordered_set<std::string_view> seen_;  // keys of storages
  int64_t stored_ = 0;                         // bytes of those
  int64_t shown_ = 0;                          // bytes of all tensors
};

}  // namespace

std::span<const std::string_view> torch_callables() {
  static const std::vector<std::string> names = all_callables();
  static const std::vector<std::string_view> views(names.begin(), names.end());
  return views;
}

TorchStorage torch_storage(const Pickle& pickle, PickleId id, const std::string& where) {
  const auto fail = [&](const std::string& what) {
    throw_error(ErrorCode::invalid, "bad torch file: {}: byte {} of its pickle: storage: {}", where, pickle[id].offset,
                what);
  };
  // ("storage", class, key, location, count), in legacy files also a view of another storage.
  const std::vector<PickleId>& items = pickle[pickle[id].items[0]].items;
  if (items.size() < 5 || items.size() > 6 || pickle[items[0]].text != "storage")
    fail("expected (\"storage\", class, key, location, count), got other values");
  const PickleNode &type = pickle[items[1]], &key = pickle[items[2]], &count = pickle[items[4]];
  if (type.kind != PickleKind::callable || key.kind != PickleKind::text || count.kind != PickleKind::integer)
    fail("expected a class, a text as key and a number as count, got other values");
  if (key.text.size() > kMaxKey)
    fail(fmt::format("expected a key of at most {} bytes, got {}", kMaxKey, key.text.size()));
  if (items.size() == 6 && pickle[items[5]].kind != PickleKind::none) fail("expected no view of another, got one");
  TorchStorage out{key.text, type_of_callable(&ElementType::torch_storage, type.text), count.integer};
  if (out.type == nullptr && type.text != "torch.storage.UntypedStorage")
    fail(fmt::format("expected a class of storages, got {}", type.text));
  const int64_t width = out.type == nullptr ? 1 : out.type->bytes;
  if (out.count < 0 || out.count > INT64_MAX / width) fail(fmt::format("expected a possible count, got {}", out.count));
  return out;
}

void read_torch_tree(const Pickle& pickle, const StorageBytes& storages, const std::string& where,
                     TensorContent& content) {
  TreeReader(pickle, storages, where, content).walk(pickle.root, "", 0);
}

}  // namespace lamina

#include "io/pickle.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.h"
#include "io/little_endian.h"
#include "io/quote.h"

namespace lamina {
namespace {

constexpr PickleId kMark = -1;
constexpr size_t kMaxLine = 256;  // of a module's or a class's name

struct Opcode {
  unsigned char code;
  const char* name;
};

// What is read. Others are named by their byte alone.
constexpr Opcode kOpcodes[] = {{'(', "MARK"},
                               {'.', "STOP"},
                               {'0', "POP"},
                               {'1', "POP_MARK"},
                               {'2', "DUP"},
                               {'N', "NONE"},
                               {'J', "BININT"},
                               {'K', "BININT1"},
                               {'M', "BININT2"},
                               {'G', "BINFLOAT"},
                               {'X', "BINUNICODE"},
                               {'T', "BINSTRING"},
                               {'U', "SHORT_BINSTRING"},
                               {'B', "BINBYTES"},
                               {'C', "SHORT_BINBYTES"},
                               {'}', "EMPTY_DICT"},
                               {']', "EMPTY_LIST"},
                               {')', "EMPTY_TUPLE"},
                               {'t', "TUPLE"},
                               {'l', "LIST"},
                               {'d', "DICT"},
                               {'a', "APPEND"},
                               {'e', "APPENDS"},
                               {'s', "SETITEM"},
                               {'u', "SETITEMS"},
                               {'h', "BINGET"},
                               {'j', "LONG_BINGET"},
                               {'q', "BINPUT"},
                               {'r', "LONG_BINPUT"},
                               {'c', "GLOBAL"},
                               {'R', "REDUCE"},
                               {'b', "BUILD"},
                               {'Q', "BINPERSID"},
                               {0x80, "PROTO"},
                               {0x81, "NEWOBJ"},
                               {0x85, "TUPLE1"},
                               {0x86, "TUPLE2"},
                               {0x87, "TUPLE3"},
                               {0x88, "NEWTRUE"},
                               {0x89, "NEWFALSE"},
                               {0x8A, "LONG1"},
                               {0x8B, "LONG4"},
                               {0x8C, "SHORT_BINUNICODE"},
                               {0x8D, "BINUNICODE8"},
                               {0x8E, "BINBYTES8"},
                               {0x8F, "EMPTY_SET"},
                               {0x90, "ADDITEMS"},
                               {0x91, "FROZENSET"},
                               {0x93, "STACK_GLOBAL"},
                               {0x94, "MEMOIZE"},
                               {0x95, "FRAME"},
                               {0x92, "NEWOBJ_EX"},
                               {'i', "INST"},
                               {'o', "OBJ"},
                               {'P', "PERSID"},
                               {0x82, "EXT1"},
                               {0x83, "EXT2"},
                               {0x84, "EXT4"},
                               {0x96, "BYTEARRAY8"},
                               {0x97, "NEXT_BUFFER"},
                               {0x98, "READONLY_BUFFER"},
                               {'I', "INT"},
                               {'L', "LONG"},
                               {'F', "FLOAT"},
                               {'S', "STRING"},
                               {'V', "UNICODE"},
                               {'g', "GET"},
                               {'p', "PUT"}};

std::string opcode_text(unsigned char code) {
  for (const Opcode& opcode : kOpcodes)
    if (opcode.code == code) return opcode.name;
  return fmt::format("0x{:02x}", code);
}

class Machine {
 public:
  Machine(std::span<const std::byte> bytes, const std::string& where, std::span<const std::string_view> allowed,
          const PickleLimits& limits)
      : bytes_(bytes), where_(where), allowed_(allowed), limits_(limits) {}

  Pickle run() {
    for (int64_t count = 0;; ++count) {
      if (count == limits_.opcodes) fail(fmt::format("expected at most {} opcodes, got more", limits_.opcodes));
      begin_ = at_;
      const auto code = static_cast<unsigned char>(take(1)[0]);
      if (code == '.') break;
      if (!scalar(code) && !container(code) && !memo(code) && !structure(code))
        fail(fmt::format("expected an opcode of plain data, got {}", opcode_text(code)));
    }
    out_.root = pop();
    if (!stack_.empty()) fail(fmt::format("STOP: expected an empty stack, got {} values", stack_.size()));
    out_.size = at_;
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw_error(ErrorCode::invalid, "bad pickle: {}: byte {}: {}", where_, begin_, what);
  }

  // ---- bytes

  std::string_view take(uint64_t count) {
    if (count > bytes_.size() - at_)
      fail(fmt::format("truncated: expected {} bytes more, got {}", count, bytes_.size() - at_));
    const std::string_view out = as_text(bytes_.subspan(at_, count));
    at_ += count;
    return out;
  }

  uint64_t number(size_t width) {
    const std::string_view raw = take(width);
    uint64_t value = 0;
    for (size_t i = width; i-- > 0;) value = value << 8 | static_cast<unsigned char>(raw[i]);
    return value;
  }

  std::string_view line() {
    const std::string_view rest = as_text(bytes_.subspan(at_, std::min(bytes_.size() - at_, kMaxLine)));
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) fail(fmt::format("expected a line of at most {} bytes, got more", kMaxLine));
    at_ += end + 1;
    return rest.substr(0, end);
  }

  // ---- stack and memo

  PickleId push(PickleNode node) {
    if (out_.nodes.size() == limits_.nodes) fail(fmt::format("expected at most {} values, got more", limits_.nodes));
    node.offset = static_cast<int64_t>(begin_);
    const auto id = static_cast<PickleId>(out_.nodes.size());
    out_.nodes.push_back(std::move(node));
    stack_.push_back(id);
    return id;
  }

  PickleId top() const {
    if (stack_.empty() || stack_.back() == kMark) fail("expected a value on the stack, got none");
    return stack_.back();
  }

  PickleId pop() {
    const PickleId id = top();
    stack_.pop_back();
    return id;
  }

  PickleNode& node(PickleId id) { return out_.nodes[static_cast<size_t>(id)]; }

  std::vector<PickleId> pop_to_mark() {
    const auto mark = std::find(stack_.rbegin(), stack_.rend(), kMark);
    if (mark == stack_.rend()) fail("expected a mark on the stack, got none");
    std::vector<PickleId> items(mark.base(), stack_.end());
    stack_.erase(mark.base() - 1, stack_.end());
    return items;
  }

  std::vector<PickleId> pop_some(size_t count) {
    std::vector<PickleId> items(count);
    for (size_t i = count; i-- > 0;) items[i] = pop();
    return items;
  }

  void put(uint64_t place) {
    if (place >= limits_.nodes) fail(fmt::format("memo: expected a place below {}, got {}", limits_.nodes, place));
    if (place >= memo_.size()) memo_.resize(place + 1, kMark);
    memo_[place] = top();
  }

  void get(uint64_t place) {
    if (place >= memo_.size() || memo_[place] == kMark)
      fail(fmt::format("memo: expected a value at {}, got none", place));
    stack_.push_back(memo_[place]);
  }

  // ---- opcodes

  void push_integer(int64_t value) { push({.kind = PickleKind::integer, .integer = value}); }
  void push_text(PickleKind kind, uint64_t size) { push({.kind = kind, .text = take(size)}); }

  void push_long(uint64_t size) {
    const std::string_view raw = take(size);
    if (size > 8) {
      push({.kind = PickleKind::big_integer, .text = raw});
      return;
    }
    uint64_t value = 0;
    for (size_t i = size; i-- > 0;) value = value << 8 | static_cast<unsigned char>(raw[i]);
    const bool negative = size > 0 && (static_cast<unsigned char>(raw[size - 1]) & 0x80) != 0;
    if (negative && size < 8) value |= ~uint64_t{0} << (8 * size);
    push_integer(static_cast<int64_t>(value));
  }

  void push_double() {
    uint64_t word = 0;
    for (const char c : take(8)) word = word << 8 | static_cast<unsigned char>(c);
    push({.kind = PickleKind::number, .number = std::bit_cast<double>(word)});
  }

  bool scalar(unsigned char code) {
    switch (code) {
      case 'N': push({.kind = PickleKind::none}); return true;
      case 0x88:
      case 0x89: push({.kind = PickleKind::boolean, .integer = code == 0x88}); return true;
      case 'K': push_integer(static_cast<int64_t>(number(1))); return true;
      case 'M': push_integer(static_cast<int64_t>(number(2))); return true;
      case 'J': push_integer(static_cast<int32_t>(number(4))); return true;
      case 0x8A: push_long(number(1)); return true;
      case 0x8B: push_long(number(4)); return true;
      case 'G': push_double(); return true;
      case 'X': push_text(PickleKind::text, number(4)); return true;
      case 0x8C: push_text(PickleKind::text, number(1)); return true;
      case 0x8D: push_text(PickleKind::text, number(8)); return true;
      case 'T': push_text(PickleKind::text, number(4)); return true;  // a text of Python 2
      case 'U': push_text(PickleKind::text, number(1)); return true;
      case 'B': push_text(PickleKind::bytes, number(4)); return true;
      case 'C': push_text(PickleKind::bytes, number(1)); return true;
      case 0x8E: push_text(PickleKind::bytes, number(8)); return true;
      default: return false;
    }
  }

  // Items are copied in places, which must not make more of them than the file could.
  void count_items(size_t more) {
    held_ += static_cast<int64_t>(more);
    if (held_ > limits_.opcodes)
      fail(fmt::format("expected at most {} items in containers, got more", limits_.opcodes));
  }

  void push_items(PickleKind kind, std::vector<PickleId> items) {
    count_items(items.size());
    push({.kind = kind, .items = std::move(items)});
  }

  // Adds to the container below the items on the stack.
  void extend(PickleKind kind, const std::vector<PickleId>& items) {
    PickleNode& target = node(top());
    const char* wanted = kind == PickleKind::dict ? "a dictionary" : "a list or set";
    if (target.kind != kind) fail(fmt::format("expected {} to add to, got another value", wanted));
    if (kind == PickleKind::dict && items.size() % 2 != 0) fail("expected keys with values, got a key without");
    count_items(items.size());
    target.items.insert(target.items.end(), items.begin(), items.end());
  }

  bool container(unsigned char code) {
    switch (code) {
      case '}': push_items(PickleKind::dict, {}); return true;
      case ']':
      case 0x8F: push_items(PickleKind::list, {}); return true;
      case ')': push_items(PickleKind::tuple, {}); return true;
      case 't': push_items(PickleKind::tuple, pop_to_mark()); return true;
      case 'l':
      case 0x91: push_items(PickleKind::list, pop_to_mark()); return true;
      case 'd': {
        const std::vector<PickleId> items = pop_to_mark();
        push_items(PickleKind::dict, {});
        extend(PickleKind::dict, items);
        return true;
      }
      case 0x85:
      case 0x86:
      case 0x87: push_items(PickleKind::tuple, pop_some(code - 0x84u)); return true;
      case 'a': extend(PickleKind::list, pop_some(1)); return true;
      case 'e':
      case 0x90: extend(PickleKind::list, pop_to_mark()); return true;
      case 's': extend(PickleKind::dict, pop_some(2)); return true;
      case 'u': extend(PickleKind::dict, pop_to_mark()); return true;
      default: return false;
    }
  }

  bool memo(unsigned char code) {
    switch (code) {
      case 'q': put(number(1)); return true;
      case 'r': put(number(4)); return true;
      case 0x94: put(memo_.size()); return true;
      case 'h': get(number(1)); return true;
      case 'j': get(number(4)); return true;
      default: return false;
    }
  }

  void push_callable(const char* opcode, std::string_view module, std::string_view name) {
    const std::string whole = fmt::format("{}.{}", module, name);
    const auto at = std::find(allowed_.begin(), allowed_.end(), whole);
    if (at == allowed_.end())
      fail(fmt::format("{}: expected a name that rebuilds a tensor or a container, got {} (nothing was executed)",
                       opcode, quote_text(whole)));
    push({.kind = PickleKind::callable, .text = *at});
  }

  // OrderedDict(), OrderedDict([(key, value), …]), defaultdict(factory), Counter({…}), set([…]) are made here; all else
  // stays a call.
  void reduce() {
    const PickleId arguments = pop(), function = pop();
    if (node(function).kind != PickleKind::callable || node(arguments).kind != PickleKind::tuple)
      fail("REDUCE: expected a name and a tuple, got other values");
    const std::string_view name = node(function).text;
    const std::vector<PickleId>& given = node(arguments).items;  // until the next push
    if (name.ends_with(".set") || name.ends_with(".frozenset")) {
      if (given.size() > 1 || (given.size() == 1 && node(given[0]).kind != PickleKind::list))
        fail(fmt::format("REDUCE: expected a list for {}, got other values", name));
      return push_items(PickleKind::list, given.empty() ? std::vector<PickleId>() : node(given[0]).items);
    }
    if (name == "collections.Counter" && given.size() == 1 && node(given[0]).kind == PickleKind::dict)
      return push_items(PickleKind::dict, std::vector<PickleId>(node(given[0]).items));
    if (name != "collections.OrderedDict" && name != "collections.defaultdict")
      return push_items(PickleKind::call, {function, arguments});
    std::vector<PickleId> items;
    if (name == "collections.OrderedDict" && !given.empty()) {
      if (node(given[0]).kind != PickleKind::list)
        fail("REDUCE: expected a list for an OrderedDict, got another value");
      for (const PickleId pair : node(given[0]).items) {
        if (node(pair).items.size() != 2) fail("REDUCE: expected pairs for an OrderedDict, got other values");
        items.insert(items.end(), node(pair).items.begin(), node(pair).items.end());
      }
    }
    push_items(PickleKind::dict, std::move(items));
  }

  // Attributes of a dictionary (a state_dict's _metadata) say nothing about its tensors; a call keeps its state.
  void build() {
    const PickleId state = pop();
    PickleNode& target = node(top());
    if (target.kind == PickleKind::call)
      target.items.push_back(state);
    else if (target.kind != PickleKind::dict)
      fail("BUILD: expected a dictionary or an object on the allow-list, got another value");
  }

  bool structure(unsigned char code) {
    switch (code) {
      case 0x80: {
        const uint64_t version = number(1);
        if (version < 2 || version > 5) fail(fmt::format("PROTO: expected 2 to 5, got {}", version));
        return true;
      }
      case 0x95: number(8); return true;  // FRAME: a hint for reading ahead
      case '(': stack_.push_back(kMark); return true;
      case '0':
        if (stack_.empty()) fail("POP: expected a value on the stack, got none");
        stack_.pop_back();
        return true;
      case '1': pop_to_mark(); return true;
      case '2': stack_.push_back(top()); return true;
      case 'c': {
        const std::string_view module = line(), name = line();
        push_callable("GLOBAL", module, name);
        return true;
      }
      case 0x93: {
        const PickleId name = pop(), module = pop();
        if (node(name).kind != PickleKind::text || node(module).kind != PickleKind::text)
          fail("STACK_GLOBAL: expected two texts, got other values");
        push_callable("STACK_GLOBAL", node(module).text, node(name).text);
        return true;
      }
      case 'R': reduce(); return true;
      case 'b': build(); return true;
      case 'Q': push_items(PickleKind::persistent, {pop()}); return true;
      default: return false;
    }
  }

  std::span<const std::byte> bytes_;
  const std::string& where_;
  std::span<const std::string_view> allowed_;
  const PickleLimits& limits_;
  size_t at_ = 0, begin_ = 0;  // the next byte; the opcode being read
  int64_t held_ = 0;           // items in all containers
  std::vector<PickleId> stack_;
  std::vector<PickleId> memo_;  // kMark: empty
  Pickle out_;
};

}  // namespace

Pickle read_pickle(std::span<const std::byte> bytes, const std::string& where,
                   std::span<const std::string_view> allowed, const PickleLimits& limits) {
  return Machine(bytes, where, allowed, limits).run();
}

}  // namespace lamina

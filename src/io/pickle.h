// A pickle read as a tree of symbols. Nothing is ever called: a callable is a name that has to be on the caller's list,
// and calling it makes a node that says so. What the nodes mean is the caller's business; only the containers of the
// standard library become plain lists and dictionaries here, since later opcodes fill them.
//
// Protocols 2 to 5, their binary opcodes. What is not known is an error with opcode, name and place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lamina {

using PickleId = int32_t;  // a place in the tree's nodes

enum class PickleKind : uint8_t {
  none,
  boolean,      // integer: 0 or 1
  integer,      // of 64 bits
  big_integer,  // text: its bytes, little-endian, two's complement
  number,
  text,        // UTF-8 as the file has it, not checked
  bytes,       // text
  list,        // items; sets too
  tuple,       // items
  dict,        // items: key, value, key, value, …
  callable,    // text: "torch._utils._rebuild_tensor_v2"
  call,        // items: callable, tuple of arguments, then states set on it
  persistent,  // items: what stands for an object that is elsewhere
};

struct PickleNode {
  PickleKind kind = PickleKind::none;
  int64_t offset = 0;  // of its opcode in the pickle, for messages
  int64_t integer = 0;
  double number = 0;
  std::string_view text = {};  // views the pickle, or a name in the caller's list
  std::vector<PickleId> items = {};
};

struct Pickle {
  std::vector<PickleNode> nodes;
  PickleId root = 0;
  size_t size = 0;  // bytes up to and with STOP; more may follow

  const PickleNode& operator[](PickleId id) const { return nodes[static_cast<size_t>(id)]; }
};

struct PickleLimits {
  int64_t opcodes = int64_t{1} << 22;
  size_t nodes = size_t{1} << 20;
};

// `allowed`: the names that may occur, whole; views of it stay in the result. Throws Error(invalid) that names `where`.
Pickle read_pickle(std::span<const std::byte> bytes, const std::string& where,
                   std::span<const std::string_view> allowed, const PickleLimits& limits = {});

}  // namespace lamina

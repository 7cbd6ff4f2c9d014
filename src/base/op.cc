#include "base/op.h"

#include <array>

namespace lamina {
namespace {

constexpr std::array<std::string_view, kOpCount> kNames{
#define OP(name, attrs) #name,
#include "base/ops.def"
#undef OP
};

}  // namespace

std::string_view op_name(Op op) { return kNames[static_cast<size_t>(op)]; }

std::optional<Op> parse_op(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<Op>(i);
  return std::nullopt;
}

Attrs default_attrs(Op op) {
  switch (op) {
#define OP(name, attrs) \
  case Op::name:        \
    return attrs{};
#include "base/ops.def"
#undef OP
  }
  return NoAttrs{};
}

}  // namespace lamina

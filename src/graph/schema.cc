#include "graph/schema.h"

#include <array>

#include "base/error.h"

namespace lamina {

#define OP(name, attrs) extern const OpSchema schema_##name;
#include "base/ops.def"
#undef OP

const OpSchema& schema(Op op) {
  switch (op) {
#define OP(name, attrs) \
  case Op::name:        \
    return schema_##name;
#include "base/ops.def"
#undef OP
  }
  LAMINA_CHECK(false, "op {} has no schema", static_cast<int>(op));
}

uint32_t operands_of(const Node& node) {
  const uint32_t bits = schema(node.op).operands;
  const bool may_normalize = node.op == Op::linear_qkv || node.op == Op::linear_gelu;
  return may_normalize && node.inputs[1] != ValueId::none ? bits & ~1u : bits;
}

std::string expect_shape(const char* what, const Shape& expected, const Shape& got) {
  if (expected == got) return {};
  return fmt::format("{}, expected {}, got {}", what, expected.text(), got.text());
}

std::string expect_rank(const char* what, int rank, const Shape& got) {
  if (got.rank == rank) return {};
  return fmt::format("{}, expected {} dimensions, got {}", what, rank, got.text());
}

std::string expect_dropout_keys(const InferCall& call, size_t rng, int64_t B) {
  if (!call.has(rng) || !call.has(rng + 1)) return "dropout without rng and sample";
  if (std::string wrong = expect_shape("rng", Shape{2}, call.shape(rng)); !wrong.empty()) return wrong;
  return expect_shape("sample", Shape{B}, call.shape(rng + 1));
}

Shape leading(const Shape& shape) {
  Shape out = shape;
  LAMINA_CHECK(shape.rank > 0, "a scalar has no leading dimensions");
  out.rank -= 1;
  out[out.rank] = 0;
  return out;
}

Shape with_last(const Shape& shape, int64_t last) {
  Shape out = shape;
  LAMINA_CHECK(shape.rank > 0, "a scalar has no last dimension");
  out[out.rank - 1] = last;
  return out;
}

}  // namespace lamina

#include "base/dtype.h"

#include <array>

#include "base/error.h"

namespace lamina {
namespace {

struct Row {
  Dtype dtype;
  std::string_view name;
  int64_t bytes;
};

constexpr std::array<Row, 9> kDtypes{{{Dtype::f32, "f32", 4},
                                      {Dtype::f64, "f64", 8},
                                      {Dtype::bf16, "bf16", 2},
                                      {Dtype::f16, "f16", 2},
                                      {Dtype::i32, "i32", 4},
                                      {Dtype::i64, "i64", 8},
                                      {Dtype::u8, "u8", 1},
                                      {Dtype::u16, "u16", 2},
                                      {Dtype::u32, "u32", 4}}};

const Row& row(Dtype dtype) {
  const Row& found = kDtypes[static_cast<size_t>(dtype)];
  LAMINA_CHECK(found.dtype == dtype, "dtype table out of order at {}", found.name);
  return found;
}

}  // namespace

int64_t dtype_bytes(Dtype dtype) { return row(dtype).bytes; }

std::string_view dtype_name(Dtype dtype) { return row(dtype).name; }

std::optional<Dtype> parse_dtype(std::string_view name) {
  for (const Row& candidate : kDtypes)
    if (candidate.name == name) return candidate.dtype;
  return std::nullopt;
}

}  // namespace lamina

#include "io/llmc_checkpoint.h"

#include <array>

#include "base/error.h"
#include "io/little_endian.h"

namespace lamina {
namespace {

constexpr uint32_t kMagic = 20240326;
constexpr size_t kHeader = 256 * sizeof(int32_t);

struct Sizes {
  int64_t positions, vocabulary, layers, heads, channels, padded;
};

// A parameter: one tensor, or one for each layer, which lie one after another.
struct Row {
  const char* name;
  bool layered;
  std::vector<int64_t> shape;
};

std::vector<Row> rows_of(const Sizes& s) {
  const int64_t C = s.channels;
  return {{"wte.weight", false, {s.padded, C}},
          {"wpe.weight", false, {s.positions, C}},
          {"ln_1.weight", true, {C}},
          {"ln_1.bias", true, {C}},
          {"attn.c_attn.weight", true, {3 * C, C}},
          {"attn.c_attn.bias", true, {3 * C}},
          {"attn.c_proj.weight", true, {C, C}},
          {"attn.c_proj.bias", true, {C}},
          {"ln_2.weight", true, {C}},
          {"ln_2.bias", true, {C}},
          {"mlp.c_fc.weight", true, {4 * C, C}},
          {"mlp.c_fc.bias", true, {4 * C}},
          {"mlp.c_proj.weight", true, {C, 4 * C}},
          {"mlp.c_proj.bias", true, {C}},
          {"ln_f.weight", false, {C}},
          {"ln_f.bias", false, {C}}};
}

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw_error(ErrorCode::invalid, "bad llm.c checkpoint: {}: {}", where, what);
}

Sizes read_sizes(std::span<const std::byte> file, const std::string& where) {
  if (file.size() < kHeader)
    fail(where, fmt::format("truncated: expected a header of {} bytes, got {}", kHeader, file.size()));
  std::array<int64_t, 6> values{};
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = read_le<int32_t>(file, 4 * (i + 2));
    if (values[i] <= 0 || values[i] > (1 << 24))
      fail(where, fmt::format("header, number {}: expected a size from 1 to 2^24, got {}", i + 2, values[i]));
  }
  const Sizes out{values[0], values[1], values[2], values[3], values[4], values[5]};
  if (out.padded < out.vocabulary)
    fail(where, fmt::format("header: expected a padded vocabulary of at least {}, got {}", out.vocabulary, out.padded));
  if (out.layers > kMaxTensors / 16)
    fail(where, fmt::format("header: expected a number of layers, got {}", out.layers));
  return out;
}

}  // namespace

bool looks_like_llmc(std::span<const std::byte> file) {
  return file.size() >= 8 && read_le<uint32_t>(file, 0) == kMagic;
}

TensorContent parse_llmc(std::span<const std::byte> file, const std::string& where) {
  const int version = file.size() < 8 ? 0 : read_le<int32_t>(file, 4);
  if (version != 3 && version != 5) fail(where, fmt::format("version: expected 3 or 5, got {}", version));
  const Sizes sizes = read_sizes(file, where);
  const int64_t width = version == 3 ? 4 : 2, C = sizes.channels;
  // Sizes of at most 2^24 keep each product below 2^63; the sum is checked as it goes.
  const int64_t layer = 12 * C * C + 13 * C;
  int64_t expected = 0;
  if (__builtin_mul_overflow(layer, sizes.layers, &expected) ||
      __builtin_add_overflow(expected, (sizes.padded + sizes.positions + 2) * C, &expected) ||
      __builtin_mul_overflow(expected, width, &expected) ||
      expected != std::ssize(file) - static_cast<int64_t>(kHeader))
    fail(where, fmt::format("expected the {} bytes of {} layers of width {}, {} positions and {} tokens, got {}",
                            expected, sizes.layers, C, sizes.positions, sizes.padded, file.size() - kHeader));

  TensorContent out{.format = "llm.c", .tensors = {}, .values = {}, .metadata = {}, .sums = {}};
  out.metadata = {{"n_positions", std::to_string(sizes.positions)},
                  {"vocab_size", std::to_string(sizes.vocabulary)},
                  {"n_layer", std::to_string(sizes.layers)},
                  {"n_head", std::to_string(sizes.heads)},
                  {"n_embd", std::to_string(C)},
                  {"padded_vocab_size", std::to_string(sizes.padded)}};
  auto rest = file.subspan(kHeader);
  for (const Row& row : rows_of(sizes)) {
    const int64_t bytes = *packed_bytes(row.shape, width);
    for (int64_t l = 0; l < (row.layered ? sizes.layers : 1); ++l) {
      const std::string front = row.layered ? fmt::format("transformer.h.{}.", l) : std::string("transformer.");
      out.tensors.push_back({front + row.name,
                             version == 3 ? "F32" : "BF16",
                             row.shape,
                             {},
                             {rest.first(static_cast<size_t>(bytes))},
                             bytes});
      rest = rest.subspan(static_cast<size_t>(bytes));
    }
  }
  return out;
}

}  // namespace lamina

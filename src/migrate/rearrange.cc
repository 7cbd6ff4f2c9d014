#include "migrate/rearrange.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"

namespace lamina {
namespace {

// Where each of the first `count` of N begins, in elements.
std::vector<int64_t> columns_of(const ParameterView& view, int64_t count) {
  std::vector<int64_t> out(static_cast<size_t>(count));
  for (int64_t n = 0; n < count; ++n)
    out[static_cast<size_t>(n)] = view.offset + n / view.depth * view.stride_h + n % view.depth * view.stride_d;
  return out;
}

// Tile by tile, so that both sides stay within a few lines of cache whichever of them runs across.
template <typename T>
void move_tiles(const Move& move, const std::byte* from, std::byte* to) {
  constexpr int64_t kTile = 32;
  const std::vector<int64_t> from_n = columns_of(move.from, move.columns), to_n = columns_of(move.to, move.columns);
  const auto place = [](int64_t element) { return static_cast<size_t>(element) * sizeof(T); };
  for (int64_t k0 = 0; k0 < move.rows; k0 += kTile)
    for (int64_t n0 = 0; n0 < move.columns; n0 += kTile)
      for (int64_t k = k0; k < std::min(k0 + kTile, move.rows); ++k)
        for (int64_t n = n0; n < std::min(n0 + kTile, move.columns); ++n) {
          const int64_t source = from_n[static_cast<size_t>(n)] + k * move.from.stride_k;
          const int64_t target = to_n[static_cast<size_t>(n)] + k * move.to.stride_k;
          std::memcpy(to + place(target), from + place(source), sizeof(T));
        }
}

// Runs that lie together on both sides, as in a split by rows or by columns.
bool move_runs(const Move& move, int64_t width, const std::byte* from, std::byte* to) {
  const auto copy = [&](int64_t source, int64_t target, int64_t count) {
    std::memcpy(to + target * width, from + source * width, static_cast<size_t>(count * width));
  };
  if (move.from.stride_k == 1 && move.to.stride_k == 1) {
    const std::vector<int64_t> from_n = columns_of(move.from, move.columns), to_n = columns_of(move.to, move.columns);
    for (size_t n = 0; n < from_n.size(); ++n) copy(from_n[n], to_n[n], move.rows);
    return true;
  }
  if (move.from.stride_d != 1 || move.to.stride_d != 1 || !move.from.even() || !move.to.even()) return false;
  for (int64_t k = 0; k < move.rows; ++k)
    copy(move.from.offset + k * move.from.stride_k, move.to.offset + k * move.to.stride_k, move.columns);
  return true;
}

}  // namespace

void rearrange(const Move& move, int64_t width, std::span<const std::byte> from, std::span<std::byte> to) {
  if (move_runs(move, width, from.data(), to.data())) return;
  switch (width) {
    case 2: return move_tiles<uint16_t>(move, from.data(), to.data());
    case 4: return move_tiles<uint32_t>(move, from.data(), to.data());
    default: LAMINA_CHECK(false, "elements of {} bytes", width);
  }
}

}  // namespace lamina

// Token ids as one long sequence, wherever they lie: pieces of mapped files (16 or 32 bits wide) or of memory, one behind
// the other. It owns no ids and checks none; whoever adds a piece keeps it alive and has checked it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace lamina {

// `data` needs no alignment; width 2 is unsigned, width 4 holds ids below 2^31.
struct TokenPiece {
  const std::byte* data = nullptr;
  int64_t count = 0;
  int width = 4;
};

class TokenStream {
 public:
  void add(const TokenPiece& piece) {
    if (piece.count == 0) return;
    pieces_.push_back(piece);
    size_ += piece.count;
  }

  int64_t size() const { return size_; }

  // Copies the ids from `first` on. Allocates nothing; time grows with the number of pieces, which is small.
  void read(int64_t first, std::span<int32_t> out) const {
    for (const TokenPiece& piece : pieces_) {
      if (out.empty()) return;
      if (first >= piece.count) {
        first -= piece.count;
        continue;
      }
      const int64_t count = std::min(piece.count - first, static_cast<int64_t>(out.size()));
      copy(piece, first, out.first(static_cast<size_t>(count)));
      out = out.subspan(static_cast<size_t>(count));
      first = 0;
    }
  }

  // The ids [begin, end) as a stream of their own.
  TokenStream part(int64_t begin, int64_t end) const {
    TokenStream out;
    for (const TokenPiece& piece : pieces_) {
      const int64_t from = std::clamp<int64_t>(begin, 0, piece.count), to = std::clamp<int64_t>(end, 0, piece.count);
      if (from < to) out.add({piece.data + from * piece.width, to - from, piece.width});
      begin -= piece.count;
      end -= piece.count;
    }
    return out;
  }

 private:
  static void copy(const TokenPiece& piece, int64_t first, std::span<int32_t> out) {
    const std::byte* from = piece.data + first * piece.width;
    if (piece.width == 4) {
      std::memcpy(out.data(), from, out.size_bytes());
      return;
    }
    for (size_t i = 0; i < out.size(); ++i) {
      uint16_t id;
      std::memcpy(&id, from + 2 * i, sizeof(id));
      out[i] = id;
    }
  }

  std::vector<TokenPiece> pieces_;
  int64_t size_ = 0;
};

}  // namespace lamina

#include "io/bpe_train.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <queue>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "io/byte_letters.h"
#include "io/split.h"

namespace lamina {
namespace {

constexpr size_t kLongestPiece = 4096;

using Pair = std::pair<int32_t, int32_t>;

uint64_t key_of(Pair pair) {
  return static_cast<uint64_t>(static_cast<uint32_t>(pair.first)) << 32 | static_cast<uint32_t>(pair.second);
}

// What is known of one pair. Places may be stale (the symbols there have changed) and are checked when used.
struct PairState {
  uint64_t key = 0;
  int64_t count = 0;             // weighted occurrences
  int64_t touched = -1;          // the merge that changed the count last
  std::vector<uint32_t> places;  // of the left symbol
};

// Pair -> place in a list of states. An open-addressed table, at most half full, from which nothing is taken out: most
// of the time of training is spent here, waiting for memory.
class PairIndex {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  PairIndex() { resize(1 << 12); }

  uint32_t find(uint64_t key) const { return slots_[place(key)].index; }

  // Its index, which is `fresh` where the key is new.
  uint32_t find_or_add(uint64_t key, uint32_t fresh) {
    Slot* slot = &slots_[place(key)];
    if (slot->index != kNone) return slot->index;
    if (size_ * 2 >= slots_.size()) {
      resize(slots_.size() * 2);
      slot = &slots_[place(key)];
    }
    *slot = {key, fresh};
    ++size_;
    return fresh;
  }

 private:
  struct Slot {
    uint64_t key = 0;
    uint32_t index = kNone;
  };

  size_t place(uint64_t key) const {
    size_t at = static_cast<size_t>((key ^ key >> 32) * 0x9E3779B97F4A7C15ull >> shift_);
    while (slots_[at].index != kNone && slots_[at].key != key) at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  void resize(size_t size) {
    const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(size));
    shift_ = 64 - std::countr_zero(size);
    for (const Slot& slot : old)
      if (slot.index != kNone) slots_[place(slot.key)] = slot;
  }

  std::vector<Slot> slots_;
  int shift_ = 0;
  size_t size_ = 0;
};

// All distinct pieces one after the other, a cell for each byte; a symbol is the cell of its first byte:
//
//   symbol   t  h  e | t  h  a  t |        after merging (t, h):   th  -  e | th  -  a  t |
//   width    1  1  1   1  1  1  1                                   2  0  1   2  0  1  1
//
// A symbol's right neighbour is `width` places on; its left one is found through `back`, the width of what ends there.
class Trainer {
 public:
  explicit Trainer(const std::vector<std::pair<std::string_view, int64_t>>& pieces) {
    std::array<int32_t, 256> id_of{};
    for (size_t i = 0; i < 256; ++i) {
      id_of[bytes_in_letter_order()[i]] = static_cast<int32_t>(i);
      tokens_.push_back(std::string(1, static_cast<char>(bytes_in_letter_order()[i])));
    }
    for (const auto& [piece, count] : pieces) {
      const size_t begin = cells_.size();
      for (const char byte : piece)
        cells_.push_back({id_of[static_cast<unsigned char>(byte)], 1, 1, static_cast<uint32_t>(weights_.size())});
      weights_.push_back(count);
      for (size_t at = begin; at + 1 < cells_.size(); ++at) add({cells_[at].symbol, cells_[at + 1].symbol}, count, at);
    }
    for (uint32_t i = 0; i < states_.size(); ++i) queue_.push({states_[i].count, states_[i].key, i});
  }

  // Merges the most frequent pair. False where none occurs often enough.
  bool step(int64_t min_count) {
    while (!queue_.empty()) {
      const Candidate top = queue_.top();
      queue_.pop();
      PairState& state = states_[top.state];
      if (state.count != top.count) continue;  // a newer candidate is in the queue
      if (top.count < std::max<int64_t>(min_count, 1)) return false;
      state.count = 0;
      merge({static_cast<int32_t>(top.key >> 32), static_cast<int32_t>(top.key & UINT32_MAX)},
            std::exchange(state.places, {}));
      return true;
    }
    return false;
  }

  std::vector<std::string>& tokens() { return tokens_; }
  std::vector<Pair>& merges() { return merges_; }

 private:
  struct Candidate {
    int64_t count;
    uint64_t key;
    uint32_t state;
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : key > other.key;  // of equals the lower ids come first
    }
  };

  // 16 bytes, so that a symbol and its neighbours lie in one or two cache lines.
  struct Cell {
    int32_t symbol;
    uint32_t width;  // in bytes; 0 where a symbol was swallowed
    uint32_t back;   // at a symbol's last byte: its width
    uint32_t piece;
  };

  PairState& add(Pair pair, int64_t count, size_t place) {
    const uint64_t key = key_of(pair);
    const uint32_t at = index_.find_or_add(key, static_cast<uint32_t>(states_.size()));
    if (at == states_.size()) states_.push_back({.key = key, .places = {}});
    states_[at].count += count;
    states_[at].places.push_back(static_cast<uint32_t>(place));
    return states_[at];
  }

  // The id of left + right: a new one, or that of an equal token made from other parts.
  int32_t result_of(Pair pair) {
    const std::string token = tokens_[static_cast<size_t>(pair.first)] + tokens_[static_cast<size_t>(pair.second)];
    const auto [at, fresh] = made_.emplace(token, static_cast<int32_t>(tokens_.size()));
    if (fresh) tokens_.push_back(token);
    return at->second;
  }

  void merge(Pair pair, std::vector<uint32_t> places) {
    const int32_t result = result_of(pair);
    // A pair can come back when another merge makes one of its parts again; its rank stays the first one.
    if (known_.insert(key_of(pair)).second) merges_.push_back(pair);
    merged_ = key_of(pair);
    ++merge_;
    std::sort(places.begin(), places.end());
    touched_.clear();
    for (const uint32_t at : places) merge_at(pair, result, at);
    for (const uint32_t at : touched_)
      if (states_[at].count > 0) queue_.push({states_[at].count, states_[at].key, at});
  }

  bool same_piece(size_t a, size_t b) const { return b < cells_.size() && cells_[a].piece == cells_[b].piece; }

  void merge_at(Pair pair, int32_t result, size_t at) {
    Cell& cell = cells_[at];
    const size_t right = at + cell.width;
    if (cell.width == 0 || cell.symbol != pair.first) return;
    if (!same_piece(at, right) || cells_[right].symbol != pair.second) return;
    const int64_t weight = weights_[cell.piece];
    if (at > 0 && same_piece(at, at - 1)) {
      const size_t left = at - cells_[at - 1].back;
      replace({cells_[left].symbol, pair.first}, {cells_[left].symbol, result}, weight, left);
    }
    const size_t beyond = right + cells_[right].width;
    if (same_piece(at, beyond))
      replace({pair.second, cells_[beyond].symbol}, {result, cells_[beyond].symbol}, weight, at);
    const uint32_t width = cell.width + cells_[right].width;
    cell.symbol = result;
    cells_[right].width = 0;
    cell.width = width;
    cells_[at + width - 1].back = width;
  }

  void replace(Pair before, Pair after, int64_t weight, size_t place) {
    // The count of the pair that is being merged is gone already.
    if (const uint64_t key = key_of(before); key != merged_) {
      PairState& state = states_[index_.find(key)];
      state.count -= weight;
      touch(state);
    }
    touch(add(after, weight, place));
  }

  void touch(PairState& state) {
    if (std::exchange(state.touched, merge_) != merge_)
      touched_.push_back(static_cast<uint32_t>(&state - states_.data()));
  }

  std::vector<Cell> cells_;
  std::vector<int64_t> weights_;  // of each piece: how often it occurs
  std::vector<PairState> states_;
  PairIndex index_;
  std::priority_queue<Candidate> queue_;
  std::vector<uint32_t> touched_;  // states whose counts a merge changed
  uint64_t merged_ = 0;            // the pair of that merge
  int64_t merge_ = 0;              // and its number
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int32_t> made_;
  std::unordered_set<uint64_t> known_;
  std::vector<Pair> merges_;
};

}  // namespace

size_t BpeTrainer::Hash::operator()(std::string_view text) const { return XXH3_64bits(text.data(), text.size()); }

void BpeTrainer::add(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = piece_end(text, at);
    for (; at < end; at += std::min(kLongestPiece, end - at)) {
      const std::string_view piece = text.substr(at, std::min(kLongestPiece, end - at));
      const auto found = counts_.find(piece);
      if (found != counts_.end())
        ++found->second;
      else
        counts_.emplace(piece, 1);
    }
  }
}

Tokenizer BpeTrainer::train(int64_t vocab_size, int64_t min_count) const {
  if (vocab_size < 257)
    throw_error(ErrorCode::usage, "bad vocabulary size: expected at least 257 (the bytes and {}), got {}", kEndOfText,
                vocab_size);
  std::vector<std::pair<std::string_view, int64_t>> pieces(counts_.begin(), counts_.end());
  std::sort(pieces.begin(), pieces.end());
  size_t bytes = 0;
  for (const auto& [piece, count] : pieces) bytes += piece.size();
  if (bytes >= UINT32_MAX)
    throw_error(ErrorCode::invalid,
                "too much text to learn a vocabulary from: expected at most {} bytes of distinct words, got {}",
                UINT32_MAX, bytes);
  Trainer trainer(pieces);
  while (static_cast<int64_t>(trainer.tokens().size()) + 1 < vocab_size && trainer.step(min_count)) {
  }
  TokenizerParts parts{std::move(trainer.tokens()), {}, std::move(trainer.merges())};
  parts.specials.push_back(static_cast<int32_t>(parts.tokens.size()));
  parts.tokens.push_back(std::string(kEndOfText));
  return Tokenizer(std::move(parts), "training");
}

}  // namespace lamina

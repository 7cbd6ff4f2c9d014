#include "io/bpe_train.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <functional>
#include <queue>
#include <unordered_set>

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

struct KeyHash {
  size_t operator()(uint64_t key) const { return (key ^ key >> 32) * 0x9E3779B97F4A7C15ull; }
};

// What is known of one pair. Places may be stale (the symbols there have changed) and are checked when used.
struct PairState {
  int64_t count = 0;             // weighted occurrences
  std::vector<uint32_t> places;  // of the left symbol
};

// All distinct pieces one after the other, as symbols:
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
      const size_t begin = symbols_.size();
      for (const char byte : piece) symbols_.push_back(id_of[static_cast<unsigned char>(byte)]);
      widths_.insert(widths_.end(), piece.size(), 1);
      piece_of_.insert(piece_of_.end(), piece.size(), static_cast<uint32_t>(weights_.size()));
      weights_.push_back(count);
      for (size_t at = begin; at + 1 < symbols_.size(); ++at) change({symbols_[at], symbols_[at + 1]}, count, at);
    }
    backs_ = widths_;
    for (const auto& [key, state] : pairs_) queue_.push({state.count, key});
  }

  // Merges the most frequent pair. False where none occurs often enough.
  bool step(int64_t min_count) {
    while (!queue_.empty()) {
      const Candidate top = queue_.top();
      queue_.pop();
      const auto at = pairs_.find(top.key);
      if (at == pairs_.end() || at->second.count != top.count) continue;  // a newer candidate is in the queue
      if (top.count < std::max<int64_t>(min_count, 1)) return false;
      std::vector<uint32_t> places = std::move(at->second.places);
      pairs_.erase(at);
      merge({static_cast<int32_t>(top.key >> 32), static_cast<int32_t>(top.key & UINT32_MAX)}, std::move(places));
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
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : key > other.key;  // of equals the lower ids come first
    }
  };

  void change(Pair pair, int64_t count, size_t place) {
    PairState& state = pairs_[key_of(pair)];
    state.count += count;
    if (count > 0) state.places.push_back(static_cast<uint32_t>(place));
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
    std::sort(places.begin(), places.end());
    touched_.clear();
    for (const uint32_t at : places) merge_at(pair, result, at);
    std::sort(touched_.begin(), touched_.end());
    touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
    for (const uint64_t key : touched_)
      if (const auto found = pairs_.find(key); found != pairs_.end() && found->second.count > 0)
        queue_.push({found->second.count, key});
  }

  bool same_piece(size_t a, size_t b) const { return b < symbols_.size() && piece_of_[a] == piece_of_[b]; }

  void merge_at(Pair pair, int32_t result, size_t at) {
    const size_t right = at + widths_[at];
    if (widths_[at] == 0 || symbols_[at] != pair.first) return;
    if (!same_piece(at, right) || symbols_[right] != pair.second) return;
    const int64_t weight = weights_[piece_of_[at]];
    if (at > 0 && same_piece(at, at - 1)) {
      const size_t left = at - backs_[at - 1];
      replace({symbols_[left], pair.first}, {symbols_[left], result}, weight, left);
    }
    const size_t beyond = right + widths_[right];
    if (same_piece(at, beyond)) replace({pair.second, symbols_[beyond]}, {result, symbols_[beyond]}, weight, at);
    const uint32_t width = widths_[at] + widths_[right];
    symbols_[at] = result;
    widths_[right] = 0;
    widths_[at] = width;
    backs_[at + width - 1] = width;
  }

  void replace(Pair before, Pair after, int64_t weight, size_t place) {
    // A count of the pair that is being merged is gone already.
    if (const auto found = pairs_.find(key_of(before)); found != pairs_.end()) {
      found->second.count -= weight;
      touched_.push_back(key_of(before));
    }
    change(after, weight, place);
    touched_.push_back(key_of(after));
  }

  std::vector<int32_t> symbols_;
  std::vector<uint32_t> widths_;  // in bytes; 0 where a symbol was swallowed
  std::vector<uint32_t> backs_;   // at a symbol's last byte: its width
  std::vector<uint32_t> piece_of_;
  std::vector<int64_t> weights_;  // of each piece: how often it occurs
  std::unordered_map<uint64_t, PairState, KeyHash> pairs_;
  std::priority_queue<Candidate> queue_;
  std::vector<uint64_t> touched_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int32_t> made_;
  std::unordered_set<uint64_t, KeyHash> known_;
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
    throw_error(ErrorCode::invalid, "too much text to learn a vocabulary from: {} bytes of distinct words, at most {}",
                bytes, UINT32_MAX);
  Trainer trainer(pieces);
  while (static_cast<int64_t>(trainer.tokens().size()) + 1 < vocab_size && trainer.step(min_count)) {
  }
  TokenizerParts parts{std::move(trainer.tokens()), {}, std::move(trainer.merges())};
  parts.specials.push_back(static_cast<int32_t>(parts.tokens.size()));
  parts.tokens.push_back(std::string(kEndOfText));
  return Tokenizer(std::move(parts), "training");
}

}  // namespace lamina

#include "io/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/error.h"

namespace lamina {
namespace {

constexpr size_t kShort = 48;  // symbols; beyond it the heap is faster

uint64_t key_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

void merge_short(const MergeTable& table, std::vector<int32_t>& symbols, std::vector<MergeTable::Merge>& pairs) {
  size_t n = symbols.size();
  pairs.resize(n + 1);
  for (size_t i = 0; i + 1 < n; ++i) pairs[i] = table.find(symbols[i], symbols[i + 1]);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i)
      if (pairs[i].rank < pairs[best].rank) best = i;
    if (pairs[best].rank == MergeTable::kNone) break;
    symbols[best] = pairs[best].result;
    --n;
    for (size_t i = best + 1; i < n; ++i) {
      symbols[i] = symbols[i + 1];
      pairs[i] = pairs[i + 1];
    }
    // The pairs at `best - 1` and `best` have a new member.
    if (best > 0) pairs[best - 1] = table.find(symbols[best - 1], symbols[best]);
    if (best + 1 < n) pairs[best] = table.find(symbols[best], symbols[best + 1]);
  }
  symbols.resize(n);
}

// Symbols are a doubly linked list; a merged one is marked -1. A heap entry counts only while its rank is still the
// pair's.
class LongMerge {
 public:
  LongMerge(const MergeTable& table, std::vector<int32_t>& symbols, MergeScratch& scratch)
      : table_(table), symbols_(symbols), s_(scratch) {
    const size_t n = symbols.size();
    s_.pairs.assign(n, {});
    s_.previous.resize(n);
    s_.next.resize(n);
    s_.heap.clear();
    for (size_t i = 0; i < n; ++i) {
      s_.previous[i] = static_cast<int32_t>(i) - 1;
      s_.next[i] = i + 1 < n ? static_cast<int32_t>(i + 1) : -1;
      if (i + 1 < n) look_up(i);
    }
    std::make_heap(s_.heap.begin(), s_.heap.end(), std::greater<>());
    built_ = true;
  }

  void run() {
    while (!s_.heap.empty()) {
      std::pop_heap(s_.heap.begin(), s_.heap.end(), std::greater<>());
      const uint64_t top = s_.heap.back();
      s_.heap.pop_back();
      const auto at = static_cast<size_t>(top & UINT32_MAX);
      if (symbols_[at] >= 0 && s_.pairs[at].rank == top >> 32) merge(at);
    }
    symbols_.erase(std::remove(symbols_.begin(), symbols_.end(), -1), symbols_.end());
  }

 private:
  void look_up(size_t at) {
    const auto right = static_cast<size_t>(s_.next[at]);
    s_.pairs[at] = table_.find(symbols_[at], symbols_[right]);
    if (s_.pairs[at].rank == MergeTable::kNone) return;
    s_.heap.push_back(static_cast<uint64_t>(s_.pairs[at].rank) << 32 | at);
    if (built_) std::push_heap(s_.heap.begin(), s_.heap.end(), std::greater<>());
  }

  void merge(size_t at) {
    const auto right = static_cast<size_t>(s_.next[at]);
    symbols_[at] = s_.pairs[at].result;
    symbols_[right] = -1;
    s_.pairs[at] = s_.pairs[right] = {};
    s_.next[at] = s_.next[right];
    if (s_.next[at] >= 0) {
      s_.previous[static_cast<size_t>(s_.next[at])] = static_cast<int32_t>(at);
      look_up(at);
    }
    if (s_.previous[at] >= 0) look_up(static_cast<size_t>(s_.previous[at]));
  }

  const MergeTable& table_;
  std::vector<int32_t>& symbols_;
  MergeScratch& s_;
  bool built_ = false;
};

}  // namespace

MergeTable::MergeTable(size_t merges) {
  const size_t slots = std::bit_ceil(std::max<size_t>(merges * 2, 16));
  slots_.resize(slots);
  shift_ = 64 - std::countr_zero(slots);
}

size_t MergeTable::place(uint64_t key) const {
  size_t at = static_cast<size_t>((key ^ key >> 32) * 0x9E3779B97F4A7C15ull >> shift_);
  while (slots_[at].key != key && slots_[at].key != kEmpty) at = (at + 1) & (slots_.size() - 1);
  return at;
}

bool MergeTable::add(int32_t left, int32_t right, Merge merge) {
  Slot& slot = slots_[place(key_of(left, right))];
  if (slot.key != kEmpty) return false;
  LAMINA_CHECK(size_ * 2 < slots_.size(), "merge table of {} slots is full", slots_.size());
  slot = {key_of(left, right), merge};
  ++size_;
  return true;
}

MergeTable::Merge MergeTable::find(int32_t left, int32_t right) const {
  return slots_[place(key_of(left, right))].merge;
}

void bpe_merge(const MergeTable& table, std::vector<int32_t>& symbols, MergeScratch& scratch) {
  if (symbols.size() < 2) return;
  if (symbols.size() <= kShort) return merge_short(table, symbols, scratch.pairs);
  LongMerge(table, symbols, scratch).run();
}

}  // namespace lamina

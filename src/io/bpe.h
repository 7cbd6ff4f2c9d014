// Byte-pair merging of one piece: again and again the pair of neighbours with the lowest rank, the leftmost of equals,
// until none is in the table. Knows ids and ranks only; no text, no files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lamina {

// (left, right) -> rank and result. An open-addressed table, at most half full.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank = kNone;
    int32_t result = -1;
  };
  static constexpr uint32_t kNone = UINT32_MAX;

  explicit MergeTable(size_t merges = 0);
  bool add(int32_t left, int32_t right, Merge merge);  // false where the pair is there already
  Merge find(int32_t left, int32_t right) const;       // rank kNone where it is not
  size_t size() const { return size_; }

 private:
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };
  static constexpr uint64_t kEmpty = UINT64_MAX;
  size_t place(uint64_t key) const;

  std::vector<Slot> slots_;
  int shift_ = 0;
  size_t size_ = 0;
};

// Working memory, kept between calls.
struct MergeScratch {
  std::vector<MergeTable::Merge> pairs;  // of symbol i with its right neighbour
  std::vector<int32_t> previous, next;
  std::vector<uint64_t> heap;  // rank << 32 | position
};

// Merges in place. O(n²) with a small constant for short pieces, O(n log n) beyond; the results are the same.
void bpe_merge(const MergeTable& table, std::vector<int32_t>& symbols, MergeScratch& scratch);

}  // namespace lamina

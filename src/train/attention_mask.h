// Attention masks as people have them, in and out of other frameworks, to `key_begin`: the first key that each query
// sees. The only place that knows a form of mask; programs and kernels know `key_begin` alone.
//
//   shape            (B, T) · (B, 1, T) · (B, 1, 1, T)   which tokens are no padding
//                    (T, T) · (B, T, T) · (B, 1, T, T)   what each query sees, with or without causality: what lies
//                                                        behind a query never counts. 1 in place of B: all rows
//   bool, integers   1 visible, 0 masked
//   floats           0 visible, kMasked and less masked; or 1 and 0 as above, if there is a 1
//
// A query can see one run of keys that ends at itself, or nothing. That is padding on either side, documents in one row
// and sliding windows; a hole is an error.
//
//   T = 5    1 1 1 0 0    key_begin 0 0 0 4 5   (T, T), a document a block   1 . . . .    key_begin 0
//            0 0 1 1 1              1 2 2 2 2                                1 1 . . .              0
//            1 1 0 1 1    a hole: query 3, key 2                             0 0 1 . .              2
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lamina {

enum class MaskType : uint8_t { i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64 };  // bool is u8

// Somebody's array, as it lies.
struct MaskView {
  const void* data = nullptr;
  MaskType type = MaskType::u8;
  std::vector<int64_t> shape = {};
  std::vector<int64_t> strides = {};  // in elements
};

// What the -10000 of many programs is in bfloat16. exp() of it is 0 in every type.
inline constexpr double kMasked = -9984.0;

// (rows, width): key_begin of each place, one behind itself where it sees nothing. A place that does not see itself is
// padding and sees nothing, whatever its query says, as long as no other place sees it. Throws Error(invalid) that
// names row, query and key.
std::vector<int32_t> key_begin_of(const MaskView& mask, int64_t rows, int64_t width);

// Takes targets of one row out: a place that sees nothing predicts nothing. Where `key_begin` has one entry more than
// there are targets, these are the ids one place on, and are also taken out where they do not see the place before
// them: nothing is predicted across the border of a text.
void hide_targets(std::span<const int32_t> key_begin, std::span<int32_t> targets);

}  // namespace lamina

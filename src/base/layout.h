// How the elements of a tensor lie in memory. Layout is part of a tensor's value: one pass sets it, pack and unpack
// are explicit, and the verifier checks what each kernel reads.
//
//   row_major      (…, C), the last dimension contiguous
//   panel, nr      a matrix W (K, N) cut into panels of nr columns, each panel with its K rows contiguous:
//
//                     n:   0 … nr-1   nr … 2nr-1
//                  k=0     a a a a    e e e e          memory: a b c … | e f g …
//                  k=1     b b b b    f f f f          element (k, n) at (n/nr)*K*nr + k*nr + n%nr
//                  k=2     c c c c    g g g g          columns N … Np-1 of the last panel are zero
//
// A weight has its panel as its only home; loading and saving convert.
#pragma once

#include <cstdint>
#include <string>

#include "base/shape.h"

namespace lamina {

enum class LayoutKind : uint8_t { row_major, panel };

struct Layout {
  LayoutKind kind = LayoutKind::row_major;
  int32_t nr = 0;  // columns of one panel; 0 for row_major

  static Layout row_major() { return {}; }
  static Layout panel(int32_t nr) { return {LayoutKind::panel, nr}; }
  bool operator==(const Layout&) const = default;
  std::string text() const;  // "row_major", "panel16"
};

// Elements that a tensor of this shape occupies, padding of the last panel included.
int64_t storage_elements(const Shape& shape, const Layout& layout);

// src (K, N) with element (k, n) at src[k*stride_k + n*stride_n]  ->  dst, panels of nr columns, padding zero.
void pack_panel(const float* src, int64_t stride_k, int64_t stride_n, float* dst, int64_t K, int64_t N, int64_t nr);
// The inverse; the padding is not read.
void unpack_panel(const float* src, float* dst, int64_t stride_k, int64_t stride_n, int64_t K, int64_t N, int64_t nr);

}  // namespace lamina

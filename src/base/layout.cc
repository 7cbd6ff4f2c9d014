#include "base/layout.h"

#include <algorithm>

#include "base/error.h"

namespace lamina {

std::string Layout::text() const { return kind == LayoutKind::row_major ? "row_major" : "panel" + std::to_string(nr); }

int64_t storage_elements(const Shape& shape, const Layout& layout) {
  if (layout.kind == LayoutKind::row_major) return shape.elements();
  LAMINA_CHECK(shape.rank == 2 && layout.nr > 0, "panel layout on shape {}", shape.text());
  return shape[0] * ((shape[1] + layout.nr - 1) / layout.nr) * layout.nr;
}

void pack_panel(const float* src, int64_t stride_k, int64_t stride_n, float* dst, int64_t K, int64_t N, int64_t nr) {
  for (int64_t n0 = 0; n0 < N; n0 += nr) {
    const int64_t width = std::min(nr, N - n0);
    float* panel = dst + n0 * K;
    for (int64_t k = 0; k < K; ++k) {
      for (int64_t n = 0; n < width; ++n) panel[k * nr + n] = src[k * stride_k + (n0 + n) * stride_n];
      for (int64_t n = width; n < nr; ++n) panel[k * nr + n] = 0.0f;
    }
  }
}

void unpack_panel(const float* src, float* dst, int64_t stride_k, int64_t stride_n, int64_t K, int64_t N, int64_t nr) {
  for (int64_t n0 = 0; n0 < N; n0 += nr) {
    const int64_t width = std::min(nr, N - n0);
    const float* panel = src + n0 * K;
    for (int64_t k = 0; k < K; ++k)
      for (int64_t n = 0; n < width; ++n) dst[k * stride_k + (n0 + n) * stride_n] = panel[k * nr + n];
  }
}

}  // namespace lamina

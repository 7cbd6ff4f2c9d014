#include "base/shape.h"

#include "base/error.h"

namespace lamina {

Shape::Shape(std::initializer_list<int64_t> sizes) {
  LAMINA_CHECK(sizes.size() <= kMaxRank, "rank {} above {}", sizes.size(), kMaxRank);
  for (int64_t size : sizes) {
    LAMINA_CHECK(size >= 0, "negative dimension {}", size);
    dims[static_cast<size_t>(rank++)] = size;
  }
}

int64_t Shape::elements() const {
  int64_t product = 1;
  for (int i = 0; i < rank; ++i) product *= (*this)[i];
  return product;
}

int64_t Shape::rows() const {
  int64_t product = 1;
  for (int i = 0; i + 1 < rank; ++i) product *= (*this)[i];
  return product;
}

std::string Shape::text() const {
  if (rank == 0) return "scalar";
  std::string out = std::to_string((*this)[0]);
  for (int i = 1; i < rank; ++i) out += "x" + std::to_string((*this)[i]);
  return out;
}

}  // namespace lamina

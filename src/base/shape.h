// Shape of a tensor: up to four dimensions, row-major meaning, held by value.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace lamina {

struct Shape {
  static constexpr int kMaxRank = 4;

  int32_t rank = 0;
  std::array<int64_t, kMaxRank> dims{};  // unused entries are 0

  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes);

  int64_t operator[](int i) const { return dims[static_cast<size_t>(i)]; }
  int64_t& operator[](int i) { return dims[static_cast<size_t>(i)]; }
  int64_t last() const { return rank == 0 ? 1 : dims[static_cast<size_t>(rank - 1)]; }
  int64_t elements() const;  // 1 for a scalar, 0 for any zero dimension
  int64_t rows() const;      // product of all dimensions but the last
  bool operator==(const Shape&) const = default;
  std::string text() const;  // "2x3x4"; "scalar" for rank 0
};

}  // namespace lamina

#include "call.h"

#include <string_view>

namespace lamina::fused {

Call::Call(int count, void** data, const int* ranks, int64_t** shapes, const char** dtypes, int expected)
    : data_(data), ranks_(ranks), shapes_(shapes), dtypes_(dtypes) {
  if (count != expected || data == nullptr || ranks == nullptr || shapes == nullptr || dtypes == nullptr)
    throw Refused{Code::arguments};
}

Shape Call::shape(int i, int rank) const {
  if (ranks_[i] != rank || rank > Shape::kMaxRank) throw Refused{Code::shape};
  Shape shape;
  shape.rank = rank;
  int64_t elements = 1;
  for (int d = 0; d < rank; ++d) {
    shape[d] = shapes_[i][d];
    if (shape[d] < 1 || shape[d] > kMostElements / elements) throw Refused{Code::shape};
    elements *= shape[d];
  }
  return shape;
}

void* Call::checked(int i, const char* dtype, const Shape& expected) const {
  if (shape(i, expected.rank) != expected) throw Refused{Code::shape};
  if (dtypes_[i] == nullptr || std::string_view(dtypes_[i]) != dtype) throw Refused{Code::dtype};
  if (data_[i] == nullptr) throw Refused{Code::arguments};
  return data_[i];
}

TensorArg Call::floats(int i, const Shape& expected, const Shape& as) const {
  return {checked(i, "float32", expected), as, {}, Dtype::f32};
}

const double* Call::doubles(int i, const Shape& expected) const {
  return static_cast<const double*>(checked(i, "float64", expected));
}

int32_t* Call::ints(int i, const Shape& expected) const { return static_cast<int32_t*>(checked(i, "int32", expected)); }

const uint8_t* Call::bools(int i, const Shape& expected) const {
  return static_cast<const uint8_t*>(checked(i, "bool", expected));
}

}  // namespace lamina::fused

// One call of a custom operator as MindSpore makes it, and the checks at its entry: the library must not trust a number
// of what it is handed, since a wrong size would write over the host's memory.
#pragma once

#include "kernels/kernel.h"

namespace lamina::fused {

// What an entry returns; MindSpore's error names the number, docs/mindspore.md says what it means.
enum class Code : int {
  done = 0,
  arguments = 1,    // another number of inputs and outputs
  dtype = 2,        // of one of them
  shape = 3,        // of one of them
  setting = 4,      // heads, epsilon, scale, dropout
  mask = 5,         // with a hole, or not causal
  memory = 6,       // for weights in panels and what a call needs while it runs
  environment = 7,  // LAMINA_THREADS, LAMINA_ISA, or no threads to be had
};

// Thrown inside the library, never out of it.
struct Refused {
  Code code;
};

constexpr int64_t kMostElements = int64_t{1}
                                  << 40;  // of a tensor: sums and products of sizes stay far from their limit

// Inputs, then outputs. Tensors are row-major; a shape of MindSpore's must be the expected one to the number.
class Call {
 public:
  Call(int count, void** data, const int* ranks, int64_t** shapes, const char** dtypes, int expected);

  // Any shape of this rank with one to kMostElements elements.
  Shape shape(int i, int rank) const;
  // The kernels see it as `as`, of the same size.
  TensorArg floats(int i, const Shape& expected, const Shape& as) const;
  TensorArg floats(int i, const Shape& expected) const { return floats(i, expected, expected); }
  const double* doubles(int i, const Shape& expected) const;
  int32_t* ints(int i, const Shape& expected) const;
  const uint8_t* bools(int i, const Shape& expected) const;

 private:
  void* checked(int i, const char* dtype, const Shape& expected) const;

  void** data_;
  const int* ranks_;
  int64_t** shapes_;
  const char** dtypes_;
};

}  // namespace lamina::fused

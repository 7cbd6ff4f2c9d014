// Operands of a matrix product as its tiles read them: fp32 in memory becomes what the precision of the product holds,
// 16 bits become fp32. Packing does this on its way, and what is not packed in fp32 is prepared in scratch.
#pragma once

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/narrow.h"

namespace lamina::LAMINA_ISA_NAMESPACE {

// n numbers that follow each other along the sum, for broadcasts.
LAMINA_FLATTEN LAMINA_NOINLINE void prepare_row(const Numbers& from, int64_t n, Dtype precision, float* to) {
  load_operands(from, n, precision, to);
}

// n rows of a panel of weights, for vectors.
LAMINA_FLATTEN LAMINA_NOINLINE void prepare_panel(const float* from, int64_t n, Dtype precision, float* to) {
  round_row(from, n * kPanel, precision, to);
}

}  // namespace lamina::LAMINA_ISA_NAMESPACE

#include "kernels/product_cost.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <new>
#include <vector>

#include "base/error.h"

namespace lamina {
namespace {

constexpr int64_t kRows = 256, kWidth = 768;
constexpr int kRuns = 5;

// A linear on made-up operands, as the session would run it.
class Product {
 public:
  Product(const KernelTable& table, Dtype precision)
      : kernel_(*find_kernel(table, Op::linear)),
        x_(kRows * kWidth, 0.5f),
        weight_(static_cast<size_t>(storage_elements({kWidth, kWidth}, Layout::panel(table.nr))), 0.25f),
        y_(kRows * kWidth) {
    in_[0] = {x_.data(), {kRows, kWidth}, {}};
    in_[1] = {weight_.data(), {kWidth, kWidth}, Layout::panel(table.nr)};
    out_[0] = {y_.data(), {kRows, kWidth}, {}};
    args_ = {in_, out_, 2, 1, nullptr, precision};
    scratch_.resize(static_cast<size_t>(kernel_.scratch(args_)) / sizeof(Line) + 1);
  }
  Product(const Product&) = delete;

  double seconds() {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    kernel_.run(args_, 0, kernel_.tasks(args_), reinterpret_cast<std::byte*>(scratch_.data()));
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };

  const Kernel& kernel_;
  std::vector<float> x_, weight_, y_;
  std::vector<Line> scratch_;
  TensorArg in_[2], out_[1];
  Args args_;
};

}  // namespace

double product_cost(Isa isa, Arithmetic arithmetic, Dtype precision) {
  const KernelTable* table = kernel_table(isa, arithmetic);
  LAMINA_CHECK(table != nullptr, "no products in {} on {}", arithmetic_name(arithmetic), isa_name(isa));
  Product wide(kernel_table(isa), Dtype::f32), narrow(*table, precision);
  double in_fp32 = HUGE_VAL, in_16_bits = HUGE_VAL;
  for (int i = 0; i <= kRuns; ++i) {
    in_fp32 = std::min(in_fp32, wide.seconds());
    in_16_bits = std::min(in_16_bits, narrow.seconds());
  }
  return in_16_bits / in_fp32;
}

}  // namespace lamina

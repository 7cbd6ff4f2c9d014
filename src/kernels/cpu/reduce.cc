// weighted_sum, square_sum, norm, clip_factor. Sums go over runs of kRun elements in fp32 and from there into a double,
// so that their error does not grow with the number of elements.
#include "kernels/cpu/args.h"

namespace lamina::LAMINA_ISA_NAMESPACE {
namespace {

constexpr int64_t kRun = 1024;

LAMINA_FLATTEN void run_weighted_sum(const Args& args, int64_t, int64_t, std::byte*) noexcept {
  const float* x = input(args, 0);
  const int64_t n = element_count(args.in[0]);
  double sum = 0.0;
  for (int64_t first = 0; first < n; first += kRun) {
    const float* run = x + first;
    sum += static_cast<double>(
        sum_lanes(smaller(kRun, n - first), [=](int64_t i, auto lanes) { return lanes.load(run + i); }));
  }
  *output(args, 0) = static_cast<float>(sum * static_cast<double>(*input(args, 1)));
}

int64_t block_tasks(const Args& args) noexcept { return ceil_div(storage_count(args.in[0]), kSquareSumBlock); }

LAMINA_FLATTEN void run_square_sum(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  const float* x = input(args, 0);
  const int64_t n = storage_count(args.in[0]);
  for (int64_t block = begin; block < end; ++block) {
    const int64_t stop = smaller((block + 1) * kSquareSumBlock, n);
    double sum = 0.0;
    for (int64_t first = block * kSquareSumBlock; first < stop; first += kRun) {
      const float* run = x + first;
      sum += static_cast<double>(sum_lanes(smaller(kRun, stop - first), [=](int64_t i, auto lanes) {
        const Vec v = lanes.load(run + i);
        return mul(v, v);
      }));
    }
    output(args, 0)[block] = static_cast<float>(sum);
  }
}

void run_norm(const Args& args, int64_t, int64_t, std::byte*) noexcept {
  double total = 0.0;
  for (int32_t t = 0; t < args.n_in; ++t) {
    const int64_t n = element_count(args.in[t]);
    for (int64_t i = 0; i < n; ++i) total += static_cast<double>(input(args, t)[i]);
  }
  *output(args, 0) = static_cast<float>(__builtin_sqrt(total));
}

void run_clip_factor(const Args& args, int64_t, int64_t, std::byte*) noexcept {
  const double max_norm = attrs_of<ClipAttrs>(args).max_norm;
  const float norm = *input(args, 0);
  const float scale = input(args, 2) == nullptr ? 1.0f : *input(args, 2);  // of the gradients
  const double wanted = max_norm / (static_cast<double>(norm) / static_cast<double>(scale) + 1e-6);
  float factor = (max_norm > 0.0 && wanted < 1.0 ? static_cast<float>(wanted) : 1.0f) / scale;
  if (!__builtin_isfinite(norm) || !__builtin_isfinite(*input(args, 1))) factor = __builtin_nanf("");
  *output(args, 0) = factor;
}

}  // namespace

LAMINA_KERNEL_F32(weighted_sum, one_task);
LAMINA_KERNEL_F32(square_sum, block_tasks);
LAMINA_KERNEL_F32(norm, one_task);
LAMINA_KERNEL_F32(clip_factor, one_task);

}  // namespace lamina::LAMINA_ISA_NAMESPACE

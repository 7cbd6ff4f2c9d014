// gelu and gelu_bwd, over storage.
#include "kernels/cpu/gelu.h"

namespace lamina::LAMINA_ISA_NAMESPACE {
namespace {

LAMINA_FLATTEN void run_gelu(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  const float* x = input(args, 0);
  float* y = output(args, 0);
  const int64_t last = smaller(end * kTaskElements, storage_count(args.out[0]));
  if (attrs_of<GeluAttrs>(args).tanh) {
    for_lanes(begin * kTaskElements, last,
              [=](int64_t i, auto lanes) { lanes.store(y + i, gelu_tanh(lanes.load(x + i))); });
  } else {
    for_lanes(begin * kTaskElements, last,
              [=](int64_t i, auto lanes) { lanes.store(y + i, gelu_exact(lanes.load(x + i))); });
  }
}

LAMINA_FLATTEN void run_gelu_bwd(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  const float* dy = input(args, 0);
  const float* x = input(args, 1);
  float* dx = output(args, 0);
  const int64_t last = smaller(end * kTaskElements, storage_count(args.out[0]));
  if (attrs_of<GeluAttrs>(args).tanh) {
    for_lanes(begin * kTaskElements, last, [=](int64_t i, auto lanes) {
      lanes.store(dx + i, mul(lanes.load(dy + i), gelu_tanh_slope(lanes.load(x + i))));
    });
  } else {
    for_lanes(begin * kTaskElements, last, [=](int64_t i, auto lanes) {
      lanes.store(dx + i, mul(lanes.load(dy + i), gelu_exact_slope(lanes.load(x + i))));
    });
  }
}

}  // namespace

LAMINA_KERNEL_F32(gelu, element_tasks);
LAMINA_KERNEL_F32(gelu_bwd, element_tasks);

}  // namespace lamina::LAMINA_ISA_NAMESPACE

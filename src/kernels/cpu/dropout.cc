// dropout, over storage.
#include "kernels/cpu/dropout.h"

namespace lamina::LAMINA_ISA_NAMESPACE {
namespace {

LAMINA_FLATTEN void run_dropout(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  const auto& a = attrs_of<DropoutAttrs>(args);
  const float* x = input(args, 0);
  float* y = output(args, 0);
  int64_t i = begin * kTaskElements;
  const int64_t last = smaller(end * kTaskElements, storage_count(args.out[0]));
  if (!a.training) {
    for_lanes(i, last, [=](int64_t e, auto lanes) { lanes.store(y + e, lanes.load(x + e)); });
    return;
  }
  const ResidualDropout drop =
      residual_dropout(a, input_i64(args, 1), input_i64(args, 2), dims(args.in[0])[1] * dims(args.in[0])[2]);
  while (i < last) {
    const int64_t first = i / drop.elements * drop.elements;
    const int64_t stop = smaller(last, first + drop.elements);
    const uint64_t key = drop.key(i / drop.elements);
    for_lanes(i, stop, [=](int64_t e, auto lanes) { lanes.store(y + e, drop(lanes.load(x + e), key, e - first)); });
    i = stop;
  }
}

}  // namespace

LAMINA_KERNEL_F32(dropout, element_tasks);

}  // namespace lamina::LAMINA_ISA_NAMESPACE

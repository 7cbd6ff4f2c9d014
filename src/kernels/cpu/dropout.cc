// dropout of the residual stream. Element t*C + c of a sample is decided by the sample's key alone, so a task may begin
// anywhere.
#include "base/rng.h"
#include "kernels/cpu/args.h"

namespace lamina::LAMINA_ISA_NAMESPACE {
namespace {

// Elements [begin, end) of one sample.
LAMINA_INLINE void drop(const float* x, float* y, int64_t begin, int64_t end, uint64_t key, double p) {
  const Int threshold = broadcast_int(static_cast<uint32_t>(p * 4294967296.0));
  const Vec factor = broadcast(static_cast<float>(1.0 / (1.0 - p)));
  for_lanes(begin, end, [=](int64_t i, auto lanes) {
    const Mask dropped = less_unsigned(dropout_bits(key, static_cast<uint32_t>(i)), threshold);
    lanes.store(y + i, select(dropped, zero(), mul(factor, lanes.load(x + i))));
  });
}

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
  if (a.p >= 1.0) {
    for_lanes(i, last, [=](int64_t e, auto lanes) { lanes.store(y + e, zero()); });
    return;
  }
  const int64_t* rng = input_i64(args, 1);
  const int64_t* sample = input_i64(args, 2);
  const int64_t per_sample = dims(args.in[0])[1] * dims(args.in[0])[2];
  while (i < last) {
    const int64_t b = i / per_sample;
    const int64_t first = b * per_sample;
    const int64_t stop = smaller(last, first + per_sample);
    const uint64_t key = dropout_key(static_cast<uint64_t>(rng[0]), static_cast<uint64_t>(rng[1]),
                                     static_cast<uint64_t>(sample[b]), static_cast<uint64_t>(a.site));
    drop(x + first, y + first, i - first, stop - first, key, a.p);
    i = stop;
  }
}

}  // namespace

LAMINA_KERNEL_F32(dropout, element_tasks);

}  // namespace lamina::LAMINA_ISA_NAMESPACE

// adamw over memory, panels and their padding included. Bound by memory: four streams in, three of them out again.
#include "kernels/cpu/adamw.h"

namespace lamina::LAMINA_ISA_NAMESPACE {
namespace {

LAMINA_FLATTEN void run_adamw(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  const float* in[4] = {input(args, 0), input(args, 1), input(args, 2), input(args, 3)};
  float* out[3] = {output(args, 0), output(args, 1), output(args, 2)};
  const int64_t first = begin * kTaskElements;
  const int64_t last = smaller(end * kTaskElements, storage_count(args.out[0]));
  const float factor = input(args, 5) == nullptr ? 1.0f : *input(args, 5);
  if (!__builtin_isfinite(factor)) {
    for (int t = 0; t < 3; ++t) {
      const float* from = in[t];
      float* to = out[t];
      if (from != to) for_lanes(first, last, [=](int64_t i, auto lanes) { lanes.store(to + i, lanes.load(from + i)); });
    }
    return;
  }
  const AdamWFactors f = adamw_factors(attrs_of<AdamWAttrs>(args), input(args, 4), factor);
  for_lanes(first, last, [=, &f](int64_t i, auto lanes) {
    const AdamWState s =
        adamw_step(f, {lanes.load(in[0] + i), lanes.load(in[1] + i), lanes.load(in[2] + i)}, lanes.load(in[3] + i));
    lanes.store(out[0] + i, s.param);
    lanes.store(out[1] + i, s.m);
    lanes.store(out[2] + i, s.v);
  });
}

}  // namespace

LAMINA_KERNEL_F32(adamw, element_tasks);

}  // namespace lamina::LAMINA_ISA_NAMESPACE

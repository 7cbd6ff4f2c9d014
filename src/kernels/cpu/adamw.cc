// adamw over memory, panels and their padding included: an element whose m is 0 moves by its decay only, so padding
// stays zero whatever eps is. Bound by memory: four streams in, three of them out again.
#include "kernels/cpu/args.h"

namespace lamina::LAMINA_ISA_NAMESPACE {
namespace {

struct AdamWFactors {
  Vec grad, decay, beta1, rest1, beta2, rest2, root, eps, step;
};

LAMINA_INLINE AdamWFactors factors_of(const Args& args) {
  const auto& a = attrs_of<AdamWAttrs>(args);
  const float* hyper = input(args, 4);
  return {broadcast(*input(args, 5)),
          broadcast(static_cast<float>(static_cast<double>(hyper[0]) * a.weight_decay)),
          broadcast(static_cast<float>(a.beta1)),
          broadcast(static_cast<float>(1.0 - a.beta1)),
          broadcast(static_cast<float>(a.beta2)),
          broadcast(static_cast<float>(1.0 - a.beta2)),
          broadcast(1.0f / hyper[2]),
          broadcast(static_cast<float>(a.eps)),
          broadcast(hyper[1])};
}

struct AdamWState {
  Vec param, m, v;
};

LAMINA_INLINE AdamWState step(const AdamWFactors& f, AdamWState s, Vec grad) {
  grad = mul(grad, f.grad);
  s.param = fnma(f.decay, s.param, s.param);
  s.m = fma(f.rest1, grad, mul(f.beta1, s.m));
  s.v = fma(mul(f.rest2, grad), grad, mul(f.beta2, s.v));
  const Vec move = div(mul(f.step, s.m), fma(sqrt(s.v), f.root, f.eps));
  s.param = select(equal(s.m, zero()), s.param, sub(s.param, move));
  return s;
}

LAMINA_FLATTEN void run_adamw(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  const float* in[4] = {input(args, 0), input(args, 1), input(args, 2), input(args, 3)};
  float* out[3] = {output(args, 0), output(args, 1), output(args, 2)};
  const int64_t first = begin * kTaskElements;
  const int64_t last = smaller(end * kTaskElements, storage_count(args.out[0]));
  if (!__builtin_isfinite(*input(args, 5))) {
    for (int t = 0; t < 3; ++t) {
      const float* from = in[t];
      float* to = out[t];
      if (from != to) for_lanes(first, last, [=](int64_t i, auto lanes) { lanes.store(to + i, lanes.load(from + i)); });
    }
    return;
  }
  const AdamWFactors f = factors_of(args);
  for_lanes(first, last, [=, &f](int64_t i, auto lanes) {
    const AdamWState s =
        step(f, {lanes.load(in[0] + i), lanes.load(in[1] + i), lanes.load(in[2] + i)}, lanes.load(in[3] + i));
    lanes.store(out[0] + i, s.param);
    lanes.store(out[1] + i, s.m);
    lanes.store(out[2] + i, s.v);
  });
}

}  // namespace

LAMINA_KERNEL_F32(adamw, element_tasks);

}  // namespace lamina::LAMINA_ISA_NAMESPACE

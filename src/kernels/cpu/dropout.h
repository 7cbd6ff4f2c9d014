// Dropout of the residual stream. Element t*C + c of a sample is decided by the sample's key alone, so a kernel may
// begin anywhere.
#pragma once

#include "base/rng.h"
#include "kernels/cpu/args.h"

namespace lamina::LAMINA_ISA_NAMESPACE {

struct ResidualDropout {
  const int64_t *rng, *sample;
  uint64_t site;
  uint32_t threshold;
  float factor;      // of a kept element
  bool all;          // p = 1: nothing is kept, and 2^32 is no threshold
  int64_t elements;  // of one sample

  LAMINA_MEMBER uint64_t key(int64_t b) const {
    return dropout_key(static_cast<uint64_t>(rng[0]), static_cast<uint64_t>(rng[1]), static_cast<uint64_t>(sample[b]),
                       site);
  }
  // x, the elements from `element` on of the sample with this key, with some of them dropped.
  LAMINA_MEMBER Vec operator()(Vec x, uint64_t key, int64_t element) const {
    if (all) return zero();
    const Mask dropped = less_unsigned(dropout_bits(key, static_cast<uint32_t>(element)), broadcast_int(threshold));
    return select(dropped, zero(), mul(broadcast(factor), x));
  }
};

LAMINA_INLINE ResidualDropout residual_dropout(const DropoutAttrs& a, const int64_t* rng, const int64_t* sample,
                                               int64_t elements_per_sample) {
  const bool all = a.p >= 1.0;
  return {rng,
          sample,
          static_cast<uint64_t>(a.site),
          all ? 0 : dropout_threshold(a.p),
          all ? 0.0f : static_cast<float>(1.0 / (1.0 - a.p)),
          all,
          elements_per_sample};
}

}  // namespace lamina::LAMINA_ISA_NAMESPACE

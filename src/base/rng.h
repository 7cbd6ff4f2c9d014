// Counter-based random numbers: a value is a pure function of its key, so that nothing depends on the order of calls,
// on threads, on micro-batches or on recomputation.
#pragma once

#include <cstdint>

namespace lamina {

// The output function of SplitMix64 (Steele, Lea, Flood 2014): a bijection of 64-bit words with full avalanche.
constexpr uint64_t mix64(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

constexpr uint64_t hash_combine(uint64_t key, uint64_t word) { return mix64(key + 0x9E3779B97F4A7C15ull * (word + 1)); }

// A 32-bit finalizer (Wellons' "lowbias32") that compilers turn into vector code.
constexpr uint32_t mix32(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7FEB352Du;
  x = (x ^ (x >> 15)) * 0x846CA68Bu;
  return x ^ (x >> 16);
}

// The key of all dropout decisions of one sample at one site. `element` below counts within that sample and site.
constexpr uint64_t dropout_key(uint64_t seed, uint64_t step, uint64_t sample, uint64_t site) {
  return hash_combine(hash_combine(hash_combine(mix64(seed), step), sample), site);
}

// 32 uniform bits of one element. An element is dropped where these bits are below `dropout_threshold(p)`.
constexpr uint32_t dropout_bits(uint64_t key, uint32_t element) {
  return mix32(mix32(element + static_cast<uint32_t>(key)) ^ static_cast<uint32_t>(key >> 32));
}

// p = 0 drops nothing; p = 1 is handled by the caller (scale 0), since 2^32 does not fit.
constexpr uint32_t dropout_threshold(double p) { return static_cast<uint32_t>(p * 4294967296.0); }

// A sequential stream on top, for initialisation, shuffles and sampling.
class Rng {
 public:
  explicit Rng(uint64_t key) : key_(mix64(key)) {}
  uint64_t next() { return hash_combine(key_, counter_++); }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }  // [0, 1)
  uint64_t below(uint64_t bound);                                             // [0, bound), unbiased
  double normal();                                                            // mean 0, deviation 1

 private:
  uint64_t key_;
  uint64_t counter_ = 0;
};

}  // namespace lamina

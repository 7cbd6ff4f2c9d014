// Multiply-adds in registers for kernels/peak.h, in each arithmetic that products are compiled for.
#include "kernels/cpu/peak_loops.h"
#include "kernels/cpu/words.h"

namespace lamina::LAMINA_ISA_NAMESPACE {
namespace {

// Independent chains: enough to hide the latency, few enough to stay in registers.
#if defined(LAMINA_ISA_AVX512)
constexpr int kChains = 24;
#elif defined(LAMINA_ISA_AVX2)
constexpr int kChains = 12;
#else
constexpr int kChains = 3;  // of 16 lanes, 4 registers each
#endif

// 0.5 in all numbers of a word.
constexpr uint32_t kHalf = kDepth > 1 ? 0x3F003F00u : kAcross > 1 ? 0x38003800u : 0x3F000000u;

#if defined(LAMINA_ARITHMETIC_F32)
// Through a factor: of two factors that stay the same a compiler takes the product out of the loop.
LAMINA_INLINE Vec next(Vec c, Vec x, Vec v) { return fma(c, x, v); }
#else
// The sums grow until adding no longer changes them.
LAMINA_INLINE Sum next(Sum c, Words x, Words v) { return step(x, v, c); }
#endif

// Of Vec or of Int, as the arithmetic adds up. Chains that begin alike are one chain to a compiler.
[[maybe_unused]] LAMINA_INLINE void begin(Vec& c, int i) { c = broadcast(static_cast<float>(i)); }
[[maybe_unused]] LAMINA_INLINE void begin(Int& c, int i) { c = broadcast_int(static_cast<uint32_t>(i)); }

[[maybe_unused]] LAMINA_INLINE float total(Vec v) { return horizontal_sum(v); }
[[maybe_unused]] LAMINA_INLINE float total(Int v) { return horizontal_sum(to_float(v)); }

float multiply_add(int64_t iterations) noexcept {
  const volatile uint32_t half = kHalf;  // volatile: what the compiler does not know it cannot simplify
  const uint32_t bits = half;
  Word word;
  __builtin_memcpy(&word, &bits, sizeof(word));
  const Words x = broadcast_word(&word), v = broadcast_word(&word);
  Sum c[kChains];
  LAMINA_UNROLL for (int i = 0; i < kChains; ++i) begin(c[i], i);
  for (int64_t n = 0; n < iterations; ++n) {
    LAMINA_UNROLL for (int i = 0; i < kChains; ++i) c[i] = next(c[i], x, v);
  }
  float sum = 0.0f;
  LAMINA_UNROLL for (int i = 0; i < kChains; ++i) sum += total(c[i]);
  return sum;
}

}  // namespace

extern constinit const PeakLoops peak_loops{multiply_add, 2.0 * kChains* kLanes* kDepth* kAcross};

}  // namespace lamina::LAMINA_ISA_NAMESPACE

// The loops behind kernels/peak.h: multiply-adds in registers, reads and updates of memory.
#include "kernels/cpu/peak_loops.h"
#include "kernels/cpu/simd.h"

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

float multiply_add(int64_t iterations) noexcept {
  const volatile float half = 0.5f;  // volatile: what the compiler does not know it cannot simplify
  const Vec factor = broadcast(half), term = broadcast(half);
  Vec c[kChains];
  LAMINA_UNROLL for (int i = 0; i < kChains; ++i) c[i] = broadcast(static_cast<float>(i));
  for (int64_t n = 0; n < iterations; ++n) {
    LAMINA_UNROLL for (int i = 0; i < kChains; ++i) c[i] = fma(c[i], factor, term);
  }
  LAMINA_UNROLL for (int i = 1; i < kChains; ++i) c[0] = add(c[0], c[i]);
  return horizontal_sum(c[0]);
}

// Memory is taken in some places at once, as kernels of several operands do: one stream alone keeps a core's
// prefetchers below what it can have.
constexpr int kStreams = 4;
constexpr int kTogether = 4;  // vectors of one stream

float read(const float* data, int64_t count) noexcept {
  Vec sum[kTogether];
  LAMINA_UNROLL for (int i = 0; i < kTogether; ++i) sum[i] = zero();
  const int64_t part = count / kStreams;
  for (int64_t n = 0; n < part; n += kTogether * kLanes) {
    LAMINA_UNROLL for (int s = 0; s < kStreams; ++s) {
      const float* from = data + s * part + n;
      LAMINA_UNROLL for (int i = 0; i < kTogether; ++i) sum[i] = add(sum[i], load(from + i * kLanes));
    }
  }
  LAMINA_UNROLL for (int i = 1; i < kTogether; ++i) sum[0] = add(sum[0], sum[i]);
  return horizontal_sum(sum[0]);
}

void update(float* data, int64_t count) noexcept {
  const Vec half = broadcast(0.5f);
  const int64_t part = count / kStreams;
  for (int64_t n = 0; n < part; n += kTogether * kLanes) {
    LAMINA_UNROLL for (int s = 0; s < kStreams; ++s) {
      float* at = data + s * part + n;
      LAMINA_UNROLL for (int i = 0; i < kTogether; ++i) store(at + i * kLanes, fma(load(at + i * kLanes), half, half));
    }
  }
}

}  // namespace

extern constinit const PeakLoops peak_loops{multiply_add, 2.0 * kChains* kLanes, read, update};

}  // namespace lamina::LAMINA_ISA_NAMESPACE

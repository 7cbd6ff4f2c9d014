// Reads and updates of memory for kernels/peak.h.
#include "kernels/cpu/peak_loops.h"
#include "kernels/cpu/simd.h"

namespace lamina::LAMINA_ISA_NAMESPACE {
namespace {

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

extern constinit const MemoryLoops memory_loops{read, update};

}  // namespace lamina::LAMINA_ISA_NAMESPACE

// cross_entropy and cross_entropy_bwd, by rows. A row of logits is read from memory once: it goes by in chunks that
// stay in the first-level cache, with a running maximum to which the sum of exponentials so far is rescaled.
#include "kernels/cpu/args.h"

namespace lamina::LAMINA_ISA_NAMESPACE {
namespace {

constexpr int64_t kChunk = 2048;

LAMINA_INLINE float max_lanes(const float* x, int64_t n) {
  Vec top[2] = {broadcast(-__builtin_inff()), broadcast(-__builtin_inff())};
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    top[0] = max(top[0], load(x + i));
    top[1] = max(top[1], load(x + i + kLanes));
  }
  for (; i + kLanes <= n; i += kLanes) top[0] = max(top[0], load(x + i));
  if (i < n) top[1] = max(top[1], select(first_lanes(n - i), load_n(x + i, n - i), top[1]));
  return horizontal_max(max(top[0], top[1]));
}

// log(sum(e^x)) of V values. A chunk of -inf only adds nothing; NaN or +inf gives NaN.
LAMINA_INLINE float log_sum_exp(const float* x, int64_t V) {
  float top = -__builtin_inff();
  double sum = 0.0;
  for (int64_t first = 0; first < V; first += kChunk) {
    const float* chunk = x + first;
    const int64_t n = smaller(kChunk, V - first);
    const float here = max_lanes(chunk, n);
    if (here == -__builtin_inff()) continue;
    if (here > top) {
      sum *= __builtin_exp(static_cast<double>(top) - static_cast<double>(here));
      top = here;
    }
    const Vec shift = broadcast(top);
    sum += static_cast<double>(
        sum_lanes(n, [=](int64_t i, auto lanes) { return lanes.keep(exp(sub(lanes.load(chunk + i), shift))); }));
  }
  return static_cast<float>(static_cast<double>(top) + __builtin_log(sum));
}

LAMINA_FLATTEN void run_cross_entropy(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  const int64_t V = last_dim(args.in[0]);
  const int32_t* targets = input_i32(args, 1);
  const int64_t last = smaller(end * rows_per_task(args), row_count(args.in[0]));
  for (int64_t r = begin * rows_per_task(args); r < last; ++r) {
    const float* row = input(args, 0) + r * V;
    const bool ignored = targets[r] < 0;
    const float lse = ignored ? 0.0f : log_sum_exp(row, V);
    output(args, 0)[r] = ignored ? 0.0f : lse - row[targets[r]];
    output(args, 1)[r] = lse;
  }
}

// (softmax - onehot) * dloss; may lie on the logits.
LAMINA_INLINE void backward_row(const float* row, int64_t target, float lse, float dloss, float* dlogits, int64_t V) {
  const Vec shift = broadcast(lse);
  const Vec scale = broadcast(dloss);
  const float at_target = row[target];
  for_lanes(0, V,
            [=](int64_t v, auto lanes) { lanes.store(dlogits + v, mul(exp(sub(lanes.load(row + v), shift)), scale)); });
  float p[kLanes];
  store(p, exp(sub(broadcast(at_target), shift)));
  dlogits[target] = (p[0] - 1.0f) * dloss;
}

LAMINA_FLATTEN void run_cross_entropy_bwd(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  const int64_t V = last_dim(args.in[0]);
  const int32_t* targets = input_i32(args, 1);
  const int64_t last = smaller(end * rows_per_task(args), row_count(args.in[0]));
  for (int64_t r = begin * rows_per_task(args); r < last; ++r) {
    float* dlogits = output(args, 0) + r * V;
    if (targets[r] < 0) {
      for_lanes(0, V, [=](int64_t v, auto lanes) { lanes.store(dlogits + v, zero()); });
    } else {
      backward_row(input(args, 0) + r * V, targets[r], input(args, 2)[r], input(args, 3)[r], dlogits, V);
    }
  }
}

}  // namespace

LAMINA_KERNEL_F32(cross_entropy, row_tasks);
LAMINA_KERNEL_F32(cross_entropy_bwd, row_tasks);

}  // namespace lamina::LAMINA_ISA_NAMESPACE

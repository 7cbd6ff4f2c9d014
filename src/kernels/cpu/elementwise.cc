// cast, add, mul, scale, expand, zero: streams over memory, panels and their padding included.
#include "kernels/cpu/narrow.h"

namespace lamina::LAMINA_ISA_NAMESPACE {
namespace {

int64_t task_end(const Args& args, int64_t task) {
  return smaller((task + 1) * kTaskElements, storage_count(args.out[0]));
}

void run_cast(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  const int64_t first = begin * kTaskElements;
  narrow(input(args, 0) + first, task_end(args, end - 1) - first, numbers(args.out[0]).from(first));
}

LAMINA_FLATTEN void run_add(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  const float* a = input(args, 0);
  const float* b = input(args, 1);
  float* y = output(args, 0);
  for_lanes(begin * kTaskElements, task_end(args, end - 1),
            [=](int64_t i, auto lanes) { lanes.store(y + i, add(lanes.load(a + i), lanes.load(b + i))); });
}

LAMINA_FLATTEN void run_mul(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  const float* a = input(args, 0);
  const float* b = input(args, 1);
  float* y = output(args, 0);
  for_lanes(begin * kTaskElements, task_end(args, end - 1),
            [=](int64_t i, auto lanes) { lanes.store(y + i, mul(lanes.load(a + i), lanes.load(b + i))); });
}

LAMINA_FLATTEN void run_scale(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  const Vec factor = broadcast(static_cast<float>(attrs_of<ScaleAttrs>(args).factor));
  const float* x = input(args, 0);
  float* y = output(args, 0);
  for_lanes(begin * kTaskElements, task_end(args, end - 1),
            [=](int64_t i, auto lanes) { lanes.store(y + i, mul(factor, lanes.load(x + i))); });
}

void fill(const Args& args, int64_t begin, int64_t end, float value) {
  float* y = output(args, 0);
  const Vec v = broadcast(value);
  for_lanes(begin * kTaskElements, task_end(args, end - 1), [=](int64_t i, auto lanes) { lanes.store(y + i, v); });
}

LAMINA_FLATTEN void run_expand(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  fill(args, begin, end, *input(args, 0) * *input(args, 1));
}

LAMINA_FLATTEN void run_zero(const Args& args, int64_t begin, int64_t end, std::byte*) noexcept {
  fill(args, begin, end, 0.0f);
}

}  // namespace

LAMINA_KERNEL_F32(cast, element_tasks);
LAMINA_KERNEL_F32(add, element_tasks);
LAMINA_KERNEL_F32(mul, element_tasks);
LAMINA_KERNEL_F32(scale, element_tasks);
LAMINA_KERNEL_F32(expand, element_tasks);
LAMINA_KERNEL_F32(zero, element_tasks);

}  // namespace lamina::LAMINA_ISA_NAMESPACE

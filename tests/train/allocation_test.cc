// A step allocates nothing: every operator new of this program is counted.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "train/batches.h"
#include "train/tiny_run.h"

namespace {

std::atomic<int64_t> allocations{0};

void* counted(std::size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}

void* counted_aligned(std::size_t size, std::align_val_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const auto unit = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(unit, (size + unit - 1) / unit * unit)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t size) { return counted(size); }
void* operator new[](std::size_t size) { return counted(size); }
// What the library's temporary buffers use.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return counted(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return counted(size); }
void* operator new(std::size_t size, std::align_val_t alignment) { return counted_aligned(size, alignment); }
void* operator new[](std::size_t size, std::align_val_t alignment) { return counted_aligned(size, alignment); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace lamina {
namespace {

// Ten steps with all that a run does in them: batches over the end of an epoch, micro-batches, dropout, clipping,
// evaluation.
int64_t allocations_of_ten_steps(int64_t accumulate, double dropout) {
  ModelConfig config = test::tiny_config();
  config.attn_pdrop = config.embd_pdrop = config.resid_pdrop = dropout;
  test::TinyRun run({.batch = 2, .seq = 8, .accumulate = accumulate, .update = {.clip = 1.0}, .eval = true}, config, 2);
  TrainStep train(run.session(), {.seed = 1, .accumulate = accumulate});
  EvalStep eval(run.session());
  const std::vector<int32_t> ids = test::tiny_tokens(77);
  TokenStream stream;
  stream.add(ids);
  Batches batches(stream, {.seq = 8, .rows = train.capacity(), .seed = 1}), valid(stream, {.seq = 8, .rows = 2});
  double loss = 0.0;
  const int64_t before = allocations.load();
  for (int64_t step = 1; step <= 10; ++step) {
    loss += train.step(batches.rows(step), step, 1e-3).loss;
    EvalResult total;
    for (int64_t s = 1; s <= valid.steps_per_epoch(); ++s) eval.add(valid.rows(s), total);
    loss += total.mean();
  }
  const int64_t count = allocations.load() - before;
  EXPECT_GT(loss, 0.0);
  EXPECT_GT(batches.steps_per_epoch(), 1);
  EXPECT_LT(batches.steps_per_epoch(), 10);
  return count;
}

TEST(Allocations, TheCounterCounts) {
  const int64_t before = allocations.load();
  const std::vector<int> some(10);
  EXPECT_GT(allocations.load(), before);
  EXPECT_EQ(some.size(), 10u);
}

TEST(Allocations, NoneInTenSteps) {
  EXPECT_EQ(allocations_of_ten_steps(1, 0.0), 0);
  EXPECT_EQ(allocations_of_ten_steps(1, 0.1), 0);
}

TEST(Allocations, NoneInTenStepsOfTwoMicroBatches) {
  EXPECT_EQ(allocations_of_ten_steps(2, 0.0), 0);
  EXPECT_EQ(allocations_of_ten_steps(2, 0.1), 0);
}

}  // namespace
}  // namespace lamina

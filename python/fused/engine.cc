#include "engine.h"

#include <sys/mman.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/cpu.h"
#include "call.h"
#include "kernels/arithmetic.h"

namespace lamina::fused {
namespace {

constexpr int64_t kHugePage = int64_t{1} << 21;
constexpr int64_t kLine = 64;
constexpr int kMostThreads = 1024;
constexpr int64_t kRows = 64, kFewRows = 8;  // of a weight that one task packs, and before it goes to the next panel

int64_t rounded(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }

// LAMINA_THREADS, or the processors that this process may run on.
int thread_count() {
  const char* text = std::getenv("LAMINA_THREADS");
  if (text == nullptr || *text == '\0') return std::max(1, cpu_count());
  const std::string_view word = text;
  int count = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), count);
  if (error != std::errc{} || end != word.data() + word.size() || count < 1 || count > kMostThreads)
    throw Refused{Code::environment};
  return count;
}

}  // namespace

std::byte* Block::fit(int64_t bytes) {
  if (bytes <= bytes_) return data_;
  std::free(data_);
  bytes_ = rounded(bytes, kHugePage);
  data_ = static_cast<std::byte*>(std::aligned_alloc(kHugePage, static_cast<size_t>(bytes_)));
  if (data_ == nullptr) {
    bytes_ = 0;
    throw Refused{Code::memory};
  }
  ::madvise(data_, static_cast<size_t>(bytes_), MADV_HUGEPAGE);
  return data_;
}

Engine::Engine() : team_(thread_count()) {
  const Isa isa = select_isa();
  nr_ = kernel_table(isa).nr;
  for (int op = 0; op < kOpCount; ++op)
    kernels_[static_cast<size_t>(op)] = find_kernel(kernel_table(isa), static_cast<Op>(op));
}

Engine& Engine::instance() {
  static Engine& engine = *new Engine;
  return engine;
}

std::unique_lock<std::mutex> Engine::begin() {
  std::unique_lock lock(mutex_);
  int64_t all = 0;
  for (const Block& block : arena_) all += block.bytes();
  while (arena_.size() > 1) {
    std::free(arena_.back().data());
    arena_.pop_back();
  }
  if (arena_.empty()) arena_.emplace_back();
  arena_[0].fit(all);
  used_ = 0;
  return lock;
}

TensorArg Engine::tensor(const Shape& shape, Dtype dtype, const Layout& layout) {
  const int64_t bytes = rounded(storage_elements(shape, layout) * dtype_bytes(dtype), kLine);
  if (used_ + bytes > arena_.back().bytes()) {
    arena_.emplace_back().fit(bytes);
    used_ = 0;
  }
  used_ += bytes;
  return {arena_.back().data() + used_ - bytes, shape, layout, dtype};
}

// f(k, rows, n, columns) for each piece of a weight (K, N): a panel's columns of some rows. Few rows at a time and all
// their panels, so that what is row-major is read or written as it lies in memory.
template <typename F>
void Engine::each_piece(const Shape& shape, const F& f) {
  struct Context {
    const F* f;
    int64_t nr, K, N;
  } context{&f, nr_, shape[0], shape[1]};
  team_.run((shape[0] + kRows - 1) / kRows,
            [](void* pointer, int64_t task, int) noexcept {
              const Context& c = *static_cast<const Context*>(pointer);
              const int64_t end = std::min(c.K, (task + 1) * kRows);
              for (int64_t k = task * kRows; k < end; k += kFewRows)
                for (int64_t n = 0; n < c.N; n += c.nr)
                  (*c.f)(k, std::min(kFewRows, end - k), n, std::min(c.nr, c.N - n));
            },
            &context);
}

TensorArg Engine::pack(const TensorArg& weight) {
  const TensorArg to = panel(weight.shape);
  const int64_t K = weight.shape[0], N = weight.shape[1], nr = nr_;
  const auto* from = static_cast<const float*>(weight.data);
  auto* panels = static_cast<float*>(to.data);
  each_piece(weight.shape, [=](int64_t k, int64_t rows, int64_t n, int64_t columns) {
    pack_panel(from + k * N + n, N, 1, panels + n * K + k * nr, rows, columns, nr);
  });
  return to;
}

void Engine::unpack(const TensorArg& from, const TensorArg& to) {
  const int64_t K = to.shape[0], N = to.shape[1], nr = nr_;
  const auto* panels = static_cast<const float*>(from.data);
  auto* weight = static_cast<float*>(to.data);
  each_piece(to.shape, [=](int64_t k, int64_t rows, int64_t n, int64_t columns) {
    unpack_panel(panels + n * K + k * nr, weight + k * N + n, N, 1, rows, columns, nr);
  });
}

void Engine::run(Op op, std::initializer_list<TensorArg> in, std::initializer_list<TensorArg> out, const void* attrs) {
  const Args args{std::data(in), std::data(out), static_cast<int32_t>(in.size()), static_cast<int32_t>(out.size()),
                  attrs};
  const Kernel& kernel = *kernels_[static_cast<size_t>(op)];
  struct Context {
    const Kernel* kernel;
    const Args* args;
    std::byte* scratch;
    int64_t stride, first;
  } context{&kernel, &args, nullptr, rounded(kernel.scratch(args), 4096), 0};
  context.scratch = scratch_.fit(context.stride * team_.size());
  for_each_phase(kernel, args, kernel.tasks(args), [&](int64_t first, int64_t end) {
    context.first = first;
    team_.run(
        end - first,
        [](void* pointer, int64_t task, int thread) noexcept {
          const Context& c = *static_cast<const Context*>(pointer);
          const int64_t own = c.first + task;
          c.kernel->run(*c.args, own, own + 1, c.scratch + thread * c.stride);
        },
        &context);
  });
}

}  // namespace lamina::fused

// What runs the kernels of a call: one team of threads, one arena and one scratch for the whole process, kept from call
// to call. MindSpore makes one call at a time, from a thread that may change; a lock sees to it.
#pragma once

#include <array>
#include <initializer_list>
#include <mutex>
#include <vector>

#include "base/thread_team.h"
#include "kernels/kernel.h"

namespace lamina::fused {

// Memory that only grows.
class Block {
 public:
  // The memory has `bytes` or more; what was in it may be gone.
  std::byte* fit(int64_t bytes);
  int64_t bytes() const { return bytes_; }
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

class Engine {
 public:
  // Made at the first call, never ended: its threads may outlive all that ends with a process.
  static Engine& instance();

  // A call is one thread's from here until the lock goes; all tensors of the call before are gone.
  std::unique_lock<std::mutex> begin();

  // A tensor that lives until the call ends.
  TensorArg tensor(const Shape& shape, Dtype dtype = Dtype::f32, const Layout& layout = {});
  TensorArg panel(const Shape& shape) { return tensor(shape, Dtype::f32, Layout::panel(nr_)); }
  // The weight in panels, as kernels read it.
  TensorArg pack(const TensorArg& weight);
  void unpack(const TensorArg& from, const TensorArg& to);

  void run(Op op, std::initializer_list<TensorArg> in, std::initializer_list<TensorArg> out, const void* attrs);

 private:
  Engine();
  template <typename F>
  void each_piece(const Shape& shape, const F& f);

  std::mutex mutex_;
  ThreadTeam team_;
  std::array<const Kernel*, kOpCount> kernels_ = {};
  int32_t nr_ = 0;
  Block scratch_;
  // The first block holds all that a call of known size needs. A larger call takes more blocks, which the next joins.
  std::vector<Block> arena_;
  int64_t used_ = 0;  // bytes of the last block
};

}  // namespace lamina::fused

// The kernels that `bench kernels` times: shapes of GPT-2 124M at 1024 tokens, with their operands in memory. Those
// whose operands are some numbers only (norm, clip_factor, …) are not among them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/thread_team.h"
#include "graph/work.h"
#include "kernels/kernel.h"
#include "kernels/peak.h"
#include "runtime/session.h"

namespace lamina::cli {

// ids: rows of the vocabulary; large: a log-sum-exp above every score; last: the last token's place.
enum class Fill { random, zero, one, ids, large, last };

struct Operand {
  Shape shape;
  bool panel = false;
  Dtype dtype = Dtype::f32;
  Fill fill = Fill::random;
  bool absent = false;
};

struct KernelCase {
  Op op{};
  std::string shape;  // for people
  std::vector<Operand> in, out;
  Attrs attrs = NoAttrs{};
  int64_t per_step = 0;  // how often a step of training runs it; 0: it does not count for the weighted GEMM figure
  std::vector<std::pair<size_t, size_t>> in_place = {};  // an output that lies on an input, as in a plan
  Dtype precision = Dtype::f32;                          // of operands of products
  Arithmetic arithmetic = Arithmetic::f32;               // theirs
};

std::vector<KernelCase> gemm_cases();
std::vector<KernelCase> other_cases();
// Products and attention with operands stored in 16 bits (weights in fp32, as ever), in the arithmetic that this
// machine chooses.
std::vector<KernelCase> narrow_cases(Isa isa, Dtype precision);

// What the machine gives, 0: not looked at.
struct Roof {
  double gflops = 0.0;  // fp32
  double read_gb_s = 0.0;
  double in_place_gb_s = 0.0;

  void raise(const Roof& other);  // to the better of both
  double compute_seconds(const Work& work) const { return work.operations / gflops * 1e-9; }
  // Reads that go with a write at the rate of updates in place, what is read besides at that of reading.
  double memory_seconds(const Work& work) const;
  bool memory_bound(const Work& work) const { return memory_seconds(work) > compute_seconds(work); }
};

struct Timing {
  double seconds = 0.0;
  Roof roof;  // the best windows between the runs, of what bounds the case
};

// A case bound to memory. What is bound by memory gets its operands several times over, in turn, so that no run finds
// them in a cache.
class BoundCase {
 public:
  BoundCase(const KernelCase& wanted, Isa isa, int threads, const Roof& roof);
  const Kernel& kernel() const { return *kernel_; }
  const Work& work() const { return work_; }
  // The fastest of the runs that fit in about `budget` seconds, three at least, each between two windows of the peak or
  // of memory: on machines that change their speed both are as fast as these moments allow.
  Timing time(ThreadTeam& team, MemoryProbe& probe, double budget);

 private:
  struct Copy {
    std::vector<TensorArg> in, out;
    Args args;
  };

  void bind(const KernelCase& wanted);
  void look(ThreadTeam& team, MemoryProbe& probe, Roof& roof) const;
  double run_once(ThreadTeam& team);

  const Kernel* kernel_;
  Isa isa_;
  Attrs attrs_;
  Dtype precision_;
  Work work_;
  bool memory_bound_ = false;
  std::vector<Memory> memory_;
  std::vector<Copy> copies_;
  size_t next_ = 0;  // the copy whose turn it is
  Memory scratch_;
  int64_t tasks_ = 0;
  int64_t scratch_stride_ = 0;
};

}  // namespace lamina::cli

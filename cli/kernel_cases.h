// The kernels that `bench kernels` times: shapes of GPT-2 124M at 1024 tokens, with their operands in memory.
#pragma once

#include <string>
#include <vector>

#include "base/thread_team.h"
#include "kernels/kernel.h"
#include "runtime/session.h"

namespace lamina::cli {

enum class Fill { random, zero, one, ids, large };  // large: a log-sum-exp above every score

struct Operand {
  Shape shape;
  bool panel = false;
  bool ints = false;
  Fill fill = Fill::random;
  bool absent = false;
};

struct KernelCase {
  Op op{};
  std::string shape;  // for people
  std::vector<Operand> in, out;
  Attrs attrs;
  double flops = 0.0;    // 0: bound by memory
  double bytes = 0.0;    // read and written, each once
  int64_t per_step = 0;  // how often a step of training runs it; 0: it does not count for the weighted GEMM figure
};

std::vector<KernelCase> gemm_cases();
std::vector<KernelCase> other_cases();

struct Timing {
  double seconds = 0.0;
  double peak_gflops = 0.0;  // fp32, the best window; 0 for a case that does not count operations
};

// A case bound to memory.
class BoundCase {
 public:
  BoundCase(const KernelCase& wanted, Isa isa, int threads);
  const Kernel& kernel() const { return *kernel_; }
  // The fastest of the runs that fit in about `budget` seconds, three at least, each between two windows of the peak:
  // on machines that change their speed both are as fast as these moments allow.
  Timing time(ThreadTeam& team, double budget);

 private:
  void bind(const std::vector<Operand>& operands, Isa isa, std::vector<TensorArg>& args);
  double run_once(ThreadTeam& team);

  const Kernel* kernel_;
  Isa isa_;
  double flops_;
  Attrs attrs_;
  std::vector<Memory> memory_;
  std::vector<TensorArg> in_, out_;
  Args args_;
  int64_t tasks_ = 0;
  int64_t scratch_stride_ = 0;
};

}  // namespace lamina::cli

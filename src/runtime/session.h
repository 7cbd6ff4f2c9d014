// A session binds a plan to memory and kernels once, and then runs programs: a step allocates nothing, looks nothing up
// by name and branches on no configuration. Reads the plan only; it knows no graph and no model.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/thread_team.h"
#include "kernels/kernel.h"
#include "plan/plan.h"

namespace lamina {

// Zeroed pages from the system, in large pages where it offers them.
class Memory {
 public:
  Memory() = default;
  explicit Memory(int64_t bytes);  // throws Error(memory) naming the number of bytes
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

enum class ProgramId : int32_t { none = -1 };

// A matrix in the caller's memory: element (i, j) at data[i*stride_row + j*stride_column]. A vector has one row.
struct MatrixView {
  const float* data = nullptr;
  int64_t stride_row = 0;
  int64_t stride_column = 1;
};

// Bytes that the system says it could give without swapping; -1 where it does not say.
int64_t available_memory();

// Throws Error(memory) where the plan needs more than so many bytes.
void check_memory_limit(const Plan& plan, int threads, int64_t limit);

class Session {
 public:
  // Throws Error(memory) before anything is touched if the plan needs more than the machine offers (or `memory_limit`
  // allows, 0: no limit), Error(invalid) for an unknown kernel. The plan is validated by whoever made it.
  Session(Plan plan, int threads, int64_t memory_limit = 0);

  const Plan& plan() const { return plan_; }
  int threads() const { return team_.size(); }
  ThreadTeam& team() { return team_; }

  // Set-up, by name. All throw Error(invalid) for an unknown name or another type.
  ProgramId program(std::string_view name) const;  // none where the plan has no such program
  bool has_tensor(std::string_view name) const;
  const PlanTensor& tensor(std::string_view name) const;
  // An io tensor, or a persistent one that is row-major: valid as long as the session, to be kept by the caller.
  std::span<float> floats(std::string_view name);
  std::span<int32_t> ints(std::string_view name);
  std::span<int64_t> longs(std::string_view name);
  // Whole persistent tensors, between the caller's layout and the plan's.
  void write(std::string_view name, const MatrixView& from);
  void read(std::string_view name, float* to, int64_t stride_row, int64_t stride_column) const;
  void fill(std::string_view name, float value);

  // Runs one program to its end on all threads.
  void run(ProgramId program) noexcept;

 private:
  struct Launch {  // one phase of a kernel
    void (*run)(const Args&, int64_t, int64_t, std::byte*) noexcept;
    Args args;
    int64_t first, tasks;
  };

  int32_t index(std::string_view name) const;
  std::byte* address(const PlanTensor& tensor) const;
  template <typename T>
  std::span<T> view(std::string_view name, Dtype dtype);
  void bind();

  Plan plan_;
  ThreadTeam team_;
  std::array<Memory, kRegions> regions_;
  Memory scratch_;
  int64_t scratch_stride_ = 0;
  std::vector<TensorArg> operands_;            // of all launches, one block
  std::vector<std::vector<Launch>> programs_;  // in the plan's order
};

}  // namespace lamina

// How an op runs. Every kernel has one signature, so that the session needs no glue per op: pointers, shapes, layouts
// and attributes in, a range of tasks to do. A kernel knows no graph, no thread and no allocator.
//
// Contract of every kernel:
//  * tasks(args) and scratch(args) look at shapes, layouts, types, attributes and at which operands are present (not
//  null),
//    never at data;
//  * the output of a task depends on nothing but the inputs and earlier phases: any thread may run any task of a phase,
//    in any order, and the bits are the same. A reduction that spans tasks is made by a later phase or a second op,
//    over fixed blocks;
//  * an output may lie exactly on the input that `in_place` names, otherwise outputs overlap nothing;
//  * preconditions (shapes, layouts, finite sizes) were proved when the plan was bound: there are no checks inside;
//  * where layouts pad (panel), padding in weights is zero and a kernel that writes a panel writes zeros there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/cpu.h"
#include "base/dtype.h"
#include "base/layout.h"
#include "base/op.h"
#include "base/shape.h"

namespace lamina {

struct TensorArg {
  void* data = nullptr;  // null: an optional input that is absent
  Shape shape;
  Layout layout;
  Dtype dtype = Dtype::f32;
};

struct Args {
  const TensorArg* in = nullptr;
  const TensorArg* out = nullptr;
  int32_t n_in = 0;
  int32_t n_out = 0;
  const void* attrs = nullptr;  // the op's own attribute struct
  // What operands of products are rounded to. Operands may be stored in it too; they are those that the schema names.
  Dtype precision = Dtype::f32;
};

struct Kernel {
  Op op;
  const char* id;  // op, arithmetic, ISA and every constant that sets the order of summation: "linear.f32.avx2.kc768"
  void (*run)(const Args& args, int64_t begin, int64_t end, std::byte* scratch) noexcept;
  int64_t (*tasks)(const Args& args) noexcept;
  int64_t (*scratch)(const Args& args) noexcept;  // bytes per thread, 64-byte aligned when passed to run
  // A kernel may run in phases: the tasks from `first` up to phase_end are independent, and all of them end before a
  // later one begins. Null: all tasks are one phase.
  int64_t (*phase_end)(const Args& args, int64_t first) noexcept = nullptr;
};

// How products with 16-bit operands are computed. f32: operands become fp32 while they are packed, exactly (also known
// as bf16store, f16store). bf16dot: pairs of bf16 are multiplied and added to fp32 sums by one instruction. f16chunk:
// operands, scaled by powers of two, are multiplied and added in fp16, some at a time, and those sums in fp32.
enum class Arithmetic : uint8_t { f32, bf16dot, f16chunk };
std::string_view arithmetic_name(Arithmetic arithmetic);
// By the type of the operands. Those of fp16 are multiplied in fp32: sums in fp16 would be coarser than they are.
struct Arithmetics {
  Arithmetic bf16 = Arithmetic::f32;
};

// What one rung of the ladder offers in one arithmetic. One table for each, constant-initialised.
struct KernelTable {
  Isa isa;
  Arithmetic arithmetic;
  int32_t nr;  // panel width of weights, the same in all arithmetics of a rung
  std::span<const Kernel* const> kernels;
};

const KernelTable& kernel_table(Isa isa);  // the table of one rung in f32: it has every op
// Null where this build has none: f32 is everywhere, the others on some rungs.
const KernelTable* kernel_table(Isa isa, Arithmetic arithmetic);
// Calls f(first, end) for the tasks of each phase, in order.
template <typename F>
void for_each_phase(const Kernel& kernel, const Args& args, int64_t tasks, const F& f) {
  for (int64_t first = 0; first < tasks;) {
    const int64_t end = kernel.phase_end == nullptr ? tasks : kernel.phase_end(args, first);
    f(first, end);
    first = end > first ? end : tasks;
  }
}

const Kernel* find_kernel(const KernelTable& table, Op op);  // null where the table has none
const Kernel* find_kernel_by_id(std::string_view id);        // over all tables; null where unknown
const KernelTable& table_of(const Kernel& kernel);           // the one that it is in

}  // namespace lamina

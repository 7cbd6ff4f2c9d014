// The plan: everything that runs, as flat data. Which kernel, on which bytes, in which order; where every tensor lies.
// A plain value that knows no graph and no model: the runtime binds it, the validator checks it, people read it.
//
//   persistent  |parameters|moments|gradient sums|caches|      bound by name, shared by all programs
//   io          |tokens|targets|…|loss|grad_norm|              written and read by the caller
//   transient   |      one arena, as large as the largest program needs       |
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/cpu.h"
#include "base/dtype.h"
#include "base/layout.h"
#include "base/op.h"
#include "base/shape.h"

namespace lamina {

enum class Region : uint8_t { persistent, transient, io };
constexpr int kRegions = 3;
std::string_view region_name(Region region);

// A view of bytes in a region. Tensors that share storage are separate entries with equal offsets.
struct PlanTensor {
  std::string name;
  Shape shape;
  Dtype dtype = Dtype::f32;
  Layout layout;
  Region region = Region::transient;
  std::string tensor_class;  // what the memory is spent on: "parameters", "gradients", …
  int64_t offset = 0;        // in the region, aligned to 64
  int64_t bytes = 0;         // aligned to 64
  int32_t storage = 0;       // tensors of one program with equal numbers share their bytes on purpose
};

struct PlanStep {
  std::string name;
  Op op{};
  std::string kernel;  // id
  Attrs attrs;
  Dtype precision = Dtype::f32;  // of operands of products
  std::vector<int32_t> in;       // indices into Plan::tensors; −1: an absent optional input
  std::vector<int32_t> out;
  int64_t tasks = 0;
};

struct PlanProgram {
  std::string name;
  std::vector<PlanStep> steps;
  int64_t arena_bytes = 0;     // of the transient region
  int64_t max_live_bytes = 0;  // lower bound of arena_bytes for this order
  int32_t peak_step = -1;      // the step at which max_live is reached
};

struct Plan {
  Isa isa{};
  std::vector<PlanTensor> tensors;
  std::vector<PlanProgram> programs;
  std::array<int64_t, kRegions> region_bytes{};
  int64_t scratch_bytes = 0;  // per thread
  std::string digest;         // 128 bits in hex over everything above: equal digests give equal bits
  std::string numbers;        // the digest of this plan with nothing recomputed: plans with equal ones give equal bits

  int64_t region(Region which) const { return region_bytes[static_cast<size_t>(which)]; }
  int64_t total_bytes(int threads) const;
  const PlanProgram* find_program(std::string_view name) const;  // null where there is none
  // The tensor of this name in the persistent or io region; −1 where there is none.
  int32_t find_tensor(std::string_view name) const;
};

// Independent check, by comparing all pairs of tensors of each program: bounds, alignment, and that two tensors that
// are alive at once and do not share storage on purpose do not overlap. Throws Error(invalid) naming both.
void validate(const Plan& plan);

std::string plan_digest(const Plan& plan);

}  // namespace lamina

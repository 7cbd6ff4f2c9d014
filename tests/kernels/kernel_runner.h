// Runs one kernel on one case as the session would, with a guard around every buffer, and as a test would: in any cut
// into ranges of tasks, with outputs on inputs or apart. Checks what is the same for all kernels: guards, inputs
// unchanged.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/half.h"
#include "base/thread_team.h"
#include "common/guarded_buffer.h"
#include "kernels/kernel.h"
#include "op_cases.h"

namespace lamina::testing {

using Ranges = std::vector<std::pair<int64_t, int64_t>>;
using Cut = Ranges (*)(int64_t tasks);             // of the tasks of one phase
using Aliases = std::vector<std::pair<int, int>>;  // output, input

inline Ranges whole(int64_t tasks) { return tasks > 0 ? Ranges{{0, tasks}} : Ranges{}; }
inline Ranges one_by_one_backwards(int64_t tasks) {
  Ranges ranges;
  for (int64_t t = tasks; t-- > 0;) ranges.push_back({t, t + 1});
  return ranges;
}
inline Ranges three_parts(int64_t tasks) {
  const int64_t a = tasks / 3;
  const int64_t b = tasks - tasks / 4;
  Ranges ranges;
  for (const auto& [begin, end] : Ranges{{b, tasks}, {0, a}, {a, b}})
    if (begin < end) ranges.push_back({begin, end});
  return ranges;
}

inline Layout layout_of(const Operand& operand, int32_t nr) {
  return operand.panel ? Layout::panel(nr) : Layout::row_major();
}

inline size_t storage_bytes(const Operand& operand, int32_t nr) {
  if (operand.kind == Operand::Kind::absent) return 0;
  const auto elements = static_cast<size_t>(storage_elements(operand.shape, layout_of(operand, nr)));
  if (operand.kind == Operand::Kind::i64) return elements * 8;
  return elements * (operand.kind == Operand::Kind::real ? static_cast<size_t>(dtype_bytes(operand.dtype)) : 4);
}

// The memory of one input.
inline GuardedBuffer to_storage(const Operand& operand, const ref::RefTensor<double>& t, int32_t nr) {
  const std::vector<float> reals(t.values.begin(), t.values.end());
  if (operand.panel) {
    GuardedBuffer panels(storage_bytes(operand, nr));
    const int64_t N = operand.shape[1];
    pack_panel(reals.data(), N, 1, reinterpret_cast<float*>(panels.data()), operand.shape[0], N, nr);
    return panels;
  }
  if (is_16_bit(operand.dtype)) {
    std::vector<uint16_t> halves;
    for (float x : reals) halves.push_back(to_16_bits(x, operand.dtype));
    return {halves.data(), halves.size() * sizeof(uint16_t)};
  }
  if (operand.kind == Operand::Kind::real) return {reals.data(), reals.size() * sizeof(float)};
  if (operand.kind == Operand::Kind::i64) return {t.ints.data(), t.ints.size() * sizeof(int64_t)};
  const std::vector<int32_t> narrow(t.ints.begin(), t.ints.end());
  return {narrow.data(), narrow.size() * sizeof(int32_t)};
}

// Row-major values of an output; the padding of panels must be zero.
inline std::vector<float> from_storage(const Operand& operand, const GuardedBuffer& buffer, int32_t nr) {
  if (is_16_bit(operand.dtype)) {
    std::vector<uint16_t> halves(buffer.size() / sizeof(uint16_t));
    if (!halves.empty()) std::memcpy(halves.data(), buffer.data(), buffer.size());
    std::vector<float> wide;
    for (uint16_t bits : halves) wide.push_back(from_16_bits(bits, operand.dtype));
    return wide;
  }
  std::vector<float> memory(buffer.size() / sizeof(float));
  if (!memory.empty()) std::memcpy(memory.data(), buffer.data(), buffer.size());
  if (!operand.panel) return memory;
  const int64_t K = operand.shape[0];
  const int64_t N = operand.shape[1];
  std::vector<float> values(static_cast<size_t>(K * N));
  unpack_panel(memory.data(), values.data(), N, 1, K, N, nr);
  std::vector<float> packed(memory.size());
  pack_panel(values.data(), N, 1, packed.data(), K, N, nr);
  EXPECT_EQ(std::memcmp(packed.data(), memory.data(), buffer.size()), 0) << "padding is not zero";
  return values;
}

class KernelRunner {
 public:
  KernelRunner(const Kernel& kernel, const OpCase& c, const Inputs& in, int32_t nr)
      : kernel_(kernel), case_(c), nr_(nr) {
    for (size_t i = 0; i < c.in.size(); ++i) inputs_.push_back(to_storage(c.in[i], in[i], nr));
  }

  // The memory of all outputs after the tasks ran in this cut and order.
  std::vector<GuardedBuffer> run(Cut cut, const Aliases& aliases) {
    std::vector<GuardedBuffer> in = copies();
    std::vector<GuardedBuffer> out = fresh_outputs();
    Bound bound = bind(in, out, aliases);
    const FlushDenormals flush;
    for_each_phase(kernel_, bound.args, kernel_.tasks(bound.args), [&](int64_t first, int64_t last) {
      for (const auto& [begin, end] : cut(last - first)) {
        GuardedBuffer scratch(static_cast<size_t>(kernel_.scratch(bound.args)));
        kernel_.run(bound.args, first + begin, first + end, scratch.data());
        EXPECT_TRUE(scratch.intact()) << "wrote outside scratch";
      }
    });
    check(in, out, aliases);
    for (const auto& [o, i] : aliases) std::swap(out[static_cast<size_t>(o)], in[static_cast<size_t>(i)]);
    return out;
  }

 private:
  struct Bound {
    std::vector<TensorArg> in, out;
    Args args;
  };

  std::vector<GuardedBuffer> copies() const {
    std::vector<GuardedBuffer> in;
    for (const GuardedBuffer& b : inputs_) in.emplace_back(b.data(), b.size());
    return in;
  }
  std::vector<GuardedBuffer> fresh_outputs() const {
    std::vector<GuardedBuffer> out;
    for (const Operand& operand : case_.out) out.emplace_back(storage_bytes(operand, nr_));
    return out;
  }

  Bound bind(std::vector<GuardedBuffer>& in, std::vector<GuardedBuffer>& out, const Aliases& aliases) const {
    Bound bound;
    for (size_t i = 0; i < in.size(); ++i) {
      const bool absent = case_.in[i].kind == Operand::Kind::absent;
      bound.in.push_back(
          {absent ? nullptr : in[i].data(), case_.in[i].shape, layout_of(case_.in[i], nr_), case_.in[i].dtype});
    }
    for (size_t o = 0; o < out.size(); ++o)
      bound.out.push_back({out[o].data(), case_.out[o].shape, layout_of(case_.out[o], nr_), case_.out[o].dtype});
    for (const auto& [o, i] : aliases) bound.out[static_cast<size_t>(o)].data = in[static_cast<size_t>(i)].data();
    const void* attrs = std::visit([](const auto& a) { return static_cast<const void*>(&a); }, case_.attrs);
    bound.args = {bound.in.data(), bound.out.data(), static_cast<int32_t>(in.size()), static_cast<int32_t>(out.size()),
                  attrs,           case_.precision};
    return bound;
  }

  void check(const std::vector<GuardedBuffer>& in, const std::vector<GuardedBuffer>& out,
             const Aliases& aliases) const {
    for (size_t i = 0; i < in.size(); ++i) {
      EXPECT_TRUE(in[i].intact()) << "wrote outside input " << i;
      const bool aliased =
          std::any_of(aliases.begin(), aliases.end(), [&](const auto& a) { return a.second == static_cast<int>(i); });
      EXPECT_TRUE(aliased || in[i].equals(inputs_[i].data())) << "changed input " << i;
    }
    for (size_t o = 0; o < out.size(); ++o) EXPECT_TRUE(out[o].intact()) << "wrote outside output " << o;
  }

  const Kernel& kernel_;
  const OpCase& case_;
  int32_t nr_;
  std::vector<GuardedBuffer> inputs_;
};

}  // namespace lamina::testing

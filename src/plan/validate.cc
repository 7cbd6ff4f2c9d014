// The validator shares nothing with the planner but the plan: it derives lifetimes from the steps and compares all
// pairs.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "plan/plan.h"

namespace lamina {
namespace {

struct Span {
  const PlanTensor* tensor;
  int32_t first, last;
};

[[noreturn]] void fail(const PlanProgram& program, const std::string& what) {
  throw_error(ErrorCode::invalid, "bad plan: program {}: {}", program.name, what);
}

void check_bounds(const Plan& plan) {
  for (const PlanTensor& tensor : plan.tensors) {
    const int64_t end = plan.region(tensor.region);
    const int64_t needed = storage_elements(tensor.shape, tensor.layout) * dtype_bytes(tensor.dtype);
    if (tensor.offset < 0 || tensor.offset % 64 != 0 || tensor.bytes < needed || tensor.bytes > end - tensor.offset)
      throw_error(ErrorCode::invalid, "bad plan: tensor {} at {} with {} bytes (needs {}) in region {} of {} bytes",
                  tensor.name, tensor.offset, tensor.bytes, needed, region_name(tensor.region), end);
  }
}

// Persistent and io tensors live for ever: sorted by offset, neighbours must not overlap.
void check_fixed(const Plan& plan) {
  for (Region region : {Region::persistent, Region::io}) {
    std::vector<const PlanTensor*> fixed;
    for (const PlanTensor& tensor : plan.tensors)
      if (tensor.region == region) fixed.push_back(&tensor);
    std::sort(fixed.begin(), fixed.end(), [](auto* a, auto* b) { return a->offset < b->offset; });
    for (size_t i = 1; i < fixed.size(); ++i)
      if (fixed[i - 1]->offset + fixed[i - 1]->bytes > fixed[i]->offset && fixed[i - 1]->storage != fixed[i]->storage)
        throw_error(ErrorCode::invalid, "bad plan: {} and {} overlap", fixed[i - 1]->name, fixed[i]->name);
  }
}

std::vector<Span> transient_spans(const Plan& plan, const PlanProgram& program) {
  std::map<int32_t, Span> spans;  // by storage
  for (size_t s = 0; s < program.steps.size(); ++s) {
    const auto at = static_cast<int32_t>(s);
    for (const std::vector<int32_t>* list : {&program.steps[s].in, &program.steps[s].out})
      for (int32_t index : *list) {
        if (index < 0) continue;
        if (static_cast<size_t>(index) >= plan.tensors.size()) fail(program, "a step names no tensor");
        const PlanTensor& tensor = plan.tensors[static_cast<size_t>(index)];
        if (tensor.region != Region::transient) continue;
        const auto [found, fresh] = spans.emplace(tensor.storage, Span{&tensor, at, at});
        if (fresh && list == &program.steps[s].in)
          fail(program, fmt::format("{} is read before it is made", tensor.name));
        if (found->second.tensor->offset != tensor.offset)
          fail(program, fmt::format("{} lies in two places", tensor.name));
        found->second.last = at;
      }
  }
  std::vector<Span> out;
  for (const auto& [storage, span] : spans) out.push_back(span);
  return out;
}

// A parameter is written in its place once in a program, and what read it afterwards would see the next step's.
void check_updates(const Plan& plan, const PlanProgram& program) {
  std::map<int32_t, const PlanStep*> writers;  // by storage
  const auto tensor = [&](int32_t index) { return index < 0 ? nullptr : &plan.tensors[static_cast<size_t>(index)]; };
  for (const PlanStep& step : program.steps) {
    for (const std::vector<int32_t>* list : {&step.in, &step.out})
      for (int32_t index : *list)
        if (const PlanTensor* used = tensor(index); used != nullptr && writers.contains(used->storage))
          fail(program, fmt::format("step {} uses {} after step {} has updated it", step.name, used->name,
                                    writers[used->storage]->name));
    for (int32_t index : step.out)
      if (const PlanTensor* made = tensor(index);
          made != nullptr && made->region == Region::persistent && made->tensor_class == "parameters")
        writers[made->storage] = &step;
  }
}

}  // namespace

void validate(const Plan& plan) {
  check_bounds(plan);
  check_fixed(plan);
  for (const PlanProgram& program : plan.programs) {
    const std::vector<Span> spans = transient_spans(plan, program);
    check_updates(plan, program);
    for (size_t i = 0; i < spans.size(); ++i)
      for (size_t j = i + 1; j < spans.size(); ++j) {
        const Span &a = spans[i], &b = spans[j];
        if (a.last < b.first || b.last < a.first) continue;
        if (a.tensor->offset + a.tensor->bytes <= b.tensor->offset) continue;
        if (b.tensor->offset + b.tensor->bytes <= a.tensor->offset) continue;
        fail(program, fmt::format("{} and {} overlap while both are alive", a.tensor->name, b.tensor->name));
      }
    for (const Span& span : spans)
      if (span.tensor->offset + span.tensor->bytes > program.arena_bytes)
        fail(program, fmt::format("{} ends beyond the arena of {} bytes", span.tensor->name, program.arena_bytes));
  }
}

}  // namespace lamina

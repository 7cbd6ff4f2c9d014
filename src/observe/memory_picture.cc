#include "observe/memory_picture.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace lamina {
namespace {

struct Use {
  int32_t first = -1;
  int32_t last = -1;
  int32_t tensor = -1;  // the entry that holds the storage
};

// First and last step of each piece of transient storage, by its number.
std::map<int32_t, Use> transient_uses(const Plan& plan, const PlanProgram& program) {
  std::map<int32_t, Use> uses;
  for (size_t s = 0; s < program.steps.size(); ++s) {
    for (const std::vector<int32_t>* list : {&program.steps[s].in, &program.steps[s].out}) {
      for (int32_t index : *list) {
        if (index < 0 || plan.tensors[static_cast<size_t>(index)].region != Region::transient) continue;
        const PlanTensor& tensor = plan.tensors[static_cast<size_t>(index)];
        Use& use = uses[tensor.storage];
        if (use.first < 0) use = {static_cast<int32_t>(s), 0, index};
        use.last = static_cast<int32_t>(s);
        if (tensor.bytes > plan.tensors[static_cast<size_t>(use.tensor)].bytes) use.tensor = index;
      }
    }
  }
  return uses;
}

const PlanProgram* largest_program(const Plan& plan) {
  const PlanProgram* largest = nullptr;
  for (const PlanProgram& program : plan.programs)
    if (largest == nullptr || program.max_live_bytes > largest->max_live_bytes) largest = &program;
  return largest;
}

void add_class(MemoryPicture& picture, const std::string& name, int64_t bytes) {
  for (MemoryClass& entry : picture.classes) {
    if (entry.name != name) continue;
    entry.bytes += bytes;
    return;
  }
  picture.classes.push_back({name, bytes});
}

void add_live(const Plan& plan, const PlanProgram& program, MemoryPicture& picture) {
  for (const auto& [storage, use] : transient_uses(plan, program)) {
    if (program.peak_step < use.first || program.peak_step > use.last) continue;
    const PlanTensor& tensor = plan.tensors[static_cast<size_t>(use.tensor)];
    picture.live.push_back({tensor.name, tensor.tensor_class, tensor.shape.text(), tensor.bytes});
    picture.live_bytes += tensor.bytes;
    add_class(picture, tensor.tensor_class, tensor.bytes);
  }
  std::stable_sort(picture.live.begin(), picture.live.end(),
                   [](const MemoryTensor& a, const MemoryTensor& b) { return a.bytes > b.bytes; });
}

}  // namespace

MemoryPicture memory_picture(const Plan& plan, int threads) {
  MemoryPicture picture;
  for (const char* name : {"parameters", "gradients", "optimizer", "activations", "workspace", "io"})
    picture.classes.push_back({name, 0});
  std::vector<int32_t> seen;
  for (const PlanTensor& tensor : plan.tensors) {
    if (tensor.region == Region::transient) continue;
    if (std::find(seen.begin(), seen.end(), tensor.storage) != seen.end()) continue;
    seen.push_back(tensor.storage);
    add_class(picture, tensor.region == Region::io ? "io" : tensor.tensor_class, tensor.bytes);
  }
  add_class(picture, "workspace", plan.scratch_bytes * threads);
  const PlanProgram* program = largest_program(plan);
  if (program == nullptr) return picture;
  picture.program = program->name;
  if (program->peak_step >= 0 && static_cast<size_t>(program->peak_step) < program->steps.size()) {
    picture.step = program->steps[static_cast<size_t>(program->peak_step)].name;
    add_live(plan, *program, picture);
  }
  return picture;
}

std::string bytes_text(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024.0 && unit + 1 < std::size(kUnits); ++unit) value /= 1024.0;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, kUnits[unit]);
}

}  // namespace lamina

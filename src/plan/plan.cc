#include "plan/plan.h"

#include <xxhash.h>

#include <type_traits>

#include "base/error.h"

namespace lamina {
namespace {

// Feeds plain values to the hash, with lengths, so that no two plans share a stream by accident.
class Digest {
 public:
  Digest() : state_(XXH3_createState()) { XXH3_128bits_reset(state_); }
  ~Digest() { XXH3_freeState(state_); }
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  template <typename T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void add(const T& value) { XXH3_128bits_update(state_, &value, sizeof(value)); }
  void add(std::string_view text) {
    add(text.size());
    XXH3_128bits_update(state_, text.data(), text.size());
  }
  void add(const Shape& shape) {
    add(shape.rank);
    for (int64_t dim : shape.dims) add(dim);
  }
  void add(const PlanTensor& tensor) {
    add(tensor.name);
    add(tensor.shape);
    add(tensor.dtype);
    add(tensor.layout.kind);
    add(tensor.layout.nr);
    add(tensor.region);
    add(tensor.offset);
    add(tensor.bytes);
  }
  void add(const PlanStep& step) {
    add(std::string_view(step.kernel));
    add(step.op);
    if (step.precision != Dtype::f32) add(step.precision);
    std::visit([&](const auto& attrs) { for_each_field(attrs, [&](const char*, const auto& field) { add(field); }); },
               step.attrs);
    for (const std::vector<int32_t>* list : {&step.in, &step.out}) {
      add(list->size());
      for (int32_t tensor : *list) add(tensor);
    }
    add(step.tasks);
  }
  std::string text() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_);
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  }

 private:
  XXH3_state_t* state_;
};

}  // namespace

std::string_view region_name(Region region) {
  switch (region) {
    case Region::persistent: return "persistent";
    case Region::transient: return "transient";
    case Region::io: return "io";
  }
  return "unknown";
}

int64_t Plan::total_bytes(int threads) const {
  int64_t total = scratch_bytes * threads;
  for (int64_t bytes : region_bytes) total += bytes;
  return total;
}

const PlanProgram* Plan::find_program(std::string_view name) const {
  for (const PlanProgram& program : programs)
    if (program.name == name) return &program;
  return nullptr;
}

int32_t Plan::find_tensor(std::string_view name) const {
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].region != Region::transient && tensors[i].name == name) return static_cast<int32_t>(i);
  return -1;
}

std::string plan_digest(const Plan& plan) {
  Digest digest;
  digest.add(plan.isa);
  digest.add(plan.tensors.size());
  for (const PlanTensor& tensor : plan.tensors) digest.add(tensor);
  for (const PlanProgram& program : plan.programs) {
    digest.add(program.name);
    digest.add(program.steps.size());
    for (const PlanStep& step : program.steps) digest.add(step);
  }
  for (int64_t bytes : plan.region_bytes) digest.add(bytes);
  digest.add(plan.scratch_bytes);
  return digest.text();
}

}  // namespace lamina

#include "kernels/arithmetic.h"

namespace lamina {

bool cpu_has(Isa isa, Arithmetic arithmetic) {
  if (!cpu_has(isa) || kernel_table(isa, arithmetic) == nullptr) return false;
  return isa == Isa::portable || arithmetic == Arithmetic::f32 || cpu_has_bf16();
}

std::vector<const KernelTable*> available_tables() {
  std::vector<const KernelTable*> tables;
  for (Arithmetic arithmetic : {Arithmetic::f32, Arithmetic::bf16dot})
    for (Isa isa : available_isas())
      if (cpu_has(isa, arithmetic)) tables.push_back(kernel_table(isa, arithmetic));
  return tables;
}

}  // namespace lamina

#include "kernels/arithmetic.h"

namespace lamina {

bool cpu_has(Isa isa, Arithmetic arithmetic) {
  if (!cpu_has(isa) || kernel_table(isa, arithmetic) == nullptr) return false;
  if (isa == Isa::portable || arithmetic == Arithmetic::f32) return true;
  return arithmetic == Arithmetic::bf16dot ? cpu_has_bf16() : cpu_has_fp16();
}

std::vector<const KernelTable*> available_tables() {
  std::vector<const KernelTable*> tables;
  for (Arithmetic arithmetic : {Arithmetic::f32, Arithmetic::bf16dot, Arithmetic::f16chunk})
    for (Isa isa : available_isas())
      if (cpu_has(isa, arithmetic)) tables.push_back(kernel_table(isa, arithmetic));
  return tables;
}

}  // namespace lamina

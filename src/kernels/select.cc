// Which tables and loops of kernels/cpu exist in this build, one set per ISA that the processor family can have.
#include <span>

#include "base/error.h"
#include "kernels/cpu/peak_loops.h"
#include "kernels/kernel.h"

namespace lamina {

#define LAMINA_RUNG(isa)                 \
  namespace isa {                        \
  extern const KernelTable kernel_table; \
  extern const PeakLoops peak_loops;     \
  }
LAMINA_RUNG(portable)
#if defined(__x86_64__)
LAMINA_RUNG(avx2)
LAMINA_RUNG(avx512)
#endif
#undef LAMINA_RUNG

namespace {

struct Rung {
  const KernelTable* table;
  const PeakLoops* loops;
};

// Indexed by Isa.
constexpr Rung kRungs[] = {
    {&portable::kernel_table, &portable::peak_loops},
#if defined(__x86_64__)
    {&avx2::kernel_table, &avx2::peak_loops},
    {&avx512::kernel_table, &avx512::peak_loops},
#endif
};

const Rung& rung(Isa isa) {
  const size_t i = static_cast<size_t>(isa);
  LAMINA_CHECK(i < std::size(kRungs), "no kernels for {} in this build", isa_name(isa));
  return kRungs[i];
}

}  // namespace

std::string_view arithmetic_name(Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::f32: return "f32";
    case Arithmetic::bf16dot: return "bf16dot";
    case Arithmetic::f16chunk: return "f16chunk";
  }
  return "unknown";
}

const KernelTable& kernel_table(Isa isa) { return *rung(isa).table; }

const KernelTable* kernel_table(Isa isa, Arithmetic arithmetic) {
  return arithmetic == Arithmetic::f32 ? rung(isa).table : nullptr;
}

const PeakLoops& peak_loops(Isa isa) { return *rung(isa).loops; }

const Kernel* find_kernel(const KernelTable& table, Op op) {
  for (const Kernel* kernel : table.kernels)
    if (kernel->op == op) return kernel;
  return nullptr;
}

const Kernel* find_kernel_by_id(std::string_view id) {
  for (const Rung& r : kRungs)
    for (const Kernel* kernel : r.table->kernels)
      if (id == kernel->id) return kernel;
  return nullptr;
}

}  // namespace lamina

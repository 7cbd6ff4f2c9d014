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
#define LAMINA_PRODUCTS(isa)             \
  namespace isa {                        \
  extern const KernelTable kernel_table; \
  }
LAMINA_RUNG(portable)
LAMINA_PRODUCTS(portable_bf16dot)
LAMINA_PRODUCTS(portable_f16chunk)
#if defined(__x86_64__)
LAMINA_RUNG(avx2)
LAMINA_RUNG(avx512)
LAMINA_PRODUCTS(avx512_bf16dot)
LAMINA_PRODUCTS(avx512_f16chunk)
#endif
#undef LAMINA_RUNG
#undef LAMINA_PRODUCTS

namespace {

// Tables in f32 first, those in the order of Isa.
constexpr const KernelTable* kTables[] = {
    &portable::kernel_table,
#if defined(__x86_64__)
    &avx2::kernel_table,
    &avx512::kernel_table,
    &avx512_bf16dot::kernel_table,
    &avx512_f16chunk::kernel_table,
#endif
    &portable_bf16dot::kernel_table,
    &portable_f16chunk::kernel_table,
};

// Indexed by Isa.
constexpr const PeakLoops* kLoops[] = {
    &portable::peak_loops,
#if defined(__x86_64__)
    &avx2::peak_loops,
    &avx512::peak_loops,
#endif
};

size_t rung(Isa isa) {
  const size_t i = static_cast<size_t>(isa);
  LAMINA_CHECK(i < std::size(kLoops), "no kernels for {} in this build", isa_name(isa));
  return i;
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

const KernelTable& kernel_table(Isa isa) { return *kTables[rung(isa)]; }

const KernelTable* kernel_table(Isa isa, Arithmetic arithmetic) {
  for (const KernelTable* table : kTables)
    if (table->isa == isa && table->arithmetic == arithmetic) return table;
  return nullptr;
}

const PeakLoops& peak_loops(Isa isa) { return *kLoops[rung(isa)]; }

const Kernel* find_kernel(const KernelTable& table, Op op) {
  for (const Kernel* kernel : table.kernels)
    if (kernel->op == op) return kernel;
  return nullptr;
}

const Kernel* find_kernel_by_id(std::string_view id) {
  for (const KernelTable* table : kTables)
    for (const Kernel* kernel : table->kernels)
      if (id == kernel->id) return kernel;
  return nullptr;
}

}  // namespace lamina

// Which tables and loops of kernels/cpu exist in this build, one set per ISA that the processor family can have.
#include <span>

#include "base/error.h"
#include "kernels/cpu/peak_loops.h"
#include "kernels/kernel.h"

namespace lamina {

#define LAMINA_PRODUCTS(isa)             \
  namespace isa {                        \
  extern const KernelTable kernel_table; \
  extern const PeakLoops peak_loops;     \
  }
#define LAMINA_RUNG(isa)                 \
  LAMINA_PRODUCTS(isa)                   \
  namespace isa {                        \
  extern const MemoryLoops memory_loops; \
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

struct Compiled {
  const KernelTable* table;
  const PeakLoops* loops;
};

// Those in f32 first, in the order of Isa.
constexpr Compiled kCompiled[] = {
    {&portable::kernel_table, &portable::peak_loops},
#if defined(__x86_64__)
    {&avx2::kernel_table, &avx2::peak_loops},
    {&avx512::kernel_table, &avx512::peak_loops},
    {&avx512_bf16dot::kernel_table, &avx512_bf16dot::peak_loops},
    {&avx512_f16chunk::kernel_table, &avx512_f16chunk::peak_loops},
#endif
    {&portable_bf16dot::kernel_table, &portable_bf16dot::peak_loops},
    {&portable_f16chunk::kernel_table, &portable_f16chunk::peak_loops},
};

// Indexed by Isa.
constexpr const MemoryLoops* kMemoryLoops[] = {
    &portable::memory_loops,
#if defined(__x86_64__)
    &avx2::memory_loops,
    &avx512::memory_loops,
#endif
};

size_t rung(Isa isa) {
  const size_t i = static_cast<size_t>(isa);
  LAMINA_CHECK(i < std::size(kMemoryLoops), "no kernels for {} in this build", isa_name(isa));
  return i;
}

const Compiled* find_compiled(Isa isa, Arithmetic arithmetic) {
  for (const Compiled& c : kCompiled)
    if (c.table->isa == isa && c.table->arithmetic == arithmetic) return &c;
  return nullptr;
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

const KernelTable& kernel_table(Isa isa) { return *kCompiled[rung(isa)].table; }

const KernelTable* kernel_table(Isa isa, Arithmetic arithmetic) {
  const Compiled* compiled = find_compiled(isa, arithmetic);
  return compiled == nullptr ? nullptr : compiled->table;
}

const PeakLoops& peak_loops(Isa isa, Arithmetic arithmetic) {
  const Compiled* compiled = find_compiled(isa, arithmetic);
  LAMINA_CHECK(compiled != nullptr, "no {} for {} in this build", arithmetic_name(arithmetic), isa_name(isa));
  return *compiled->loops;
}

const MemoryLoops& memory_loops(Isa isa) { return *kMemoryLoops[rung(isa)]; }

const Kernel* find_kernel(const KernelTable& table, Op op) {
  for (const Kernel* kernel : table.kernels)
    if (kernel->op == op) return kernel;
  return nullptr;
}

const KernelTable& table_of(const Kernel& kernel) {
  for (const Compiled& c : kCompiled)
    for (const Kernel* own : c.table->kernels)
      if (own == &kernel) return *c.table;
  LAMINA_CHECK(false, "kernel {} is in no table", kernel.id);
}

const Kernel* find_kernel_by_id(std::string_view id) {
  for (const Compiled& c : kCompiled)
    for (const Kernel* kernel : c.table->kernels)
      if (id == kernel->id) return kernel;
  return nullptr;
}

}  // namespace lamina

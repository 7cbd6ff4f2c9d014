// The rungs of the ladder that tests run: all that the processor has, or the one that LAMINA_ISA names, with the
// arithmetics that exist emulated alone.
#pragma once

#include <vector>

#include "base/cpu.h"
#include "kernels/arithmetic.h"
#include "kernels/kernel.h"

namespace lamina::test {

inline std::vector<Isa> tested_isas() {
  const std::optional<Isa> forced = forced_isa();
  return forced ? std::vector<Isa>{*forced} : available_isas();
}

inline std::vector<const KernelTable*> tested_tables() {
  const std::optional<Isa> forced = forced_isa();
  std::vector<const KernelTable*> out;
  for (const KernelTable* table : available_tables())
    if (!forced || table->isa == *forced || !has_instructions(table->isa, table->arithmetic)) out.push_back(table);
  return out;
}

}  // namespace lamina::test

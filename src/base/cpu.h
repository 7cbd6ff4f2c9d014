// What this processor can do, and which rung of the kernel ladder is in use.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lamina {

// The rungs, in rising order. `portable` is baseline x86-64 (or any other machine), compiled from the same sources.
enum class Isa { portable, avx2, avx512 };

std::string_view isa_name(Isa isa);  // "portable", "avx2", "avx512"
std::optional<Isa> parse_isa(std::string_view name);

bool cpu_has(Isa isa);              // the processor and the operating system support it
std::vector<Isa> available_isas();  // rising
std::optional<Isa> forced_isa();    // the one that LAMINA_ISA names, where it is set and not empty; throws as below
// The best rung, or the forced one. Throws Error(usage) where the name is unknown or the CPU lacks it.
Isa select_isa();

// Beside what the rung avx512 needs: products of pairs of bf16 (AVX512_BF16), arithmetic of fp16 (AVX512-FP16).
bool cpu_has_bf16();
bool cpu_has_fp16();
// The makers' cores that multiply pairs of bf16 at twice the rate of fp32: AMD's, Intel's Cooper Lake. Intel's later
// ones have the instruction at half that rate.
bool cpu_has_fast_bf16();

std::string cpu_name();  // as the processor states it, "unknown" where it does not
int cpu_count();         // processors that this process may run on

}  // namespace lamina

#include "base/cpu.h"

#include <sched.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <array>
#include <cstdlib>
#include <fstream>

#include "base/error.h"

namespace lamina {
namespace {

constexpr std::array<Isa, 3> kIsas{Isa::portable, Isa::avx2, Isa::avx512};

struct ExtendedFeatures {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// Leaf 7 of CPUID.
ExtendedFeatures extended_features(uint32_t subleaf) {
  ExtendedFeatures f;
#if defined(__x86_64__)
  if (__get_cpuid_count(7, subleaf, &f.eax, &f.ebx, &f.ecx, &f.edx) == 0) return {};
#endif
  return f;
}

}  // namespace

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::portable: return "portable";
    case Isa::avx2: return "avx2";
    case Isa::avx512: return "avx512";
  }
  return "unknown";
}

std::optional<Isa> parse_isa(std::string_view name) {
  for (Isa isa : kIsas)
    if (isa_name(isa) == name) return isa;
  return std::nullopt;
}

#if defined(__x86_64__)
namespace {

// Intel's manual, CPUID leaf 1. __builtin_cpu_supports of older compilers does not know the name.
bool has_f16c() {
  unsigned int a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

}  // namespace
#endif

bool cpu_has(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::portable: return true;
    case Isa::avx2: return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
    case Isa::avx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  }
#endif
  return isa == Isa::portable;
}

bool cpu_has_bf16() { return cpu_has(Isa::avx512) && (extended_features(1).eax >> 5 & 1u) != 0; }

bool cpu_has_fp16() { return cpu_has(Isa::avx512) && (extended_features(0).edx >> 23 & 1u) != 0; }

bool cpu_has_fast_bf16() {
#if defined(__x86_64__)
  return cpu_has_bf16() && (__builtin_cpu_is("amd") || __builtin_cpu_is("cooperlake"));
#else
  return false;
#endif
}

std::vector<Isa> available_isas() {
  std::vector<Isa> out;
  for (Isa isa : kIsas)
    if (cpu_has(isa)) out.push_back(isa);
  return out;
}

std::optional<Isa> forced_isa() {
  const char* forced = std::getenv("LAMINA_ISA");
  if (forced == nullptr || *forced == '\0') return std::nullopt;
  const std::optional<Isa> isa = parse_isa(forced);
  if (!isa)
    throw_error(ErrorCode::usage, "unknown instruction set: LAMINA_ISA, expected portable, avx2 or avx512, got {}",
                forced);
  if (!cpu_has(*isa))
    throw_error(ErrorCode::usage,
                "instruction set not available: LAMINA_ISA, expected at most {} on this CPU ({}), got {}",
                isa_name(available_isas().back()), cpu_name(), forced);
  return *isa;
}

Isa select_isa() { return forced_isa().value_or(available_isas().back()); }

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  std::string line;
  while (std::getline(info, line)) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

int cpu_count() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return CPU_COUNT(&set);
}

}  // namespace lamina

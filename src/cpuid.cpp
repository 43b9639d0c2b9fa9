#include "cpuid.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace attend::detail {
namespace {

constexpr bool has(std::uint64_t word, int bit) noexcept { return word >> bit & 1; }

}  // namespace

#if defined(__x86_64__)

cpu_registers read_cpu() {
  cpu_registers cpu;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(0, &eax, &ebx, &ecx, &edx)) cpu.intel = ebx == signature_INTEL_ebx;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx)) cpu.leaf1_ecx = ecx;
  unsigned subleaves = 0;
  if (__get_cpuid_count(7, 0, &subleaves, &ebx, &ecx, &edx)) {
    cpu.leaf7_ebx = ebx;
    cpu.leaf7_edx = edx;
    if (subleaves >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx)) cpu.leaf7_1_eax = eax;
  }
  if (has(cpu.leaf1_ecx, 27)) {  // OSXSAVE: xgetbv exists
    std::uint32_t low, high;
    asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    cpu.xcr0 = static_cast<std::uint64_t>(high) << 32 | low;
  }
#if defined(__linux__)
  constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  if (has(cpu.leaf7_edx, 24)) cpu.amx_permitted = syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#endif
  return cpu;
}

#elif defined(__aarch64__)

cpu_registers read_cpu() { return {.advanced_simd = true}; }  // part of the architecture

#else

cpu_registers read_cpu() { return {}; }

#endif

std::vector<isa> classify(const cpu_registers& cpu) {
  std::vector<isa> sets{isa::scalar};
  if (cpu.advanced_simd) sets.push_back(isa::neon);
  const bool ymm = has(cpu.leaf1_ecx, 27) && (cpu.xcr0 & 0x6) == 0x6;  // XMM, YMM
  const bool zmm = ymm && (cpu.xcr0 & 0xe0) == 0xe0;                   // opmask, upper halves, upper registers
  const bool tiles = zmm && (cpu.xcr0 & 0x60000) == 0x60000 && cpu.amx_permitted;

  const bool avx = has(cpu.leaf1_ecx, 28), fma = has(cpu.leaf1_ecx, 12), f16c = has(cpu.leaf1_ecx, 29);
  if (!(ymm && avx && fma && f16c && has(cpu.leaf7_ebx, 5))) return sets;
  sets.push_back(isa::avx2);
  const bool f = has(cpu.leaf7_ebx, 16), dq = has(cpu.leaf7_ebx, 17), bw = has(cpu.leaf7_ebx, 30), vl = has(cpu.leaf7_ebx, 31);
  if (!(zmm && f && dq && bw && vl)) return sets;
  sets.push_back(isa::avx512);
  if (!has(cpu.leaf7_1_eax, 5)) return sets;
  sets.push_back(isa::avx512_bf16);
  if (tiles && has(cpu.leaf7_edx, 22) && has(cpu.leaf7_edx, 24)) sets.push_back(isa::amx_bf16);
  return sets;
}

}  // namespace attend::detail

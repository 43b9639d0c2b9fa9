// Which instruction sets a CPU offers and its operating system enables: a pure function of register values, so that recorded
// CPUs are tests.
#pragma once

#include <cstdint>
#include <vector>

#include "attend/isa.hpp"

namespace attend::detail {

/// What `cpuid` and `xgetbv` answer on x86-64, and what AArch64 has; zeros where a leaf or the processor does not exist.
struct cpu_registers {
  std::uint32_t leaf1_ecx = 0;
  std::uint32_t leaf7_ebx = 0, leaf7_edx = 0;
  std::uint32_t leaf7_1_eax = 0;
  std::uint64_t xcr0 = 0;      ///< register states that the operating system saves
  bool amx_permitted = false;  ///< the operating system grants this process tile registers
  bool advanced_simd = false;  ///< AArch64's
  bool intel = false;          ///< the maker
};

/// This CPU's. Asks the operating system for tile registers where the CPU has them.
cpu_registers read_cpu();

/// The sets those registers allow, worst first.
std::vector<isa> classify(const cpu_registers& cpu);

}  // namespace attend::detail

// Instruction sets: what the CPU and the operating system offer, and what this build has kernels for.
//
// ```cpp
// for (attend::isa set : attend::available_isas()) std::cout << attend::name_of(set) << '\n';
// ```
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace attend {

/// Worst to best: neon is a set of AArch64, those behind it of x86-64. The same words stand in files, CMake and `ATTEND_ISA`.
enum class isa : std::uint8_t { scalar, neon, avx2, avx512, avx512_bf16, amx_bf16 };

/// "scalar", "neon", "avx2", "avx512", "avx512_bf16", "amx_bf16"
std::string_view name_of(isa set) noexcept;

/// Sets that this CPU has and its operating system enables, worst first.
std::vector<isa> detected_isas();

/// Sets that this build has kernels for, worst first.
std::vector<isa> compiled_isas();

/// Detected sets up to the one that `ATTEND_ISA` names, worst first: where kernels are chosen from.
/// Throws `argument_error` where `ATTEND_ISA` names no instruction set or one that is not detected.
std::vector<isa> available_isas();

}  // namespace attend

// What this machine can do at best, measured now: the limits that a benchmark's figures are fractions of.
//
// ```cpp
// attend::limits::measured here = attend::limits::measure(2);
// std::cout << here.fma_f32 * 1e-9 << " GF/s, " << here.read * 1e-9 << " GB/s with " << here.threads << " threads\n";
// ```
//
// Clocks and neighbours change within seconds, so measure next to what is compared, in the same run.
#pragma once

#include <cstddef>
#include <optional>

#include "attend/isa.hpp"
#include "attend/types.hpp"

namespace attend::limits {

/// A multiply-add peak and what it takes to judge it.
struct fma_rate {
  double flops = 0;     ///< flop/s of all threads together; a multiply-add counts two
  double clock = 0;     ///< Hz, from dependent additions between the same bursts of multiply-adds
  int lanes = 0;        ///< multiply-adds of one instruction, or of one of its cycles where an instruction has many (AMX)
  double units = 0;     ///< how many of them one thread starts per cycle, from the three above: 1, 2, …; bf16 also 1/2, 1/4
  double validity = 0;  ///< flops / (threads * lanes * units * 2 * clock)
};

/// A peak below this validity was disturbed and should not be compared with.
inline constexpr double valid_from = 0.97;

/// Bytes that `read_bandwidth` sums: several times any last-level cache.
inline constexpr std::size_t read_bytes = std::size_t{1} << 30;

/// All limits of one run. Rates are those of `threads` threads together.
struct measured {
  double fma_f32 = 0;  ///< flop/s
  double fma_f64 = 0;  ///< flop/s
  double read = 0;     ///< bytes/s
  double clock = 0;    ///< Hz
  double validity_f32 = 0, validity_f64 = 0;
  std::optional<fma_rate> dpbf16;    ///< products of pairs of bfloat16, where the machine has `avx512_bf16`
  std::optional<fma_rate> amx_bf16;  ///< products of tiles of bfloat16, where it has `amx_bf16`
  int threads = 0;
  isa set = isa::scalar;  ///< the instruction set that the peaks were reached with
};

/// The widest set that this processor and its operating system offer for float32 and float64 arithmetic. `ATTEND_ISA` is not
/// asked: a limit is the machine's.
isa widest_isa() noexcept;

/// Measures multiply-adds for about 40 ms, all threads at once, each bound to a processor; up to three times as long where the
/// peak is disturbed. `type` is f32 or f64 and `set` a vector set, or `type` is bf16 and `set` avx512_bf16 or amx_bf16; either no
/// more than the machine has.
/// Throws `argument_error`, `std::system_error` where no thread can be started.
fma_rate measure_fma(dtype type, int threads, isa set = widest_isa());

/// `measure_fma(type, threads).flops`, in flop/s.
double fma_peak(dtype type, int threads);

/// Bytes per second of a sum over `bytes` bytes, each thread over its own part: the median of five passes, because memory
/// is shared with neighbours that come and go, and no single pass lasts as long as what is compared. Allocates that much.
/// Throws `argument_error`, `std::bad_alloc`, `std::system_error`.
double read_bandwidth(int threads, std::size_t bytes = read_bytes);

/// Clock of the calling thread's core in Hz, from additions that depend on each other: one per cycle.
double clock_frequency();

/// Everything above, in about a second. Throws as they do.
measured measure(int threads);

}  // namespace attend::limits

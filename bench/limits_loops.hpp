// The loops that are measured, one table per instruction set. Private to bench/limits*.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace attend::limits {

/// Independent multiply-adds in flight: at least latency times units per cycle, which is 8 to 12 on x86-64 and 16 on wide ARM
/// cores. x86-64 without AVX-512 has 16 registers, two of which hold the factors.
#if defined(__aarch64__)
inline constexpr int accumulators = 24;
#else
inline constexpr int accumulators = 14;
#endif

/// Bytes of the widest vector, and of a cache line: buffers are aligned to it.
inline constexpr std::size_t widest_vector = 64;

/// Bytes that one step of `read` sums with every instruction set.
inline constexpr std::size_t read_step = 512;
// Bytes in front of what is read that are asked for, and those that come at a time.
inline constexpr std::size_t read_ahead = 4096, cache_line = 64;

struct loops {
  std::size_t vector_bytes;
  /// `steps` rounds of `accumulators` vector multiply-adds; `values` holds their start and receives their end.
  void (*fma_f32)(std::int64_t steps, float* values);
  void (*fma_f64)(std::int64_t steps, double* values);
  /// Sum of `steps` times `read_step` bytes as 64-bit integers.
  std::uint64_t (*read)(std::int64_t steps, const void* data);
};

extern const loops baseline_loops;
#if defined(__x86_64__)
extern const loops avx2_loops;
extern const loops avx512_loops;
#endif

/// Products of bfloat16 with sums in float32, by one instruction set.
struct bf16_loop {
  int lanes;          ///< multiply-adds that a unit does in a cycle
  int multiply_adds;  ///< of one step
  void (*run)(std::int64_t steps);
};

#if defined(__x86_64__)
extern const bf16_loop dpbf16_loop;    // _mm512_dpbf16_ps
extern const bf16_loop amx_bf16_loop;  // tdpbf16ps
#endif

}  // namespace attend::limits

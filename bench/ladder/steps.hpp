// What the steps of the ladder share: the problem that each computes, and what a step is.
//
// Included by units of every instruction set, so nothing of the standard library comes with it but integers (CONTRIBUTING.md).
#pragma once

#include <cstdint>

namespace attend::kernel_ladder {

/// One head of attention: y = softmax(scale * q k^T) v. Rows are adjacent, numbers finite, there is at least one key, `scale` > 0.
/// bfloat16 stands for itself by its bits, std::uint16_t.
template <class T>
struct head {
  const T* q;  ///< (queries, width)
  const T* k;  ///< (keys, width)
  const T* v;  ///< (keys, value_width)
  T* y;        ///< (queries, value_width)
  std::int64_t queries, keys, width, value_width;
  float scale;
};

/// One rung. A unit exports its step and nothing else.
template <class T>
struct step {
  const char* name;
  std::int64_t width_multiple;                        ///< width and value_width have to be multiples of it
  std::int64_t (*scratch_bytes)(const head<T>& one);  ///< what `run` needs beside its arguments
  void (*run)(const head<T>& one, void* scratch);     ///< `scratch` at a multiple of 64 bytes
};

using bfloat16_bits = std::uint16_t;

extern const step<float> naive, tiled, lanes;
#if defined(__x86_64__)
extern const step<float> avx512;
extern const step<bfloat16_bits> amx;
#endif
extern const step<bfloat16_bits> amx_software;  ///< the code of `amx` on tiles of plain loops: for tests, not for speed

}  // namespace attend::kernel_ladder

// The least time of a piece of work at this machine's limits.
#pragma once

#include <string>

#include "attend/types.hpp"

namespace attend::cli {

/// What bounds work of one dtype: measured when made, about half a second.
struct roofline {
  dtype type = dtype::f32;
  double fma = 0;   ///< flop/s of all threads in the accumulator of `type`: halves are computed in float32
  double read = 0;  ///< bytes/s of all threads
  int threads = 0;

  /// Measures with at most one thread per processor.
  static roofline measure(dtype type, int threads);

  /// Measures the multiply-add peak again.
  void measure_fma();

  /// Seconds: the larger of arithmetic at its peak and memory at its bandwidth.
  double least(double flops, double bytes) const;
  /// Which of the two that is.
  const char* reason(double flops, double bytes) const;
  /// "345 GF/s in float32 and 28 GB/s"; for halves with the reason why it is float32.
  std::string peaks() const;
};

}  // namespace attend::cli

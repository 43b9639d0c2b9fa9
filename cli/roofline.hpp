// The least time of a piece of work at this machine's limits.
#pragma once

#include "attend/types.hpp"

namespace attend::cli {

/// What bounds work of one dtype: measured when made, about half a second.
struct roofline {
  double fma = 0;   ///< flop/s of all threads
  double read = 0;  ///< bytes/s of all threads
  int threads = 0;

  /// Measures with at most one thread per processor. Anything but f64 counts as f32.
  static roofline measure(dtype type, int threads);

  /// Measures the multiply-add peak again.
  void measure_fma(dtype type);

  /// Seconds: the larger of arithmetic at its peak and memory at its bandwidth.
  double least(double flops, double bytes) const;
  /// Which of the two that is.
  const char* reason(double flops, double bytes) const;
};

}  // namespace attend::cli

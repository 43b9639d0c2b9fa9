// A result against the float64 reference, element by element.
#pragma once

#include <cstdint>

#include "attend/attend.hpp"

namespace attend::cli {

/// Errors of a result; those in units in the last place count in units of the largest number of their row, because single elements
/// may cancel to almost nothing.
struct comparison {
  std::int64_t elements = 0, over = 0;
  std::int64_t largest_at = 0;  ///< element with the largest error, row-major in out
  double largest = 0, mean = 0, largest_ulp = 0, mean_ulp = 0;
  double bound = 0;        ///< at the largest error
  double worst_share = 0;  ///< of its bound, over all elements
};

/// Infinity where the truth rounds to it, and NaN where NaN is due, are no error.
template <class T>
comparison compare(const tensor<T>& out, const tensor<double>& truth, const tensor<double>& bound);

extern template comparison compare(const tensor<float>&, const tensor<double>&, const tensor<double>&);
extern template comparison compare(const tensor<double>&, const tensor<double>&, const tensor<double>&);
extern template comparison compare(const tensor<float16>&, const tensor<double>&, const tensor<double>&);
extern template comparison compare(const tensor<bfloat16>&, const tensor<double>&, const tensor<double>&);

}  // namespace attend::cli

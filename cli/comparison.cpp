#include "comparison.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attend::cli {

namespace {

/// Distance of a result from the truth; equal infinities and NaN where NaN is due are no error. An infinite result stands for all
/// numbers that round to it: those from half a unit in the last place behind the largest one.
template <class T>
double error_of(double got, double truth) {
  if (got == truth || (std::isnan(got) && std::isnan(truth))) return 0;
  using limits = std::numeric_limits<T>;
  static const double end = std::ldexp(1.0, limits::max_exponent) - std::ldexp(1.0, limits::max_exponent - limits::digits - 1);
  if (std::isinf(got)) {
    if (std::abs(truth) >= end && std::signbit(got) == std::signbit(truth)) return 0;
    got = std::copysign(end, got);
  }
  const double distance = std::abs(got - truth);
  return std::isnan(distance) ? std::numeric_limits<double>::infinity() : distance;
}

/// Distance from a size, rounded to type T, to the next larger number of it; at the largest number, to the next smaller one.
template <class T>
double unit_in_the_last_place(double size) {
  using limits = std::numeric_limits<T>;
  constexpr T largest = limits::max();
  const T rounded = size < static_cast<double>(largest) ? static_cast<T>(size) : largest;
  const int exponent = std::max(std::ilogb(static_cast<double>(rounded)), limits::min_exponent - 1);
  return std::ldexp(1.0, exponent - (limits::digits - 1));
}

template <class T>
double unit_of_row(const double* row, std::int64_t width) {
  double largest = 0;
  for (std::int64_t c = 0; c < width; ++c) {
    if (std::abs(row[c]) > largest) largest = std::abs(row[c]);
  }
  return unit_in_the_last_place<T>(largest);
}

}  // namespace

template <class T>
comparison compare(const tensor<T>& out, const tensor<double>& truth, const tensor<double>& bound) {
  comparison found;
  found.elements = out.size();
  const std::int64_t width = out.shape()[out.shape().rank() - 1];
  double unit = 0;
  for (std::int64_t i = 0; i < out.size(); ++i) {
    if (i % width == 0) unit = unit_of_row<T>(truth.data() + i, width);
    const double error = error_of<T>(static_cast<double>(out.data()[i]), truth.data()[i]), limit = bound.data()[i];
    if (i == 0 || error > found.largest) {
      found.largest = error;
      found.largest_at = i;
      found.bound = limit;
    }
    found.mean += error;
    found.mean_ulp += error / unit;
    found.largest_ulp = std::max(found.largest_ulp, error / unit);
    // Written so that a bound that is no number counts as passed by no error but 0.
    if (error > 0 && !(error <= limit)) ++found.over;
    if (error > 0) found.worst_share = std::max(found.worst_share, error / limit);
  }
  const double count = static_cast<double>(std::max<std::int64_t>(found.elements, 1));
  found.mean /= count;
  found.mean_ulp /= count;
  return found;
}

template comparison compare(const tensor<float>&, const tensor<double>&, const tensor<double>&);
template comparison compare(const tensor<double>&, const tensor<double>&, const tensor<double>&);
template comparison compare(const tensor<float16>&, const tensor<double>&, const tensor<double>&);
template comparison compare(const tensor<bfloat16>&, const tensor<double>&, const tensor<double>&);

}  // namespace attend::cli

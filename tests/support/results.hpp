// Results of a call, and how they are compared: bit by bit, or up to a bound.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "attend/attend.hpp"

namespace attend::test {

/// Sanitizers make everything slow: sweeps then take fewer and smaller problems.
inline bool quick() {
  static const bool set = std::getenv("ATTEND_TEST_QUICK") != nullptr;
  return set;
}

/// Shape of `lse` where `out` has this shape.
inline extents lse_shape(const extents& out, layout order = layout::bhld) {
  extents shape;
  for (int axis = 0; axis + 1 < out.rank(); ++axis) shape.push_back(out[axis]);
  if (order == layout::blhd && shape.rank() > 1) std::swap(shape[shape.rank() - 1], shape[shape.rank() - 2]);
  return shape;
}

inline extents appended(extents shape, std::int64_t size) {
  shape.push_back(size);
  return shape;
}

/// Number of keys of this k.
inline std::int64_t keys_of(const extents& k, layout order) {
  return k[k.rank() - (order == layout::blhd && k.rank() > 2 ? 3 : 2)];
}

template <class T>
struct computed {
  tensor<T> out;
  tensor<accumulator<T>> lse;  ///< empty where the normalizer has none
  tensor<T> weights;           ///< empty unless asked for
};

/// Element `index` of a row-major array, as "[1, 0, 3]".
inline std::string place(const extents& shape, std::int64_t index) {
  extents at = shape;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    at[axis] = index % shape[axis];
    index /= shape[axis];
  }
  return "at " + at.to_string();
}

template <class T>
testing::AssertionResult same_bits(const tensor<T>& a, const tensor<T>& b) {
  if (a.shape() != b.shape()) return testing::AssertionFailure() << a.shape().to_string() << " and " << b.shape().to_string();
  for (std::int64_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(a.data() + i, b.data() + i, sizeof(T)) != 0)
      return testing::AssertionFailure() << place(a.shape(), i) << " of " << a.shape().to_string() << ": " << a.data()[i]
                                         << " and " << b.data()[i];
  }
  return testing::AssertionSuccess();
}

template <class T>
testing::AssertionResult same_bits(const computed<T>& a, const computed<T>& b) {
  if (auto same = same_bits(a.out, b.out); !same) return same << " (out)";
  if (auto same = same_bits(a.lse, b.lse); !same) return same << " (lse)";
  if (auto same = same_bits(a.weights, b.weights); !same) return same << " (weights)";
  return testing::AssertionSuccess();
}

/// `got` equals `truth` up to `bound(i)`; NaN, infinities and zeros of empty rows exactly.
template <class T, class Bound>
testing::AssertionResult near(const tensor<T>& got, const tensor<double>& truth, const Bound& bound) {
  if (got.shape() != truth.shape())
    return testing::AssertionFailure() << got.shape().to_string() << ", expected " << truth.shape().to_string();
  for (std::int64_t i = 0; i < got.size(); ++i) {
    const double is = static_cast<double>(got.data()[i]), should = truth.data()[i];
    const bool right = std::isfinite(should) ? std::abs(is - should) <= bound(i)
                       : std::isnan(should)  ? std::isnan(is)
                                             : is == should;
    if (!right)
      return testing::AssertionFailure() << place(got.shape(), i) << " of " << got.shape().to_string() << ": " << is
                                         << ", expected " << should << " within " << bound(i);
  }
  return testing::AssertionSuccess();
}

template <class T>
inline constexpr double relative_bound = std::is_same_v<T, double>    ? 1e-12
                                         : std::is_same_v<T, float>   ? 2e-6
                                         : std::is_same_v<T, float16> ? 1e-3
                                                                      : 8e-3;

/// What storing a result as T adds to its error.
template <class T>
double stored_error(double x) {
  if (std::is_same_v<T, accumulator<T>>) return 0;
  return static_cast<double>(std::numeric_limits<T>::epsilon()) / 2 * std::abs(x) +
         static_cast<double>(std::numeric_limits<T>::denorm_min());
}

/// The largest finite magnitude.
template <class T>
double largest(const tensor<T>& x) {
  double best = 0;
  for (const T& value : x)
    if (std::isfinite(value)) best = std::max(best, std::abs(static_cast<double>(value)));
  return best;
}

/// `lse` is judged relative to the largest, as it is the logarithm of sums of rounded scores.
template <class T>
testing::AssertionResult lse_near(const tensor<T>& got, const tensor<double>& truth) {
  const double bound = (std::is_same_v<T, float> ? 1e-5 : 1e-11) * std::max(1.0, largest(truth));
  return near(got, truth, [&](std::int64_t) { return bound; });
}

}  // namespace attend::test

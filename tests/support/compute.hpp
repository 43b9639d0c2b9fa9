// Calls with every result wanted, and how results are compared: bit by bit, or with the reference within its bound.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>

#include "attend/attend.hpp"
#include "support/random.hpp"

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
  tensor<T> lse;
  tensor<T> weights;  ///< empty unless asked for
};

/// All results of a call, in memory that held something else before.
template <class T>
computed<T> compute(const array_view& q, const array_view& k, const array_view& v, const options& how = {},
                    bool weights = false) {
  const extents shape = output_shape(q, k, v, how), rows = lse_shape(shape, how.layout);
  computed<T> all{tensor<T>(shape, T(77)), tensor<T>(rows, T(78)), {}};
  outputs results{.out = all.out, .lse = all.lse};
  if (weights) {
    all.weights = tensor<T>(appended(rows, keys_of(k.shape, how.layout)), T(79));
    results.weights = all.weights;
  }
  attention(q, k, v, results, how);
  return all;
}

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
inline constexpr double relative_bound = std::is_same_v<T, float> ? 2e-6 : 1e-12;

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

/// All results of the call are those of the reference, within the error that the contract allows.
template <class T>
testing::AssertionResult as_reference(const computed<T>& got, const array_view& q, const array_view& k, const array_view& v,
                                      const options& how = {}) {
  const bool weights = got.weights.shape().rank() > 0;
  const reference::result truth = reference::attention(q, k, v, how, weights);
  const tensor<double> bound = reference::error_bound(q, k, v, how, truth);
  if (auto right = near(got.out, truth.out, [&](std::int64_t i) { return bound.data()[i]; }); !right) return right << " (out)";
  if (auto right = lse_near(got.lse, truth.lse); !right) return right << " (lse)";
  // A weight moves with the rounding of its own score, as lse does.
  const double weight_bound = relative_bound<T> * (2 + 4 * largest(truth.lse));
  if (weights)
    if (auto right = near(got.weights, truth.weights, [&](std::int64_t) { return weight_bound; }); !right)
      return right << " (weights)";
  return testing::AssertionSuccess();
}

/// The usual inputs of a problem, rank 4.
template <class T>
struct inputs {
  tensor<T> q, k, v;
};

struct sizes {
  std::int64_t B = 1, H = 1, Hk = 1, L = 1, S = 1, E = 1, Ev = 1;

  std::string to_string() const {
    std::ostringstream text;
    text << "B " << B << ", H " << H << ", Hk " << Hk << ", L " << L << ", S " << S << ", E " << E << ", Ev " << Ev;
    return text.str();
  }
};

template <class T>
inputs<T> make_inputs(const sizes& n, std::uint64_t seed = 1, layout order = layout::bhld) {
  const auto shape = [&](std::int64_t heads, std::int64_t length, std::int64_t width) {
    return order == layout::bhld ? extents{n.B, heads, length, width} : extents{n.B, length, heads, width};
  };
  return {normal<T>(shape(n.H, n.L, n.E), 3 * seed), normal<T>(shape(n.Hk, n.S, n.E), 3 * seed + 1),
          normal<T>(shape(n.Hk, n.S, n.Ev), 3 * seed + 2)};
}

template <class T>
computed<T> compute(const inputs<T>& x, const options& how = {}, bool weights = false) {
  return compute<T>(x.q, x.k, x.v, how, weights);
}

template <class T>
testing::AssertionResult right(const inputs<T>& x, const options& how = {}, bool weights = false) {
  return as_reference(compute<T>(x.q, x.k, x.v, how, weights), x.q, x.k, x.v, how);
}

/// Both element types, for typed tests.
using element_types = testing::Types<float, double>;

}  // namespace attend::test

// Calls with every result wanted, of the usual inputs.
#pragma once

#include <sstream>
#include <string>

#include "support/expectation.hpp"
#include "support/random.hpp"

namespace attend::test {

/// All results of a call, in memory that held something else before.
template <class T>
computed<T> compute(const array_view& q, const array_view& k, const array_view& v, const options& how = {},
                    bool weights = false) {
  const extents shape = output_shape(q, k, v, how), rows = lse_shape(shape, how.layout);
  computed<T> all{tensor<T>(shape, T(77)), {}, {}};
  outputs results{.out = all.out};
  if (how.normalizer == normalizer::softmax) {
    all.lse = tensor<accumulator<T>>(rows, 78);
    results.lse = all.lse;
  }
  if (weights) {
    all.weights = tensor<T>(appended(rows, keys_of(k.shape, how.layout)), T(79));
    results.weights = all.weights;
  }
  attention(q, k, v, results, how);
  return all;
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

/// A shape that broadcasts to (B, H, L, S).
inline extents any_broadcast(const sizes& n, random_source& draw) {
  const std::int64_t full[] = {n.B, n.H, n.L, n.S};
  extents shape;
  for (auto axis = draw.between(0, 4); axis < 4; ++axis) shape.push_back(draw.coin(0.3) ? 1 : full[axis]);
  return shape;
}

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

#if ATTEND_TEST_PAIRS  // all of them on kernels that multiply pairs of bfloat16
using element_types = testing::Types<bfloat16>;
using stored_types = element_types;
using sized_types = element_types;
#else
/// What kernels compute in: for typed tests of what happens to numbers once they were read.
using element_types = testing::Types<float, double>;

/// What arrays may hold: for typed tests of reading, writing and rounding.
using stored_types = testing::Types<float, double, float16, bfloat16>;

/// One type of each size: for long typed tests of which memory is read.
using sized_types = testing::Types<float, double, bfloat16>;
#endif

}  // namespace attend::test

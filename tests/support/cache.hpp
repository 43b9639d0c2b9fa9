// Parts of arrays as caches take them, and everything that queries over a cache give.
#pragma once

#include <span>

#include "support/compute.hpp"

namespace attend::test {

/// A view that only reads.
template <tensor_like X>
tensor_view<const typename X::value_type> reading(const X& x) {
  return x.view();
}

/// Tokens [begin, end) of the axis before the last.
template <tensor_like X>
tensor_view<const typename X::value_type> tokens(const X& x, std::int64_t begin, std::int64_t end) {
  auto view = reading(x);
  const int axis = view.shape.rank() - 2;
  view.data += begin * view.strides[axis];
  view.shape[axis] = end - begin;
  return view;
}

/// Sequence b of an array whose first axis counts sequences.
template <tensor_like X>
tensor_view<const typename X::value_type> sequence_of(const X& x, std::int64_t b) {
  const auto view = reading(x);
  extents shape, strides;
  for (int axis = 1; axis < view.shape.rank(); ++axis) shape.push_back(view.shape[axis]), strides.push_back(view.strides[axis]);
  return {view.data + b * view.strides[0], shape, strides};
}

/// Out and LSE of a call that writes them.
template <class T, class Call>
computed<T> computed_by(const extents& shape, const Call& call) {
  computed<T> all{tensor<T>(shape, T(77)), tensor<accumulator<T>>(lse_shape(shape), 78), {}};
  call(outputs{.out = all.out, .lse = all.lse});
  return all;
}

template <tensor_like Q>
computed<typename Q::value_type> decoded(const Q& q, kv_cache& cache, const options& how = {}) {
  return computed_by<typename Q::value_type>(decoded_shape(q, cache, how),
                                             [&](const outputs& to) { decode(q, cache, to, how); });
}
template <tensor_like Q>
computed<typename Q::value_type> decoded(const Q& q, const paged_kv_cache& cache, std::span<const sequence_id> sequences,
                                         const options& how = {}) {
  return computed_by<typename Q::value_type>(decoded_shape(q, cache, sequences, how),
                                             [&](const outputs& to) { decode(q, cache, sequences, to, how); });
}

}  // namespace attend::test

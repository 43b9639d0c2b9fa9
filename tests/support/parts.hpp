// Parts of tensors, and whether results are parts of others.
#pragma once

#include "support/compute.hpp"

namespace attend::test {

/// Rows [first, first + count) of axis `axis`, as a view.
template <class T>
tensor_view<const T> part(const tensor<T>& x, int axis, std::int64_t first, std::int64_t count) {
  tensor_view<const T> view = x.view();
  view.data += first * view.strides[axis];
  view.shape[axis] = count;
  return view;
}

/// `some` are these rows of `all` along `axis`.
template <class T>
testing::AssertionResult is_part(const tensor<T>& some, const tensor<T>& all, int axis, std::int64_t first) {
  tensor<T> expected(some.shape());
  std::int64_t outer = 1, inner = 1;
  for (int i = 0; i < axis; ++i) outer *= all.shape()[i];
  for (int i = axis + 1; i < all.shape().rank(); ++i) inner *= all.shape()[i];
  const std::int64_t count = some.shape()[axis];
  for (std::int64_t i = 0; i < outer; ++i)
    std::copy_n(all.data() + (i * all.shape()[axis] + first) * inner, count * inner, expected.data() + i * count * inner);
  return same_bits(some, expected);
}

}  // namespace attend::test

// Packed sequences as tests take them: their arrays, what calls with them give, and each sequence alone.
#pragma once

#include <utility>
#include <vector>

#include "support/score.hpp"

namespace attend::test {

/// Queries and keys of each sequence.
using sequence_lengths = std::vector<std::pair<std::int64_t, std::int64_t>>;

template <class T>
struct packed {
  sequence_lengths lengths;
  tensor<T> q, k, v;
  tensor<std::int64_t> at_q, at_k;

  std::int64_t count() const { return static_cast<std::int64_t>(lengths.size()); }
  std::int64_t queries() const { return q.shape()[0]; }
  std::int64_t keys() const { return k.shape()[0]; }
};

/// Sizes of heads and widths are those of `n`.
template <class T>
packed<T> make_packed(const sequence_lengths& lengths, const sizes& n, std::uint64_t seed = 1) {
  packed<T> x{lengths, {}, {}, {}, tensor<std::int64_t>({std::int64_t(lengths.size()) + 1}), {}};
  x.at_k = tensor<std::int64_t>(x.at_q.shape());
  for (std::int64_t s = 0; s < x.count(); ++s) {
    x.at_q(s + 1) = x.at_q(s) + lengths[std::size_t(s)].first;
    x.at_k(s + 1) = x.at_k(s) + lengths[std::size_t(s)].second;
  }
  x.q = normal<T>({x.at_q(x.count()), n.H, n.E}, 3 * seed);
  x.k = normal<T>({x.at_k(x.count()), n.Hk, n.E}, 3 * seed + 1);
  x.v = normal<T>({x.at_k(x.count()), n.Hk, n.Ev}, 3 * seed + 2);
  return x;
}

/// Results in memory that held something else before.
template <class T>
computed<T> compute(const packed<T>& x, const options& how = {}) {
  computed<T> all{tensor<T>({x.queries(), x.q.shape()[1], x.v.shape()[2]}, T(77)), {}, {}};
  outputs results{.out = all.out};
  if (how.normalizer == normalizer::softmax) {
    all.lse = tensor<accumulator<T>>({x.queries(), x.q.shape()[1]}, 78);
    results.lse = all.lse;
  }
  attention_varlen(x.q, x.k, x.v, x.at_q, x.at_k, results, how);
  return all;
}

template <class T>
testing::AssertionResult as_reference(const computed<T>& got, const packed<T>& x, const options& how) {
  const auto truth = reference::attention_varlen(x.q, x.k, x.v, x.at_q, x.at_k, how);
  const auto bound = reference::error_bound_varlen(x.q, x.k, x.v, x.at_q, x.at_k, how, truth);
  if (auto right = near(got.out, truth.out, [&](std::int64_t at) { return bound.data()[at]; }); !right)
    return right << " (out)";
  if (truth.lse.shape().rank() > 0)
    if (auto right = lse_near(got.lse, truth.lse); !right) return right << " (lse)";
  return testing::AssertionSuccess();
}

template <class T>
testing::AssertionResult right(const packed<T>& x, const options& how = {}) {
  return as_reference(compute(x, how), x, how);
}

/// The rows of sequence s as (1, length, heads, width).
template <class T>
tensor_view<const T> sequence_of(const tensor<T>& x, const tensor<std::int64_t>& starts, std::int64_t s) {
  const tensor_view<const T> all = x.view();
  return {all.data + starts(s) * all.strides[0],
          {1, starts(s + 1) - starts(s), all.shape[1], all.shape[2]},
          {0, all.strides[0], all.strides[1], all.strides[2]}};
}

/// What sequence s gives in a call of its own. `how` is that of the packed call but for what differs by sequence.
template <class T>
computed<T> compute_alone(const packed<T>& x, std::int64_t s, options how) {
  how.layout = layout::blhd;
  if (!how.query_offset.given()) how.query_offset = lower_right;
  return compute<T>(sequence_of(x.q, x.at_q, s), sequence_of(x.k, x.at_k, s), sequence_of(x.v, x.at_k, s), how);
}

/// The rows of sequence s in `whole` have the bits of `alone`.
template <class T>
testing::AssertionResult is_sequence(const computed<T>& alone, const computed<T>& whole, const packed<T>& x, std::int64_t s) {
  const std::int64_t first = x.at_q(s), L = x.at_q(s + 1) - first, H = x.q.shape()[1], Ev = x.v.shape()[2];
  tensor<T> out({1, L, H, Ev});
  std::copy_n(whole.out.data() + first * H * Ev, out.size(), out.data());
  if (auto same = same_bits(alone.out, out); !same) return same << " (out of sequence " << s << ")";
  if (alone.lse.shape().rank() == 0) return testing::AssertionSuccess();
  tensor<accumulator<T>> lse({1, H, L});
  for_each_index(lse.shape(), [&](const extents& at) { lse(0, at[1], at[2]) = whole.lse(first + at[2], at[1]); });
  if (auto same = same_bits(alone.lse, lse); !same) return same << " (lse of sequence " << s << ")";
  return testing::AssertionSuccess();
}

}  // namespace attend::test

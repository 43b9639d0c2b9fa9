// The oracle is judged here by numbers worked out by hand and by a second definition that shares no code with it.
#include <gtest/gtest.h>

#include <cmath>

#include "support/definition.hpp"

namespace attend::test {
namespace {

TEST(reference, gives_the_numbers_of_a_row_worked_out_by_hand) {
  tensor<double> q({1, 2}), k({3, 2}), v({3, 1});
  q(0, 0) = 1, q(0, 1) = 2;
  k(0, 0) = 3, k(0, 1) = 0, k(1, 0) = 0, k(1, 1) = 1, k(2, 0) = 1, k(2, 1) = 1;  // dot products 3, 2, 3
  v(0, 0) = 1, v(1, 0) = 10, v(2, 0) = 100;
  const double e = std::exp(1.0), sum = e + 1 + e;
  const auto y = reference::attention(q, k, v, {.scale = 1.0}, true);
  EXPECT_EQ(y.out.shape(), (extents{1, 1}));
  EXPECT_EQ(y.lse.shape(), (extents{1}));
  EXPECT_EQ(y.weights.shape(), (extents{1, 3}));
  EXPECT_NEAR(y.out(0, 0), (101 * e + 10) / sum, 1e-13);
  EXPECT_NEAR(y.lse(0), 2 + std::log(sum), 1e-14);
  EXPECT_NEAR(y.weights(0, 1), 1 / sum, 1e-16);
  EXPECT_NEAR(reference::attention(q, k, v).lse(0), std::log(2 * std::exp(3 / std::sqrt(2.0)) + std::exp(std::sqrt(2.0))),
              1e-14)
      << "the default scale is 1/sqrt(E)";
}

TEST(reference, weights_are_empty_unless_asked_for) {
  const auto x = make_inputs<float>({.L = 2, .S = 3, .E = 4, .Ev = 5});
  EXPECT_EQ(reference::attention(x.q, x.k, x.v).weights.size(), 0);
}

TEST(reference, is_the_definition_for_causal_windows_prefixes_and_lengths) {
  const sizes n{.B = 3, .H = 4, .Hk = 2, .L = 7, .S = 11, .E = 5, .Ev = 3};
  const auto x = make_inputs<double>(n);
  tensor<std::int64_t> offset({n.B}), prefix({n.B}), lengths({n.B});
  offset(0) = -2, offset(1) = 3, offset(2) = 9;
  prefix(0) = 0, prefix(1) = 2, prefix(2) = 40;
  lengths(0) = 11, lengths(1) = 6, lengths(2) = 0;
  for (const bool causal : {false, true}) {
    for (const std::int64_t left : {-1, 0, 2}) {
      const options how{.causal = causal,
                        .window = {left < 0 ? std::nullopt : std::optional(left), 1},
                        .query_offset = offset,
                        .prefix = prefix,
                        .key_lengths = lengths,
                        .scale = -0.75};
      const auto want = by_definition(x, {.allowed =
                                              [&](auto b, auto, auto i, auto j) {
                                                const std::int64_t p = i + offset(b);
                                                const bool seen =
                                                    (!causal || j <= p) && (left < 0 || j >= p - left) && j <= p + 1;
                                                return (seen || j < prefix(b)) && j < lengths(b);
                                              },
                                          .scale = -0.75});
      EXPECT_TRUE(same_result(reference::attention(x.q, x.k, x.v, how, true), want))
          << "causal " << causal << ", left " << left;
    }
  }
}

TEST(reference, is_the_definition_for_masks_and_biases) {
  const sizes n{.B = 2, .H = 6, .Hk = 3, .L = 4, .S = 5, .E = 3, .Ev = 2};
  const auto x = make_inputs<float>(n, 5);
  const auto mask = coins({n.H, 1, n.S}, 6, 0.6);
  auto bias = normal<float>({n.B, 1, n.L, n.S}, 7, 3);
  bias(1, 0, 2, 3) = static_cast<float>(-infinity);
  const auto want = by_definition(
      x, {.allowed = [&](auto b, auto h, auto i, auto j) { return mask(h, 0, j) && bias(b, 0, i, j) > -infinity; },
          .bias = [&](auto b, auto, auto i, auto j) { return double(bias(b, 0, i, j)); },
          .scale = 1 / std::sqrt(3.0)});
  EXPECT_TRUE(same_result(reference::attention(x.q, x.k, x.v, {.mask = mask, .bias = bias}, true), want));
}

TEST(reference, reads_the_second_layout) {
  const sizes n{.B = 2, .H = 4, .Hk = 2, .L = 3, .S = 5, .E = 4, .Ev = 2};
  const auto x = make_inputs<double>(n, 8);
  const auto turned = [](const tensor<double>& t) {
    tensor<double> r({t.shape()[0], t.shape()[2], t.shape()[1], t.shape()[3]});
    for_each_index(t.shape(), [&](const extents& at) { r(at[0], at[2], at[1], at[3]) = t(at[0], at[1], at[2], at[3]); });
    return r;
  };
  const auto q = turned(x.q), k = turned(x.k), v = turned(x.v);
  const auto want = reference::attention(x.q, x.k, x.v, {}, true);
  const auto got = reference::attention(q, k, v, {.layout = layout::blhd}, true);
  EXPECT_TRUE(same_bits(got.out, turned(want.out)));
  EXPECT_TRUE(same_bits(got.lse, want.lse));
  EXPECT_TRUE(same_bits(got.weights, want.weights));
}

TEST(reference, error_bound_is_relative_to_the_largest_finite_value) {
  auto x = make_inputs<float>({.L = 2, .S = 3, .E = 2, .Ev = 2});
  for (float& value : x.q) value = 0;
  for (float& value : x.v) value = -4;
  x.v(0, 0, 0, 0) = static_cast<float>(infinity);
  const auto bound = reference::error_bound(x.q, x.k, x.v, {}, reference::attention(x.q, x.k, x.v));
  EXPECT_EQ(bound.shape(), (extents{1, 1, 2, 2}));
  EXPECT_NEAR(bound(0, 0, 1, 1), 8e-6, 1e-12);
  const auto y = make_inputs<double>({.L = 1, .S = 1, .E = 1, .Ev = 1});
  EXPECT_NEAR(reference::error_bound(y.q, y.k, y.v, {}, reference::attention(y.q, y.k, y.v))(0, 0, 0, 0),
              1e-12 * std::abs(y.v(0, 0, 0, 0)), 1e-20);
}

TEST(reference, error_bound_grows_with_the_size_of_the_scores) {
  tensor<float> q({1, 1}, 100.0f), k({2, 1}, 1000.0f), v({2, 1});
  v(0, 0) = 1, v(1, 0) = -1;  // equal weights: y = 0, sum_j w_j |v_j - y| = 1
  const auto bound = reference::error_bound(q, k, v, {}, reference::attention(q, k, v));
  EXPECT_NEAR(bound(0, 0), 2 * 0x1p-23 * 1e5, 1e-9);
  tensor<float> bias({2}, -3e5f);
  const options how{.bias = bias};
  EXPECT_NEAR(reference::error_bound(q, k, v, how, reference::attention(q, k, v, how))(0, 0), 2 * 0x1p-23 * 4e5, 1e-9);
}

}  // namespace
}  // namespace attend::test

// The oracle on segments, score functions, sinks, dropout and packed sequences: worked out by hand, and a second definition.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/definition.hpp"
#include "support/score.hpp"

namespace attend::test {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

TEST(reference, gives_the_numbers_of_score_functions_worked_out_by_hand) {
  tensor<double> q({1, 1}, 1.0), k({2, 1}), v({2, 1}), bias({2}), slope({1}, 0.5), sink({1}, 1.0);
  k(0, 0) = 4, k(1, 0) = -1;
  v(0, 0) = 1, v(1, 0) = 10;
  bias(0) = -2, bias(1) = 3;
  const auto row = [&](const options& how) {
    options one = how;
    one.scale = 1.0, one.query_offset = 3;
    return reference::attention(q, k, v, one, true);
  };
  const auto expect = [](const reference::result& y, double first, double second, const std::string& what, double none = 0) {
    const double a = std::exp(first), b = std::exp(second), sum = a + b + none;
    EXPECT_NEAR(y.out(0, 0), (a + 10 * b) / sum, 1e-14) << what;
    EXPECT_NEAR(y.lse(0), std::log(sum), 1e-14) << what;
    EXPECT_NEAR(y.weights(0, 1), b / sum, 1e-15) << what;
  };
  expect(row({.softcap = 2}), 2 * std::tanh(2.0), -2 * std::tanh(0.5), "soft cap");
  expect(row({.alibi = slope}), 4 - 1.5, -1 - 1, "ALiBi: query 0 stands at 3");
  expect(row({.alibi = true}), 4 - 3 * 0x1p-8, -1 - 2 * 0x1p-8, "ALiBi of one head");
  expect(row({.bias = bias, .softcap = 2, .alibi = slope}), 2 * std::tanh(2.0) - 2 - 1.5, -2 * std::tanh(0.5) + 3 - 1,
         "soft cap, then bias, then ALiBi");
  expect(row({.score = {attend::bias(bias), soft_cap(2)}}), 2 * std::tanh(1.0), 2 * std::tanh(1.0), "bias, then soft cap");
  expect(row({.softcap = 2, .score = {alibi(slope), attend::bias(bias)}}), 2 * std::tanh(0.25), 2 * std::tanh(0.5),
         "the list comes first");
  expect(row({.sinks = sink}), 4, -1, "sink", std::exp(1.0));
  expect(row({.softcap = 0.5, .sinks = sink}), 0.5 * std::tanh(8.0), -0.5 * std::tanh(2.0), "a sink is not capped",
         std::exp(1.0));
}

TEST(reference, is_the_definition_for_segments) {
  const sizes n{.B = 2, .H = 4, .Hk = 2, .L = 9, .S = 13, .E = 3, .Ev = 2};
  const auto x = make_inputs<double>(n);
  auto of_q = random_ids({n.B, n.L}, 1, -1, 3), of_k = random_ids({n.B, n.S}, 2, -1, 3);
  of_q(0, 0) = of_k(0, 0) = std::numeric_limits<std::int64_t>::max();
  of_q(0, 1) = of_k(0, 1) = std::numeric_limits<std::int64_t>::min();
  const auto rules = [&](auto b, auto, auto i, auto j) { return of_q(b, i) >= 0 && of_q(b, i) == of_k(b, j); };
  EXPECT_TRUE(
      same_result(reference::attention(x.q, x.k, x.v, {.query_segments = of_q, .key_segments = of_k, .scale = 1.0}, true),
                  by_definition(x, {.allowed = rules})));
  const tensor_view<const std::int64_t> first(of_q.data(), {n.L}), backwards(of_k.data() + n.S - 1, {n.S}, {-1});
  EXPECT_TRUE(same_result(
      reference::attention(x.q, x.k, x.v, {.query_segments = first, .key_segments = backwards, .scale = 1.0}, true),
      by_definition(
          x, {.allowed = [&](auto, auto, auto i, auto j) { return of_q(0, i) >= 0 && of_q(0, i) == of_k(0, n.S - 1 - j); }})));
}

TEST(reference, is_the_definition_for_lists_of_score_functions) {
  const sizes n{.B = 2, .H = 3, .Hk = 1, .L = 5, .S = 7, .E = 3, .Ev = 2};
  const auto x = make_inputs<double>(n);
  const auto a = normal<double>({n.B, 1, n.L, n.S}, 4, 2);
  const auto b = normal<float>({n.H, 1, 1}, 5);
  auto c = normal<double>({n.S}, 6);
  c(3) = -infinity;
  tensor<std::int64_t> at({n.B});
  at(0) = -2, at(1) = 5;
  const auto slopes = paper_slopes(n.H);
  const options how{.query_offset = at,
                    .bias = a,
                    .scale = 0.8,
                    .softcap = 1.25,
                    .score = {attend::bias(c), soft_cap(2), alibi(), attend::bias(b)}};
  const auto want =
      by_definition(x, {.allowed = [](auto, auto, auto, auto j) { return j != 3; },
                        .bias = [&](auto s, auto, auto i, auto j) { return a(s, 0, i, j); },
                        .score =
                            [&](double s, auto batch, auto h, auto i, auto j) {
                              s = 2 * std::tanh((s + c(j)) / 2);
                              s = s - slopes[std::size_t(h)] * double(std::abs(i + at(batch) - j)) + double(b(h, 0, 0));
                              return 1.25 * std::tanh(s / 1.25);
                            },
                        .scale = 0.8});
  EXPECT_TRUE(same_result(reference::attention(x.q, x.k, x.v, how, true), want));
}

TEST(reference, is_the_definition_for_sinks) {
  const sizes n{.B = 2, .H = 6, .Hk = 3, .L = 4, .S = 5, .E = 3, .Ev = 2};
  const auto x = make_inputs<double>(n);
  tensor<double> sinks({n.H});
  const double values[] = {0.5, -infinity, 300, -300, 2, 0};
  std::copy_n(values, n.H, sinks.begin());
  const auto mask = coins({n.B, 1, n.L, 1}, 6, 0.6);
  const auto want = by_definition(
      x, {.allowed = [&](auto b, auto, auto i, auto) { return mask(b, 0, i, 0); }, .sink = [&](auto h) { return values[h]; }});
  EXPECT_TRUE(same_result(reference::attention(x.q, x.k, x.v, {.mask = mask, .scale = 1.0, .sinks = sinks}, true), want));
}

TEST(reference, follows_ieee_arithmetic_where_a_sink_is_infinite_or_nan) {
  const auto x = make_inputs<double>({.L = 2, .S = 3, .E = 2, .Ev = 1});
  tensor<bool> mask({2, 3}, true);
  for (std::int64_t j = 0; j < 3; ++j) mask(1, j) = false;
  for (const double value : {infinity, nan}) {
    const tensor<double> sinks({1}, value);
    const auto y = reference::attention(x.q, x.k, x.v, {.mask = mask, .sinks = sinks}, true);
    EXPECT_TRUE(std::isnan(y.out(0, 0, 0, 0)) && std::isnan(y.lse(0, 0, 0)) && std::isnan(y.weights(0, 0, 0, 2))) << value;
    EXPECT_EQ(y.out(0, 0, 1, 0), 0) << "no key is seen";
    EXPECT_EQ(y.weights(0, 0, 1, 0), 0);
    EXPECT_TRUE(std::isnan(value) ? std::isnan(y.lse(0, 0, 1)) : y.lse(0, 0, 1) == value);
  }
}

TEST(reference, is_the_definition_for_dropout_with_every_normalizer) {
  const sizes n{.B = 3, .H = 4, .Hk = 2, .L = 5, .S = 11, .E = 3, .Ev = 2};
  const auto x = make_inputs<double>(n);
  const auto mask = coins({n.L, n.S}, 6, 0.8);
  for (const double p : {0.0, 0.25, 0.9, 1.0}) {
    for (const normalizer z :
         {normalizer::softmax, normalizer::mean, normalizer::sum, normalizer::sigmoid, normalizer::relu2, normalizer::abs}) {
      const dropout drop{.p = p, .seed = 0xfedcba9876543210U};
      const options how{.mask = mask, .scale = 1.0, .normalizer = z, .dropout = drop};
      const auto want = by_definition(x, {.allowed = [&](auto, auto, auto i, auto j) { return mask(i, j); },
                                          .kept = [&](auto... at) { return is_kept(drop, at...) ? 1 / (1 - p) : 0; },
                                          .normalizer = z});
      EXPECT_TRUE(same_result(reference::attention(x.q, x.k, x.v, how, true), want)) << p << ", " << attend::name_of(z);
    }
  }
}

TEST(reference, minus_infinity_in_a_bias_excludes_whatever_follows_it) {
  auto x = make_inputs<double>({.L = 1, .S = 4, .E = 2, .Ev = 2}, 17);
  x.k(0, 0, 2, 0) = nan, x.v(0, 0, 2, 1) = nan;
  tensor<bool> mask({4}, true);
  mask(2) = false;
  tensor<double> excluding({4}), other({4}, 0.5);
  excluding(2) = -infinity;
  for (const double beside : {0.5, infinity, nan}) {
    other(2) = beside;
    const options first{.softcap = 3, .score = {attend::bias(excluding), attend::bias(other), soft_cap(2)}},
        last{.bias = excluding, .softcap = 3, .score = {attend::bias(other), soft_cap(2)}};
    tensor<double> clean({4}, 0.5);
    const options masked{.mask = mask, .softcap = 3, .score = {attend::bias(clean), soft_cap(2)}};
    const auto want = reference::attention(x.q, x.k, x.v, masked, true);
    EXPECT_TRUE(same_result(reference::attention(x.q, x.k, x.v, first, true), want)) << beside;
    EXPECT_TRUE(same_result(reference::attention(x.q, x.k, x.v, last, true), want)) << beside;
  }
}

TEST(reference, of_packed_sequences_is_that_of_each_alone) {
  const std::int64_t queries[] = {0, 3, 3, 8}, keys[] = {0, 5, 9, 9};  // the second has no query, the third no key
  const tensor_view<const std::int64_t> at_q(queries, {4}), at_k(keys, {4});
  const auto q = normal<double>({8, 4, 3}, 1), k = normal<double>({9, 2, 3}, 2), v = normal<double>({9, 2, 2}, 3);
  const options how{.causal = true, .alibi = true};
  const auto packed = reference::attention_varlen(q, k, v, at_q, at_k, how);
  EXPECT_EQ(packed.out.shape(), (extents{8, 4, 2}));
  EXPECT_EQ(packed.lse.shape(), (extents{8, 4}));
  EXPECT_EQ(packed.weights.size(), 0);
  const auto bound = reference::error_bound_varlen(q, k, v, at_q, at_k, how, packed);
  for (int s = 0; s < 3; ++s) {
    const auto rows = [](const tensor<double>& x, std::int64_t first, std::int64_t last) {
      tensor_view<const double> view = x.view();
      view.data += first * view.strides[0];
      view.shape = {1, last - first, x.shape()[1], x.shape()[2]};
      view.strides = {0, view.strides[0], view.strides[1], view.strides[2]};
      return view;
    };
    options one = how;
    one.query_offset = lower_right, one.layout = layout::blhd;
    const auto q_rows = rows(q, queries[s], queries[s + 1]), k_rows = rows(k, keys[s], keys[s + 1]),
               v_rows = rows(v, keys[s], keys[s + 1]);
    const auto alone = reference::attention(q_rows, k_rows, v_rows, one);
    const auto alone_bound = reference::error_bound(q_rows, k_rows, v_rows, one, alone);
    for_each_index(alone.out.shape(), [&](const extents& at) {
      EXPECT_EQ(packed.out(queries[s] + at[1], at[2], at[3]), alone.out(0, at[1], at[2], at[3])) << s;
      EXPECT_EQ(packed.lse(queries[s] + at[1], at[2]), alone.lse(0, at[2], at[1])) << s;
      EXPECT_GE(bound(queries[s] + at[1], at[2], at[3]), alone_bound(0, at[1], at[2], at[3])) << "max|v| is that of all";
    });
  }
}

/// Slopes of a row's result by its scores, added up, from differences of the reference itself.
double moved_by_scores(const double* scores, const tensor<double>& v, options how) {
  tensor<double> q({1, 1}), k({v.shape()[0], 1}), numbers({v.shape()[0]});
  std::copy_n(scores, numbers.size(), numbers.begin());
  how.bias = numbers, how.compatibility = compatibility::none;
  double slopes = 0;
  for (std::int64_t j = 0; j < numbers.size(); ++j) {
    double y[2];
    for (const int side : {0, 1}) {
      numbers(j) = scores[j] + (side == 0 ? -1e-5 : 1e-5);
      y[side] = reference::attention(q, k, v, how).out(0, 0);
    }
    numbers(j) = scores[j];
    slopes += std::abs(y[1] - y[0]) / 2e-5;
  }
  return slopes;
}

TEST(reference, error_bound_follows_dropout_and_counts_the_sizes_of_score_functions) {
  // ALiBi takes 100 from each score and a bias puts them back: M is 200 and what is left.
  const double left[] = {2, -1, 0.5, 0.25};
  tensor<float> q({1, 1}), k({4, 1}), v({4, 1}), bias({4}), slope({1});
  tensor<double> wide({4, 1});
  slope(0) = 25;
  for (int j = 0; j < 4; ++j) {
    bias(j) = static_cast<float>(left[j] + 25 * (7 - j));
    wide(j, 0) = v(j, 0) = static_cast<float>((j % 2 ? -1 : 1) * (3 + j));
  }
  for (const double p : {0.0, 0.5}) {
    const options dropped{.dropout = {.p = p, .seed = 3}};
    options how = dropped;
    how.query_offset = 7, how.bias = bias, how.alibi = slope, how.compatibility = compatibility::none;
    const double size = 25 * 7 + 2 + 25 * 7, want = 2 * 0x1p-23 * size * moved_by_scores(left, wide, dropped);
    EXPECT_GT(want, 2e-6 * 12) << "scores decide";
    EXPECT_NEAR(reference::error_bound(q, k, v, how, reference::attention(q, k, v, how))(0, 0), want, 1e-9) << p;
  }
  const auto truth = reference::attention(q, k, v, {.dropout = {.p = 0.5, .seed = 3}});
  EXPECT_THROW(reference::error_bound(q, k, v, {.dropout = {.p = 0.5}}, truth), argument_error) << "of another seed";
}

TEST(reference, error_bound_takes_a_sink_for_a_key_without_value) {
  tensor<float> q({1, 1}), k({1, 1}), v({1, 1}, 4.0f), bias({1}, 1000.0f), sinks({1}, 1000.0f);
  const options how{.bias = bias, .sinks = sinks, .compatibility = compatibility::none};
  const auto truth = reference::attention(q, k, v, how);
  EXPECT_DOUBLE_EQ(truth.out(0, 0), 2);
  // |dy/ds| = w |v - y| = 1 and, by the sink, w |0 - y| = 1.
  EXPECT_NEAR(reference::error_bound(q, k, v, how, truth)(0, 0), 2 * 0x1p-23 * 1000 * 2, 1e-9);
}

}  // namespace
}  // namespace attend::test

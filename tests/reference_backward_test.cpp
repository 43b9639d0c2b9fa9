// The reference's gradients against what they are by definition: differences of the reference's forward.
#include <gtest/gtest.h>

#include <string>

#include "support/form.hpp"
#include "support/score.hpp"

namespace attend::test {
namespace {

/// Every array that a call may be differentiated by, small enough to move each of its elements.
struct differentiated {
  sizes n;
  tensor<double> q, k, v, bias, table, slopes, sinks, weights, first, dout, dlse;

  explicit differentiated(const sizes& of, std::uint64_t seed = 1)
      : n(of),
        q(normal<double>({n.B, n.H, n.L, n.E}, 20 * seed)),
        k(normal<double>({n.B, n.Hk, n.S, n.E}, 20 * seed + 1)),
        v(normal<double>({n.B, n.Hk, n.S, n.Ev}, 20 * seed + 2)),
        bias(normal<double>({n.H, 1, n.S}, 20 * seed + 3)),
        table(normal<double>({n.H, 5}, 20 * seed + 4)),
        slopes(normal<double>({n.H}, 20 * seed + 5, 0.2)),
        sinks(normal<double>({n.H}, 20 * seed + 6)),
        weights(normal<double>({n.E}, 20 * seed + 10)),
        first(normal<double>({n.B, 1, n.L, 1}, 20 * seed + 7)),
        dout(normal<double>({n.B, n.H, n.L, n.Ev}, 20 * seed + 8)),
        dlse(normal<double>({n.B, n.H, n.L}, 20 * seed + 9)) {}

  reference::gradients gradients(const options& how) const {
    const bool has_lse = how.normalizer == normalizer::softmax;
    return reference::attention_backward(dout, has_lse ? array_view(dlse) : array_view(), q, k, v, how);
  }

  /// What it is the gradient of. LSE of an empty row is -inf, and no part of it.
  double loss(const options& how) const {
    const auto y = reference::attention(q, k, v, how);
    double sum = 0;
    for (std::int64_t i = 0; i < dout.size(); ++i) sum += dout.data()[i] * y.out.data()[i];
    for (std::int64_t i = 0; i < y.lse.size(); ++i)
      if (std::isfinite(y.lse.data()[i])) sum += dlse.data()[i] * y.lse.data()[i];
    return sum;
  }

  /// Whether `by` holds the slopes of the loss by every element of `x`.
  testing::AssertionResult is_gradient(const tensor<double>& by, tensor<double>& x, const options& how) const {
    if (by.shape() != x.shape())
      return testing::AssertionFailure() << by.shape().to_string() << ", expected " << x.shape().to_string();
    constexpr double step = 2e-5;
    for (std::int64_t i = 0; i < x.size(); ++i) {
      const double at = x.data()[i];
      const auto moved = [&](double by_steps) {
        x.data()[i] = at + by_steps * step;
        return loss(how);
      };
      // Of fourth order, so that what is left is rounding.
      const double slope = (8 * (moved(1) - moved(-1)) - (moved(2) - moved(-2))) / (12 * step);
      x.data()[i] = at;
      if (!(std::abs(slope - by.data()[i]) <= 1e-8 * (1 + std::abs(slope))))
        return testing::AssertionFailure() << place(x.shape(), i) << ": " << by.data()[i] << ", expected " << slope;
    }
    return testing::AssertionSuccess();
  }

  void expect_gradients(const options& how, const std::string& what) {
    const auto by = gradients(how);
    EXPECT_TRUE(is_gradient(by.dq, q, how)) << "dq, " << what;
    EXPECT_TRUE(is_gradient(by.dk, k, how)) << "dk, " << what;
    EXPECT_TRUE(is_gradient(by.dv, v, how)) << "dv, " << what;
    if (how.bias) {
      EXPECT_TRUE(is_gradient(by.dbias, bias, how)) << "dbias, " << what;
    }
    if (how.relative) {
      EXPECT_TRUE(is_gradient(by.drelative, table, how)) << "drelative, " << what;
    }
    if (how.alibi.given()) {
      EXPECT_TRUE(is_gradient(by.dalibi, slopes, how)) << "dalibi, " << what;
    }
    if (how.sinks) {
      EXPECT_TRUE(is_gradient(by.dsinks, sinks, how)) << "dsinks, " << what;
    }
    if (how.compatibility.weights) {
      EXPECT_TRUE(is_gradient(by.dadditive, weights, how)) << "dadditive, " << what;
    }
  }
};

const sizes usual{.B = 2, .H = 4, .Hk = 2, .L = 4, .S = 6, .E = 3, .Ev = 2};

TEST(reference_gradients, are_slopes_of_the_forward_for_every_option) {
  differentiated x(usual);
  const auto mask = coins({usual.B, 1, usual.L, usual.S}, 5, 0.7);
  const auto of_q = random_ids({usual.L}, 6, -1, 1), of_k = random_ids({usual.S}, 7, -1, 1);
  tensor<std::int64_t> lengths({2});
  lengths(0) = 6, lengths(1) = 3;
  const std::pair<const char*, options> calls[] = {
      {"none", {}},
      {"scale", {.scale = -0.7}},
      {"causal, window, prefix", {.causal = true, .window = {1, 0}, .query_offset = 2, .prefix = 1}},
      {"segments", {.query_segments = of_q, .key_segments = of_k}},
      {"lengths", {.key_lengths = lengths}},
      {"mask", {.mask = mask}},
      {"bias", {.bias = x.bias}},
      {"relative", {.query_offset = 1, .relative = x.table}},
      {"soft cap", {.softcap = 0.8}},
      {"alibi", {.query_offset = 1, .alibi = x.slopes}},
      {"sinks", {.sinks = x.sinks}},
      {"dropout", {.dropout = {.p = 0.4, .seed = 3}}},
      {"all",
       {.causal = true,
        .query_offset = 2,
        .key_lengths = lengths,
        .mask = mask,
        .bias = x.bias,
        .relative = x.table,
        .scale = 1.3,
        .softcap = 1.1,
        .alibi = x.slopes,
        .sinks = x.sinks,
        .dropout = {.p = 0.3, .seed = 9}}},
  };
  for (const auto& [name, how] : calls) x.expect_gradients(how, name);
}

TEST(reference_gradients, are_slopes_of_the_forward_for_every_form) {
  differentiated x(usual, 7);
  const auto mask = coins({usual.B, 1, usual.L, usual.S}, 5, 0.7);
  const options plain{.scale = 0.8};
  const options several{.causal = true,
                        .query_offset = 3,
                        .mask = mask,
                        .bias = x.bias,
                        .relative = x.table,
                        .softcap = 1.3,
                        .alibi = x.slopes,
                        .dropout = {.p = 0.3, .seed = 9}};
  for (const options& base : {plain, several})
    for (const options& how : every_form(x.weights, base)) x.expect_gradients(how, form_of(how));
}

TEST(reference_gradients, where_a_function_has_a_corner_are_zero) {
  differentiated x({.B = 1, .H = 1, .Hk = 1, .L = 1, .S = 2, .E = 2, .Ev = 1}, 8);
  const auto zero = [](const tensor<double>& all) {
    return std::all_of(all.begin(), all.end(), [](double e) { return e == 0; });
  };
  // l1 at equal elements: the first column has none, the second keeps its own.
  x.k(0, 0, 0, 0) = x.k(0, 0, 1, 0) = x.q(0, 0, 0, 0);
  auto by = x.gradients({.compatibility = compatibility::l1, .normalizer = normalizer::sum});
  EXPECT_EQ(by.dq(0, 0, 0, 0), 0);
  EXPECT_EQ(by.dk(0, 0, 1, 0), 0);
  EXPECT_NE(by.dq(0, 0, 0, 1), 0);
  // Weights of relu2 and abs where all scores are 0.
  for (const normalizer kind : {normalizer::relu2, normalizer::abs}) {
    by = x.gradients({.scale = 0.0, .normalizer = kind});
    EXPECT_TRUE(zero(by.dq) && zero(by.dk) && zero(by.dv)) << name_of(kind);
  }
  // cosine of a zero vector.
  for (double& element : x.q) element = 0;
  by = x.gradients({.compatibility = compatibility::cosine, .normalizer = normalizer::sum});
  EXPECT_TRUE(zero(by.dq) && zero(by.dk));
  // none reads neither.
  for (double& element : x.q) element = std::numeric_limits<double>::quiet_NaN();
  by = x.gradients({.compatibility = compatibility::none});
  EXPECT_TRUE(zero(by.dq) && zero(by.dk));
}

TEST(reference_gradients, pass_through_a_score_list_in_its_order) {
  differentiated x(usual, 2);
  const options how{.query_offset = 1,
                    .bias = x.bias,
                    .softcap = 1.4,
                    .score = {bias(x.first), soft_cap(1.2), alibi(x.slopes), bias(x.bias)}};
  const auto by = x.gradients(how);
  EXPECT_TRUE(x.is_gradient(by.dq, x.q, how));
  EXPECT_TRUE(x.is_gradient(by.dscore[0], x.first, how));
  EXPECT_EQ(by.dscore[1].size(), 0);
  EXPECT_TRUE(x.is_gradient(by.dscore[2], x.slopes, how));
  // The same array twice: its slope is the sum of both gradients.
  tensor<double> both({usual.H, 1, usual.S});
  for (std::int64_t i = 0; i < both.size(); ++i) both.data()[i] = by.dscore[3].data()[i] + by.dbias.data()[i];
  EXPECT_TRUE(x.is_gradient(both, x.bias, how));
}

TEST(reference_gradients, are_summed_up_over_batch_axes_that_broadcast) {
  differentiated x({.B = 3, .H = 2, .Hk = 1, .L = 2, .S = 3, .E = 2, .Ev = 2}, 3);
  x.q = normal<double>({1, 2, 2, 2}, 70);
  x.v = normal<double>({1, 3, 2}, 71);
  x.expect_gradients({}, "broadcast");
}

TEST(reference_gradients, of_a_table_on_a_grid_are_slopes) {
  differentiated x({.B = 1, .H = 2, .Hk = 2, .L = 6, .S = 6, .E = 2, .Ev = 2}, 4);
  x.table = normal<double>({1, 3, 5}, 80);
  x.expect_gradients({.grid = {2, 3}, .neighborhood = {.kernel = {3, 3}}, .relative = x.table}, "grid");
}

TEST(reference_gradients, of_empty_rows_and_excluded_keys_are_zero_whatever_they_hold) {
  differentiated x(usual, 5);
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  tensor<bool> mask({usual.L, usual.S}, true);
  for (std::int64_t j = 0; j < usual.S; ++j) mask(1, j) = false;
  for (std::int64_t i = 0; i < usual.L; ++i) mask(i, 4) = false;
  for (std::int64_t c = 0; c < 2; ++c) x.dout(0, 0, 1, c) = nan, x.v(1, 0, 4, c) = nan;
  x.dlse(0, 0, 1) = nan;
  for (std::int64_t d = 0; d < 3; ++d) x.q(0, 0, 1, d) = nan, x.k(1, 0, 4, d) = nan;
  const auto by = x.gradients({.mask = mask});
  for (const tensor<double>* all : {&by.dq, &by.dk, &by.dv})
    for (const double element : *all) EXPECT_TRUE(std::isfinite(element));
  for (std::int64_t d = 0; d < 3; ++d) {
    EXPECT_EQ(by.dq(0, 0, 1, d), 0);
    EXPECT_EQ(by.dk(1, 0, 4, d), 0);
  }
}

TEST(reference_gradients, of_sinks_alone_are_those_of_their_lse) {
  differentiated x(usual, 6);
  const tensor<bool> mask({1}, false);
  const auto by = x.gradients({.mask = mask, .sinks = x.sinks});
  for (std::int64_t h = 0; h < usual.H; ++h) {
    double sum = 0;
    for (std::int64_t b = 0; b < usual.B; ++b)
      for (std::int64_t i = 0; i < usual.L; ++i) sum += x.dlse(b, h, i);
    EXPECT_NEAR(by.dsinks(h), sum, 1e-14);
  }
}

}  // namespace
}  // namespace attend::test

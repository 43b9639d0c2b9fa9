// The oracle's general form: compatibility functions, normalizers, regions and error bounds against numbers worked out by hand,
// the second definition and finite differences.
#include <gtest/gtest.h>

#include <cmath>

#include "support/form.hpp"

namespace attend::test {
namespace {

TEST(reference, gives_the_weights_of_every_normalizer_worked_out_by_hand) {
  tensor<double> nothing({1, 1}), keys({4, 1}), v({4, 1}), scores({1, 4});
  scores(0, 0) = 3, scores(0, 1) = -1, scores(0, 2) = 0, scores(0, 3) = -infinity;
  v(0, 0) = 1, v(1, 0) = 10, v(2, 0) = 100, v(3, 0) = 1000;
  const double e3 = std::exp(3.0), e1 = std::exp(-1.0), sum = e3 + e1 + 1;
  const std::vector<std::pair<normalizer, vector>> all = {{normalizer::softmax, {e3 / sum, e1 / sum, 1 / sum}},
                                                          {normalizer::mean, {1, -1.0 / 3, 0}},
                                                          {normalizer::sum, {3, -1, 0}},
                                                          {normalizer::sigmoid, {e3 / (1 + e3), e1 / (1 + e1), 0.5}},
                                                          {normalizer::relu2, {1, 0, 0}},
                                                          {normalizer::abs, {0.75, -0.25, 0}}};
  for (const auto& [kind, want] : all) {
    const auto y = reference::attention(nothing, keys, v,
                                        {.bias = scores, .compatibility = compatibility::none, .normalizer = kind}, true);
    for (int j = 0; j < 3; ++j) EXPECT_NEAR(y.weights(0, j), want[static_cast<std::size_t>(j)], 1e-15) << name_of(kind);
    EXPECT_EQ(y.weights(0, 3), 0) << name_of(kind);
    EXPECT_NEAR(y.out(0, 0), want[0] + 10 * want[1] + 100 * want[2], 1e-13) << name_of(kind);
    EXPECT_EQ(y.lse.size(), kind == normalizer::softmax ? 1 : 0);
  }
}

TEST(reference, gives_the_scores_of_every_compatibility_worked_out_by_hand) {
  tensor<double> q({1, 2}), k({1, 2}), v({1, 1}, 1.0), w({2});
  q(0, 0) = 3, q(0, 1) = 4;
  k(0, 0) = 0, k(0, 1) = -2;
  w(0) = 1, w(1) = 10;
  const auto score = [&](const compatibility& f, std::optional<double> scale = {}) {
    return reference::attention(q, k, v, {.scale = scale, .compatibility = f, .normalizer = normalizer::sum}).out(0, 0);
  };
  EXPECT_NEAR(score(compatibility::dot), -8 / std::sqrt(2.0), 1e-14);
  EXPECT_NEAR(score(compatibility::dot, 1.0), -8, 1e-14);
  EXPECT_NEAR(score(compatibility::cosine), -0.8, 1e-15);
  EXPECT_NEAR(score(gaussian(3)), -45.0 / 18, 1e-14);
  EXPECT_NEAR(score(compatibility::l1), -9, 1e-14);
  EXPECT_NEAR(score(compatibility::l1, -0.5), 4.5, 1e-14);
  EXPECT_NEAR(score(additive(w)), std::tanh(3.0) + 10 * std::tanh(2.0), 1e-14);
  EXPECT_EQ(score(compatibility::none), 0);
}

TEST(reference, is_the_definition_for_every_form) {
  const sizes n{.B = 2, .H = 4, .Hk = 2, .L = 5, .S = 9, .E = 3, .Ev = 2};
  const auto x = make_inputs<double>(n, 9);
  const auto mask = coins({n.B, 1, n.L, n.S}, 10, 0.7);
  auto bias = normal<double>({n.H, n.L, n.S}, 11);
  bias(1, 2, 3) = -infinity;
  const auto w = normal<double>({n.E}, 12);
  for (const std::optional<double> scale : {std::optional<double>(), std::optional(-1.25)}) {
    for (const options& how : every_form(w, {.causal = true, .query_offset = 3, .mask = mask, .bias = bias, .scale = scale})) {
      const double usual = how.compatibility.kind == compatibility_kind::dot ? 1 / std::sqrt(3.0) : 1;
      const auto want =
          by_definition(x, {.allowed = [&](auto b, auto h, auto i,
                                           auto j) { return j <= i + 3 && mask(b, 0, i, j) && bias(h, i, j) > -infinity; },
                            .bias = [&](auto, auto h, auto i, auto j) { return bias(h, i, j); },
                            .scale = scale.value_or(usual),
                            .compatibility = by_definition(how.compatibility, vector(w.begin(), w.end())),
                            .normalizer = how.normalizer});
      EXPECT_TRUE(same_result(reference::attention(x.q, x.k, x.v, how, true), want)) << form_of(how);
    }
  }
}

TEST(reference, is_the_definition_for_neighborhoods_and_tables_on_a_grid) {
  for (const auto& [rows, columns] : {std::pair{6, 7}, std::pair{1, 9}, std::pair{8, 1}, std::pair{1, 1}}) {
    const sizes n{.B = 1, .H = 2, .Hk = 1, .L = rows * columns, .S = rows * columns, .E = 3, .Ev = 2};
    const auto x = make_inputs<double>(n, 13);
    const auto table = normal<double>({2, 5, 3}, 14);
    for (const grid_size& kernel : {grid_size(1), grid_size(3), grid_size(5, 1), grid_size(1, 3), grid_size(11, 99)}) {
      for (const grid_size& dilation : {grid_size(1), grid_size(2, 1), grid_size(3)}) {
        for (const border edge : {border::clip, border::shift}) {
          const options how{.grid = {rows, columns},
                            .neighborhood = {.kernel = kernel, .dilation = dilation, .border = edge},
                            .relative = table,
                            .normalizer = normalizer::abs};
          if (check(x.q, x.k, x.v, {}, how)) continue;  // a shifted kernel that does not fit
          const auto near = neighbor_mask(how.grid, how.neighborhood);
          const auto added = expanded(table, how.grid);
          const auto want = by_definition(x, {.allowed = [&](auto, auto, auto i, auto j) { return near(i, j); },
                                              .bias = [&](auto, auto h, auto i, auto j) { return added(h, i, j); },
                                              .scale = 1 / std::sqrt(3.0),
                                              .normalizer = normalizer::abs});
          EXPECT_TRUE(same_result(reference::attention(x.q, x.k, x.v, how, true), want))
              << rows << " x " << columns << ", kernel " << kernel.rows << " x " << kernel.columns << ", dilation "
              << dilation.rows << (edge == border::clip ? ", clip" : ", shift");
        }
      }
    }
  }
}

TEST(reference, is_the_definition_for_tables_along_a_sequence) {
  const sizes n{.B = 2, .H = 2, .Hk = 1, .L = 5, .S = 8, .E = 3, .Ev = 2};
  const auto x = make_inputs<double>(n, 15);
  tensor<std::int64_t> each({n.B});
  each(0) = -4, each(1) = 6;
  for (const std::int64_t reach : {0, 1, 3, 40}) {
    for (const std::int64_t heads : {1, 2}) {
      const auto table = normal<double>({heads, 2 * reach + 1}, 16);
      const std::vector<std::pair<query_position, std::function<std::int64_t(std::int64_t)>>> positions = {
          {upper_left, [](auto) { return 0; }}, {lower_right, [&](auto) { return n.S - n.L; }}, {each, [&](auto b) {
                                                                                                   return each(b);
                                                                                                 }}};
      for (const auto& [offset, first] : positions) {
        const auto added = expanded(table, n, first);
        const auto want =
            by_definition(x, {.bias = [&](auto b, auto h, auto i, auto j) { return added(b, heads == 1 ? 0 : h, i, j); },
                              .scale = 1 / std::sqrt(3.0)});
        EXPECT_TRUE(same_result(reference::attention(x.q, x.k, x.v, {.query_offset = offset, .relative = table}, true), want))
            << reach;
      }
    }
  }
}

TEST(reference, minus_infinity_excludes_whatever_else_is_added) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto x = make_inputs<double>({.L = 1, .S = 4, .E = 3, .Ev = 2}, 17);
  tensor<bool> mask({4}, true);
  mask(1) = mask(2) = false;
  for (const double other : {nan, infinity, 5.0}) {
    tensor<double> bias({4}), table({1, 9});
    bias(1) = -infinity, table(0, 4 + 1) = other;  // query 0 stands at key 0
    bias(2) = other, table(0, 4 + 2) = -infinity;
    for (const normalizer kind : normalizers) {
      const options how{.query_offset = 0, .bias = bias, .relative = table, .normalizer = kind};
      EXPECT_TRUE(same_result(reference::attention(x.q, x.k, x.v, how, true),
                              reference::attention(x.q, x.k, x.v, {.mask = mask, .normalizer = kind}, true)))
          << attend::name_of(kind) << ", " << other;
    }
  }
}

TEST(reference, reads_additive_weights_of_any_stride_and_either_type) {
  const auto x = make_inputs<double>({.L = 2, .S = 4, .E = 3, .Ev = 2}, 18);
  const auto narrow = normal<float>({3}, 19);
  tensor<double> w({3});
  std::copy(narrow.begin(), narrow.end(), w.begin());
  const auto want = reference::attention(x.q, x.k, x.v, {.compatibility = additive(w)}, true);
  strided<double> backwards(w, {-2});
  EXPECT_TRUE(same_result(reference::attention(x.q, x.k, x.v, {.compatibility = additive(backwards.view())}, true), want));
  EXPECT_TRUE(same_result(reference::attention(x.q, x.k, x.v, {.compatibility = additive(narrow)}, true), want));
}

TEST(reference, error_bound_follows_the_slope_of_each_normalizer) {
  // Scores 2, -1 and 0.5 are what is left of a bias of 100 and a table near -100, so M = 201.
  const double left[] = {2, -1, 0.5}, values[] = {1, 10, -4}, M = 201;
  tensor<float> q({1, 1}), k({3, 1}), v({3, 1}), bias({3}, 100.0f), table({1, 5});
  tensor<double> wide_q({1, 1}), wide_k({3, 1}), wide_v({3, 1});
  for (int j = 0; j < 3; ++j) {
    table(0, 2 + j) = static_cast<float>(left[j] - 100);
    v(j, 0) = static_cast<float>(values[j]), wide_v(j, 0) = values[j];
  }
  for (const normalizer kind : normalizers) {
    const auto moved_by = [&](int j, double step) {
      tensor<double> scores({3});
      for (int at = 0; at < 3; ++at) scores(at) = left[at] + (at == j ? step : 0);
      return reference::attention(wide_q, wide_k, wide_v,
                                  {.bias = scores, .compatibility = compatibility::none, .normalizer = kind});
    };
    double slopes = 0;
    for (int j = 0; j < 3; ++j) slopes += std::abs(moved_by(j, 1e-5).out(0, 0) - moved_by(j, -1e-5).out(0, 0)) / 2e-5;
    const options how{
        .query_offset = upper_left, .bias = bias, .relative = table, .compatibility = compatibility::none, .normalizer = kind};
    const auto bound = reference::error_bound(q, k, v, how, reference::attention(q, k, v, how));
    EXPECT_GT(2 * 0x1p-23 * M * slopes, 2e-6 * 10) << attend::name_of(kind) << ": scores decide";
    EXPECT_NEAR(bound(0, 0), 2 * 0x1p-23 * M * slopes, 1e-9) << attend::name_of(kind);
  }
}

TEST(reference, error_bound_counts_the_terms_of_sums_that_cancel) {
  tensor<float> q({1, 1}), k({2, 1}), v({2, 1}, 10.0f), bias({2}, 4.0f);
  bias(1) = -4;
  const options how{.bias = bias, .compatibility = compatibility::none, .normalizer = normalizer::sum};
  const auto truth = reference::attention(q, k, v, how);
  EXPECT_EQ(truth.out(0, 0), 0);
  EXPECT_NEAR(reference::error_bound(q, k, v, how, truth)(0, 0), 2e-6 * 80, 1e-12);
}

TEST(reference, error_bound_counts_the_terms_of_every_compatibility) {
  tensor<float> q({1, 2}), k({2, 2}), v({2, 1}), w({2});
  q(0, 0) = 300, q(0, 1) = 400;
  k(0, 0) = 400, k(0, 1) = -300;  // orthogonal: the score is 0, its terms are not
  w(0) = 2e4f, w(1) = -2e4f;
  v(0, 0) = 1, v(1, 0) = 0;
  const std::vector<std::pair<compatibility, double>> sizes_of_terms = {{compatibility::dot, 1000 * 240 / std::sqrt(2.0)},
                                                                        {compatibility::cosine, 0.96},
                                                                        {gaussian(1.5), (1e4 + 49e4) / 4.5},
                                                                        {compatibility::l1, 100 + 700},
                                                                        {additive(w), 4e4},
                                                                        {compatibility::none, 0}};
  tensor<bool> first({2});
  first(0) = true;
  for (const auto& [f, size] : sizes_of_terms) {
    const options how{.mask = first,
                      .scale = f.kind == compatibility_kind::cosine ? std::optional(1e4) : std::nullopt,
                      .compatibility = f,
                      .normalizer = normalizer::sum};
    const auto truth = reference::attention(q, k, v, how);
    const double factor = how.scale.value_or(1), terms = 2 * 0x1p-23 * size * factor;
    const double want = std::max({terms, 2e-6, 2e-6 * std::abs(truth.out(0, 0))});
    EXPECT_NEAR(reference::error_bound(q, k, v, how, truth)(0, 0), want, 1e-6 * want) << attend::name_of(f.kind);
  }
}

}  // namespace
}  // namespace attend::test

// Excluded means not there: no NaN or infinity leaks from an excluded key. Allowed means there: none vanishes.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/compute.hpp"
#include "support/poison.hpp"

namespace attend::test {
namespace {

template <class T>
struct nan_contract : testing::Test {
  static constexpr T nan = std::numeric_limits<T>::quiet_NaN(), inf = std::numeric_limits<T>::infinity();
  static constexpr T poisons[] = {nan, inf, -inf};
};
TYPED_TEST_SUITE(nan_contract, element_types);

/// Both kernels; keys within one tile, and across tiles.
const std::vector<sizes> problems = {{.B = 2, .H = 2, .Hk = 1, .L = 1, .S = 7, .E = 5, .Ev = 6},
                                     {.B = 2, .H = 4, .Hk = 2, .L = 3, .S = 150, .E = 8, .Ev = 4},
                                     {.B = 2, .H = 2, .Hk = 1, .L = 70, .S = 30, .E = 4, .Ev = 9},
                                     {.B = 2, .H = 2, .Hk = 2, .L = 70, .S = quick() ? 200 : 2000, .E = 16, .Ev = 16}};

TYPED_TEST(nan_contract, keys_that_a_mask_excludes_leak_nothing) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    auto mask = coins({n.S}, 3, 0.6);
    mask(0) = false, mask(n.S - 1) = false;
    for (const TypeParam poison : this->poisons) {
      const auto y = poisoned(x, poison, [&](auto, auto j) { return !mask(j); });
      for (const bool reproducible : {false, true}) {
        const options how{.mask = mask, .reproducible = reproducible};
        EXPECT_TRUE(same_bits(compute(x, how, true), compute(y, how, true))) << n.to_string() << ", " << poison;
      }
    }
  }
}

TYPED_TEST(nan_contract, keys_that_a_bias_excludes_leak_nothing) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    auto bias = normal<TypeParam>({n.L, n.S}, 3);
    for (std::int64_t j = 0; j < n.S; j += 3)
      for (std::int64_t i = 0; i < n.L; ++i) bias(i, j) = -this->inf;
    for (const TypeParam poison : this->poisons) {
      const auto y = poisoned(x, poison, [&](auto, auto j) { return j % 3 == 0; });
      for (const bool reproducible : {false, true}) {
        const options how{.bias = bias, .reproducible = reproducible};
        EXPECT_TRUE(same_bits(compute(x, how, true), compute(y, how, true))) << n.to_string() << ", " << poison;
      }
    }
  }
}

TYPED_TEST(nan_contract, a_bias_of_an_excluded_pair_leaks_nothing) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const auto mask = coins({n.L, n.S}, 3, 0.6);
    const auto bias = normal<TypeParam>({n.L, n.S}, 4);
    for (const TypeParam poison : this->poisons) {
      auto hidden = copy(bias);
      for (std::int64_t at = 0; at < hidden.size(); ++at)
        if (!mask.data()[at]) hidden.data()[at] = poison;
      for (const bool reproducible : {false, true}) {
        EXPECT_TRUE(same_bits(compute(x, {.mask = mask, .bias = bias, .reproducible = reproducible}, true),
                              compute(x, {.mask = mask, .bias = hidden, .reproducible = reproducible}, true)))
            << n.to_string() << ", " << poison;
      }
    }
  }
}

TYPED_TEST(nan_contract, structure_hides_what_it_excludes) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    tensor<std::int64_t> lengths({2});
    lengths(0) = n.S / 2, lengths(1) = n.S - 1;
    for (const TypeParam poison : this->poisons) {
      const auto past = poisoned(x, poison, [&](auto b, auto j) { return j >= lengths(b); });
      EXPECT_TRUE(same_bits(compute(x, {.key_lengths = lengths}, true), compute(past, {.key_lengths = lengths}, true)))
          << n.to_string();

      const options causal{.causal = true, .query_offset = -3};
      const auto future = poisoned(x, poison, [&](auto, auto j) { return j > n.L - 1 - 3; });
      EXPECT_TRUE(same_bits(compute(x, causal, true), compute(future, causal, true))) << n.to_string();

      const options window{.window = {1, 1}, .query_offset = 2};
      const auto outside = poisoned(x, poison, [&](auto, auto j) { return j < 1 || j > n.L - 1 + 2 + 1; });
      EXPECT_TRUE(same_bits(compute(x, window, true), compute(outside, window, true))) << n.to_string();
    }
  }
}

TYPED_TEST(nan_contract, a_key_that_only_some_rows_see_reaches_only_those) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    for (const std::int64_t j : {std::int64_t{0}, n.S / 2, n.S - 1}) {
      auto mask = coins({n.L, n.S}, 3, 0.8);
      for (std::int64_t i = 0; i < n.L; ++i) mask(i, j) = i % 2 == 0;
      const auto y = poisoned(x, this->nan, [&](auto, auto at) { return at == j; });
      const auto clean = compute(x, {.mask = mask}), dirty = compute(y, {.mask = mask});
      for (std::int64_t i = 0; i < n.L; ++i) {
        for (std::int64_t c = 0; c < n.Ev; ++c) {
          if (i % 2 == 0) {
            EXPECT_TRUE(std::isnan(dirty.out(1, 1, i, c))) << n.to_string() << ", key " << j << ", row " << i;
          } else {
            EXPECT_EQ(dirty.out(1, 1, i, c), clean.out(1, 1, i, c)) << n.to_string() << ", key " << j << ", row " << i;
          }
        }
      }
    }
  }
}

TYPED_TEST(nan_contract, a_nan_query_is_a_nan_row_and_no_other) {
  for (const sizes& n : problems) {
    auto x = make_inputs<TypeParam>(n);
    const auto clean = compute(x);
    const std::int64_t i = n.L / 2;
    x.q(1, 0, i, n.E - 1) = this->nan;
    for (const bool reproducible : {false, true}) {
      const auto y = compute(x, {.reproducible = reproducible}, true);
      for (std::int64_t c = 0; c < n.Ev; ++c) EXPECT_TRUE(std::isnan(y.out(1, 0, i, c))) << n.to_string();
      EXPECT_TRUE(std::isnan(y.lse(1, 0, i))) << n.to_string();
      for (std::int64_t j = 0; j < n.S; ++j) EXPECT_TRUE(std::isnan(y.weights(1, 0, i, j))) << n.to_string();
      EXPECT_TRUE(as_reference(y, x.q, x.k, x.v)) << n.to_string();
    }
    const auto y = compute(x);
    for (std::int64_t at = 0; at < clean.out.size(); ++at) {
      if (at / n.Ev == (n.H + 0) * n.L + i) continue;  // the row of batch 1, head 0
      EXPECT_EQ(y.out.data()[at], clean.out.data()[at]) << n.to_string();
    }
  }
}

TYPED_TEST(nan_contract, allowed_nan_in_keys_values_and_bias_reach_their_rows_and_columns) {
  for (const sizes& n : problems) {
    for (const std::int64_t j : {std::int64_t{0}, n.S / 2, n.S - 1}) {
      auto in_key = make_inputs<TypeParam>(n), in_value = make_inputs<TypeParam>(n), x = make_inputs<TypeParam>(n);
      in_key.k(0, 0, j, n.E / 2) = this->nan;
      in_value.v(0, 0, j, n.Ev / 2) = this->nan;
      tensor<TypeParam> bias({n.B, n.H, n.L, n.S});
      bias(1, n.H - 1, n.L - 1, j) = this->nan;
      for (const bool reproducible : {false, true}) {
        EXPECT_TRUE(right(in_key, {.reproducible = reproducible}, true)) << n.to_string() << ", key " << j;
        EXPECT_TRUE(right(in_value, {.reproducible = reproducible}, true)) << n.to_string() << ", key " << j;
        EXPECT_TRUE(right(x, {.bias = bias, .reproducible = reproducible}, true)) << n.to_string() << ", key " << j;
        EXPECT_TRUE(std::isnan(compute(in_value, {.reproducible = reproducible}).out(0, 0, n.L - 1, n.Ev / 2)));
      }
    }
  }
}

TYPED_TEST(nan_contract, a_bias_of_plus_infinity_makes_its_row_nan) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    tensor<TypeParam> bias({n.L, n.S});
    bias(n.L / 2, n.S / 3) = this->inf;
    for (const bool reproducible : {false, true})
      EXPECT_TRUE(right(x, {.bias = bias, .reproducible = reproducible})) << n.to_string();
  }
}

TYPED_TEST(nan_contract, an_infinite_value_with_weight_is_infinite_in_its_column) {
  for (const sizes& n : problems) {
    auto x = make_inputs<TypeParam>(n);
    x.v(0, 0, n.S - 1, 0) = this->inf;
    x.v(0, 0, n.S / 2, n.Ev - 1) = -this->inf;
    for (const bool reproducible : {false, true}) EXPECT_TRUE(right(x, {.reproducible = reproducible})) << n.to_string();
  }
}

TYPED_TEST(nan_contract, a_score_of_minus_infinity_excludes_whatever_made_it) {
  for (const sizes& n : problems) {
    auto x = make_inputs<TypeParam>(n);
    for (TypeParam& value : x.q) value = TypeParam(std::abs(double(value)) + 0.5);
    auto y = poisoned(x, TypeParam(0), [](auto, auto) { return false; });
    tensor<bool> mask({n.S}, true);
    for (std::int64_t j = 0; j < n.S; j += 4) {
      mask(j) = false;
      for (std::int64_t b = 0; b < n.B; ++b)
        for (std::int64_t h = 0; h < n.Hk; ++h) {
          y.k(b, h, j, 0) = -this->inf;  // times a positive query: the score is -inf
          for (std::int64_t c = 0; c < n.Ev; ++c) y.v(b, h, j, c) = this->nan;
        }
    }
    EXPECT_TRUE(right(y, {}, true)) << n.to_string();
    EXPECT_TRUE(same_bits(compute(y, {}, true), compute(x, {.mask = mask}, true))) << n.to_string();
  }
}

TYPED_TEST(nan_contract, the_lowest_finite_bias_is_a_number) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    tensor<TypeParam> bias({n.S}, std::numeric_limits<TypeParam>::lowest());
    const auto all = compute(x, {.bias = bias});
    for (const auto value : all.out) EXPECT_TRUE(std::isfinite(value)) << n.to_string();
    for (const auto value : all.lse) EXPECT_LE(value, std::numeric_limits<TypeParam>::lowest() / 2) << n.to_string();
    bias(n.S - 1) = TypeParam(0);
    const auto one = compute(x, {.bias = bias});
    for (std::int64_t i = 0; i < n.L; ++i) EXPECT_EQ(one.out(0, 0, i, 0), x.v(0, 0, n.S - 1, 0)) << n.to_string();
  }
}

template <class T>
struct range : testing::Test {};
TYPED_TEST_SUITE(range, element_types);

TYPED_TEST(range, very_large_scores_leave_the_largest_its_weight) {
  for (const std::int64_t L : {1, 70}) {
    auto x = make_inputs<TypeParam>({.L = L, .S = 300, .E = 64, .Ev = 8});
    for (TypeParam& value : x.q) value = TypeParam(1e17);
    for (TypeParam& value : x.k) value = TypeParam(1e17);
    tensor<bool> one({300});
    one(217) = true;
    const auto y = compute(x, {.mask = one});
    for (std::int64_t i = 0; i < L; ++i) EXPECT_EQ(y.out(0, 0, i, 3), x.v(0, 0, 217, 3));
    EXPECT_TRUE(right(x)) << "equal scores of 8e34 give the mean";
  }
}

TYPED_TEST(range, rows_of_very_low_scores_are_shifted_not_lost) {
  for (const std::int64_t L : {1, 70}) {
    auto x = make_inputs<TypeParam>({.L = L, .S = 260, .E = 128, .Ev = 3});
    for (TypeParam& value : x.q) value = TypeParam(448);
    for (std::int64_t j = 0; j < 260; ++j)
      for (std::int64_t d = 0; d < 128; ++d) x.k(0, 0, j, d) = TypeParam(double(-1880 - 8 * ((j * 7) % 260)));
    const auto y = compute(x);
    for (std::int64_t i = 0; i < L; ++i) EXPECT_EQ(y.out(0, 0, i, 2), x.v(0, 0, 0, 2));
    EXPECT_TRUE(as_reference(y, x.q, x.k, x.v));
  }
}

TYPED_TEST(range, near_ties_at_scores_of_ten_thousand_keep_their_digits) {
  for (const int direction : {1, -1, 0}) {
    for (const std::int64_t L : {1, 65}) {
      auto x = make_inputs<TypeParam>({.L = L, .S = 1000, .E = 1, .Ev = 4});
      for (TypeParam& value : x.q) value = TypeParam(1);
      for (std::int64_t j = 0; j < 1000; ++j) {
        const std::int64_t step = direction == 0 ? (j * 617) % 1000 : direction * j;
        x.k(0, 0, j, 0) = static_cast<TypeParam>(10'000 + static_cast<double>(step) / 16);
      }
      EXPECT_TRUE(right(x, {.scale = 1.0})) << direction << ", " << L;
      EXPECT_TRUE(right(x, {.scale = -1.0})) << direction << ", " << L;
    }
  }
}

TYPED_TEST(range, scale_may_be_any_finite_number) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    for (const double scale : {0.0, -0.0, -1.0, 1e-30, 3.0, 1.0 / 3}) EXPECT_TRUE(right(x, {.scale = scale}, true)) << scale;
  }
}

TYPED_TEST(range, weights_add_up_to_one) {
  for (const sizes& n : problems) {
    const auto y = compute(make_inputs<TypeParam>(n), {}, true);
    for (std::int64_t row = 0; row < y.lse.size(); ++row) {
      double sum = 0;
      for (std::int64_t j = 0; j < n.S; ++j) sum += double(y.weights.data()[row * n.S + j]);
      EXPECT_NEAR(sum, 1, relative_bound<TypeParam>) << n.to_string();
    }
  }
}

}  // namespace
}  // namespace attend::test

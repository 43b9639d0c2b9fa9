// Dropout: which weights are kept is a function of the seed and of the pair alone, in every kernel, tile, thread and result.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/form.hpp"
#include "support/parts.hpp"
#include "support/score.hpp"

namespace attend::test {
namespace {

template <class T>
struct dropout_of : testing::Test {
  static constexpr T nan = std::numeric_limits<T>::quiet_NaN(), inf = std::numeric_limits<T>::infinity();
};
TYPED_TEST_SUITE(dropout_of, element_types);

/// Few queries, one block of lanes, several; numbers of keys that no vector and no group of four divides; several chunks.
const std::vector<sizes> problems = {{.B = 3, .H = 4, .Hk = 2, .L = 1, .S = 7, .E = 5, .Ev = 6},
                                     {.B = 1, .H = 6, .Hk = 3, .L = 4, .S = quick() ? 301 : 2305, .E = 8, .Ev = 3},
                                     {.B = 2, .H = 4, .Hk = 2, .L = 40, .S = 31, .E = 4, .Ev = 6},
                                     {.B = 1, .H = 2, .Hk = 2, .L = 70, .S = quick() ? 203 : 1627, .E = 3, .Ev = 7}};

TYPED_TEST(dropout_of, pairs_is_that_of_the_random_words_in_every_kernel) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    for (const double p : {0.1, 0.5, 0.97}) {
      for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 32, ~std::uint64_t{0}}) {
        const dropout drop{.p = p, .seed = seed};
        for (const bool reproducible : {false, true}) {
          const auto y = compute(x, {.dropout = drop, .reproducible = reproducible}, true);
          std::int64_t wrong = 0;
          for_each_index(y.weights.shape(), [&](const extents& at) {
            wrong += (y.weights(at[0], at[1], at[2], at[3]) != 0) != is_kept(drop, at[0], at[1], at[2], at[3]);
          });
          EXPECT_EQ(wrong, 0) << "p " << p << ", seed " << seed << ", " << n.to_string()
                              << (reproducible ? ", reproducible" : "");
        }
      }
    }
  }
}

TYPED_TEST(dropout_of, any_probability_is_right) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const score_arrays<TypeParam> arrays(n);
    for (const double p : {0.0, 1e-9, 0.3, 0.5, 0.999, 1.0}) {
      const dropout drop{.p = p, .seed = 42};
      for (const options& base :
           {options{.dropout = drop}, options{.causal = true, .query_offset = lower_right, .dropout = drop},
            options{.window = {30, 4}, .query_offset = 3, .bias = arrays.row, .sinks = arrays.sinks, .dropout = drop}}) {
        const expectation expected(x.q, x.k, x.v, base, true);
        for (const bool reproducible : {false, true}) {
          options how = base;
          how.reproducible = reproducible;
          EXPECT_TRUE(expected.met_by(compute(x, how, true))) << "p " << p << ", " << n.to_string();
        }
      }
    }
  }
}

TYPED_TEST(dropout_of, every_normalizer_and_compatibility_is_right) {
  for (const sizes& n : {problems[0], problems[2]}) {
    const auto x = make_inputs<TypeParam>(n);
    const auto w = normal<TypeParam>({n.E}, 9);
    for (const options& how : every_form(w, {.causal = true, .query_offset = 20, .dropout = {.p = 0.4, .seed = 5}}))
      EXPECT_TRUE(right(x, how, true)) << form_of(how) << ", " << n.to_string();
  }
}

TYPED_TEST(dropout_of, nothing_and_of_everything) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const auto plain = compute(x, {}, true), none = compute(x, {.dropout = {.p = 0, .seed = 3}}, true),
               all = compute(x, {.dropout = {.p = 1, .seed = 3}}, true),
               half = compute(x, {.dropout = {.p = 0.5, .seed = 3}}, true);
    EXPECT_TRUE(same_bits(none, plain)) << "p = 0";
    for (const auto value : all.out) ASSERT_EQ(value, 0) << "p = 1";
    for (const auto value : all.weights) ASSERT_EQ(value, 0) << "p = 1";
    EXPECT_TRUE(same_bits(all.lse, plain.lse)) << "dropout comes after the sum";
    EXPECT_TRUE(same_bits(half.lse, plain.lse)) << "dropout comes after the sum";
    for (std::int64_t at = 0; at < plain.weights.size(); ++at) {
      const double kept = double(half.weights.data()[at]), whole = double(plain.weights.data()[at]);
      ASSERT_TRUE(kept == 0 || std::abs(kept - 2 * whole) <= 4 * std::numeric_limits<TypeParam>::epsilon() * whole);
    }
  }
}

TYPED_TEST(dropout_of, a_call_does_not_depend_on_threads) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    for (const bool reproducible : {false, true}) {
      options how{.dropout = {.p = 0.3, .seed = 9}, .reproducible = reproducible, .threads = 1};
      const auto one = compute(x, how, true);
      for (const int threads : {2, 3, 7, 33}) {
        how.threads = threads;
        EXPECT_TRUE(same_bits(compute(x, how, true), one)) << threads << " threads, " << n.to_string();
      }
    }
  }
}

TYPED_TEST(dropout_of, weights_is_that_of_the_sums) {
  // Values that tell keys apart: a row of out shows which weights were in its sum.
  for (const std::int64_t L : {1, 5, 70}) {
    const std::int64_t S = 40;
    auto x = make_inputs<TypeParam>({.B = 2, .H = 2, .Hk = 1, .L = L, .S = S, .E = 3, .Ev = S});
    for_each_index(x.v.shape(), [&](const extents& at) { x.v(at[0], at[1], at[2], at[3]) = TypeParam(at[2] == at[3]); });
    for (const bool reproducible : {false, true}) {
      const auto y = compute(x, {.dropout = {.p = 0.6, .seed = 77}, .reproducible = reproducible}, true);
      for (std::int64_t at = 0; at < y.out.size(); ++at) {
        ASSERT_EQ(y.out.data()[at] == 0, y.weights.data()[at] == 0) << place(y.out.shape(), at);
        ASSERT_NEAR(y.out.data()[at], y.weights.data()[at], 4 * relative_bound<TypeParam>) << place(y.out.shape(), at);
      }
    }
  }
}

TYPED_TEST(dropout_of, a_share_of_the_pairs_is_p) {
  const auto x = make_inputs<TypeParam>({.B = 1, .H = 2, .Hk = 2, .L = 200, .S = 500, .E = 2, .Ev = 1});
  const double count = 2 * 200 * 500;
  for (const double p : {0.1, 0.5, 0.8}) {
    const auto y = compute(x, {.dropout = {.p = p, .seed = 2024}}, true);
    const double dropped = double(std::count(y.weights.begin(), y.weights.end(), TypeParam(0)));
    EXPECT_NEAR(dropped / count, p, 5 * std::sqrt(p * (1 - p) / count)) << "within five standard deviations";
  }
}

TYPED_TEST(dropout_of, a_call_without_a_seed_draws_one) {
  const auto x = make_inputs<TypeParam>({.B = 1, .H = 2, .Hk = 1, .L = 20, .S = 100, .E = 3, .Ev = 3});
  const auto first = compute(x, {.dropout = {.p = 0.5}}), second = compute(x, {.dropout = {.p = 0.5}});
  EXPECT_FALSE(same_bits(first.out, second.out)) << "2000 words of two seeds are equal only by a fault";
  const auto weights = compute(x, {.dropout = {.p = 0.5}}, true).weights;
  EXPECT_GT(std::count(weights.begin(), weights.end(), TypeParam(0)), 1500);
  EXPECT_FALSE(same_bits(compute(x, {.dropout = {.p = 0.5, .seed = 1}}).out,
                         compute(x, {.dropout = {.p = 0.5, .seed = (std::uint64_t{1} << 32) + 1}}).out))
      << "the high word of the seed counts";
}

TYPED_TEST(dropout_of, later_queries_and_keys_leaves_rows_alone) {
  // Indices are those of the problem: more queries, keys or heads behind a row change nothing of it.
  const sizes n{.B = 2, .H = 4, .Hk = 4, .L = 100, .S = 300, .E = 3, .Ev = 4};
  const auto x = make_inputs<TypeParam>(n);
  const options how{.causal = true, .query_offset = 150, .dropout = {.p = 0.3, .seed = 8}, .reproducible = true};
  const auto whole = compute(x, how);
  const auto fewer = compute<TypeParam>(part(x.q, 2, 0, 60), part(x.k, 2, 0, 250), part(x.v, 2, 0, 250), how);
  EXPECT_TRUE(is_part(fewer.out, whole.out, 2, 0));
  const auto heads = compute<TypeParam>(part(x.q, 1, 0, 3), part(x.k, 1, 0, 3), part(x.v, 1, 0, 3), how);
  EXPECT_TRUE(is_part(heads.out, whole.out, 1, 0));
}

TYPED_TEST(dropout_of, a_mask_leaks_nothing_and_swallows_nothing) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const auto mask = coins({n.S}, 3, 0.6);
    for (const bool reproducible : {false, true}) {
      const options how{.mask = mask, .dropout = {.p = 0.5, .seed = 4}, .reproducible = reproducible};
      inputs<TypeParam> hidden{copy(x.q), copy(x.k), copy(x.v)}, seen{copy(x.q), copy(x.k), copy(x.v)};
      for (std::int64_t j = 0; j < n.S; ++j)
        if (!mask(j)) hidden.k(0, 0, j, 0) = this->nan, hidden.v(0, 0, j, 0) = this->inf;
      EXPECT_TRUE(same_bits(compute(hidden, how, true), compute(x, how, true))) << n.to_string();
      seen.v(0, 0, n.S / 2, 0) = this->nan, seen.v(0, 0, n.S - 1, 1) = this->inf;
      EXPECT_TRUE(right(seen, {.dropout = {.p = 0.5, .seed = 4}, .reproducible = reproducible}))
          << "a dropped NaN is allowed: 0 times NaN is NaN, " << n.to_string();
      seen.q(0, 1, 0, 0) = this->nan;
      EXPECT_TRUE(right(seen, {.dropout = {.p = 0.5, .seed = 4}, .reproducible = reproducible}, true)) << n.to_string();
    }
  }
}

}  // namespace
}  // namespace attend::test

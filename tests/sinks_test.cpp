// Sinks: one logit per query head in the denominator and the LSE, counted once however many tiles, chunks and threads.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/score.hpp"

namespace attend::test {
namespace {

template <class T>
struct sinks : testing::Test {
  static constexpr T nan = std::numeric_limits<T>::quiet_NaN(), inf = std::numeric_limits<T>::infinity();
};
TYPED_TEST_SUITE(sinks, element_types);

/// Few queries whose keys are split, one block of lanes, several.
const std::vector<sizes> problems = {{.B = 2, .H = 4, .Hk = 2, .L = 1, .S = 9, .E = 5, .Ev = 6},
                                     {.B = 1, .H = 4, .Hk = 1, .L = 2, .S = quick() ? 1100 : 3000, .E = 8, .Ev = 3},
                                     {.B = 2, .H = 4, .Hk = 2, .L = 40, .S = 31, .E = 4, .Ev = 6},
                                     {.B = 1, .H = 4, .Hk = 4, .L = 70, .S = quick() ? 200 : 1700, .E = 5, .Ev = 7}};

template <class T>
tensor<T> four(std::initializer_list<double> values) {
  tensor<T> x({4});
  std::transform(values.begin(), values.end(), x.begin(), [](double value) { return static_cast<T>(value); });
  return x;
}

TYPED_TEST(sinks, of_any_size_are_right) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const score_arrays<TypeParam> arrays(n);
    for (const auto& values : {four<TypeParam>({0.5, -3, 2, 0}), four<TypeParam>({-80, 100, -infinity, 7}),
                               four<TypeParam>({1000, -1000, 30, -30}), four<TypeParam>({-infinity, 1e30, -1e30, 5})}) {
      expect_right(x, {.sinks = values}, n.to_string());
      expect_right(x, {.causal = true, .query_offset = lower_right, .key_lengths = arrays.lengths, .sinks = values}, "causal");
      expect_right(x, {.bias = arrays.row, .scale = 3.0, .softcap = 2.0, .sinks = values}, "neither scaled nor capped");
    }
  }
}

TYPED_TEST(sinks, of_rows_without_a_key_are_their_lse) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const auto values = four<TypeParam>({0.1, -infinity, 100.3, -2000});
    tensor<bool> mask({n.L, 1});
    for (std::int64_t i = 1; i < n.L; i += 2) mask(i, 0) = true;
    for (const options& base : {options{.mask = mask, .sinks = values}, options{.key_lengths = 0, .sinks = values}}) {
      for (const bool reproducible : {false, true}) {
        options how = base;
        how.reproducible = reproducible;
        const auto y = compute(x, how, true);
        EXPECT_TRUE(as_reference(y, x.q, x.k, x.v, how)) << n.to_string();
        for_each_index({n.B, n.H, (n.L + 1) / 2}, [&](const extents& at) {
          EXPECT_EQ(y.lse(at[0], at[1], 2 * at[2]), values(at[1])) << n.to_string();
          EXPECT_EQ(y.out(at[0], at[1], 2 * at[2], 0), 0) << n.to_string();
          EXPECT_EQ(y.weights(at[0], at[1], 2 * at[2], n.S - 1), 0) << n.to_string();
        });
      }
    }
  }
}

TYPED_TEST(sinks, of_minus_infinity_change_no_bit) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const tensor<TypeParam> none({n.H}, -this->inf);
    for (const bool reproducible : {false, true})
      EXPECT_TRUE(same_bits(compute(x, {.sinks = none, .reproducible = reproducible}, true),
                            compute(x, {.reproducible = reproducible}, true)))
          << n.to_string();
  }
}

TYPED_TEST(sinks, that_are_infinite_or_nan_follow_ieee_arithmetic_in_their_head_alone) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    auto values = four<TypeParam>({0.5, 0.25, -1, 2});
    const auto clean = compute(x, {.sinks = values}, true);
    auto mask = coins({n.L, n.S}, 3, 0.7);
    for (std::int64_t j = 0; j < n.S; ++j) mask(n.L - 1, j) = false;
    for (const TypeParam poison : {this->inf, this->nan}) {
      values(2) = poison;
      expect_right(x, {.sinks = values}, n.to_string());
      expect_right(x, {.mask = mask, .sinks = values}, "an empty row, " + n.to_string());
      const auto dirty = compute(x, {.sinks = values}, true);
      for_each_index(clean.out.shape(), [&](const extents& at) {
        const TypeParam got = dirty.out(at[0], at[1], at[2], at[3]);
        EXPECT_TRUE(at[1] == 2 ? std::isnan(got) : got == clean.out(at[0], at[1], at[2], at[3])) << n.to_string();
      });
    }
  }
}

TYPED_TEST(sinks, are_counted_once_however_keys_are_split) {
  const auto values = four<TypeParam>({1.5, -4, 12, 3});
  for (const std::int64_t L : {1, 3, 40}) {
    // From one chunk of keys to more chunks than a wave of them holds, and chunks in which no key is allowed.
    for (const std::int64_t S : {1, 90, 1000, 1024, 1025, 1536, 1537, 3000, 5000}) {
      if (quick() && S > 1600) continue;
      const auto x = make_inputs<TypeParam>({.B = 1, .H = 4, .Hk = 2, .L = L, .S = S, .E = 4, .Ev = 3});
      for (const std::int64_t length : {S, std::min<std::int64_t>(S, 700)}) {
        const auto alone = compute(x, {.key_lengths = length});
        for (const bool reproducible : {false, true}) {
          const options base{.key_lengths = length, .sinks = values, .reproducible = reproducible, .threads = 1};
          const auto want = compute(x, base, true);
          for (const int threads : {2, 3, 9}) {
            options how = base;
            how.threads = threads;
            EXPECT_TRUE(same_bits(compute(x, how, true), want)) << threads << " threads, " << S << " keys";
          }
          for_each_index({4, L}, [&](const extents& at) {
            const double without = double(alone.lse(0, at[0], at[1])), sink = double(values(at[0]));
            const double top = std::max(without, sink), lse = top + std::log(std::exp(without - top) + std::exp(sink - top));
            EXPECT_NEAR(double(want.lse(0, at[0], at[1])), lse, 5 * relative_bound<TypeParam> * std::max(1.0, std::abs(lse)));
            const double share = std::exp(without - lse);
            EXPECT_NEAR(double(want.out(0, at[0], at[1], 2)), share * double(alone.out(0, at[0], at[1], 2)),
                        20 * relative_bound<TypeParam>)
                << S << " keys, length " << length;
          });
        }
      }
    }
  }
}

TYPED_TEST(sinks, beside_very_different_scores_lose_nothing) {
  for (const std::int64_t L : {1, 40}) {
    auto x = make_inputs<TypeParam>({.B = 1, .H = 4, .Hk = 1, .L = L, .S = 300, .E = 4, .Ev = 3});
    for (TypeParam& value : x.q) value = value < 0 ? TypeParam(-60) : TypeParam(60);
    for (const double shift : {-1e4, 0.0, 1e4}) {
      const tensor<TypeParam> bias({1}, static_cast<TypeParam>(shift));
      expect_right(x, {.bias = bias, .sinks = four<TypeParam>({1e4, -1e4, 100, -100})}, "shifted by " + std::to_string(shift));
    }
  }
}

TYPED_TEST(sinks, of_any_stride_change_no_bit) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const auto values = four<TypeParam>({0.5, -3, 2, 0});
    const auto want = compute(x, {.sinks = values}, true);
    for (const std::int64_t step : {-1, 3, -2}) {
      strided<TypeParam> placed(values, {step});
      EXPECT_TRUE(same_bits(compute(x, {.sinks = placed.view()}, true), want)) << step;
    }
    unaligned<TypeParam> odd(values);
    EXPECT_TRUE(same_bits(compute(x, {.sinks = odd.view()}, true), want));
  }
}

TYPED_TEST(sinks, take_their_share_of_the_weights) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const auto values = four<TypeParam>({0.5, -3, 2, 9});
    const auto y = compute(x, {.sinks = values}, true);
    for_each_index({n.B, n.H, n.L}, [&](const extents& at) {
      double sum = std::exp(double(values(at[1])) - double(y.lse(at[0], at[1], at[2])));
      for (std::int64_t j = 0; j < n.S; ++j) sum += double(y.weights(at[0], at[1], at[2], j));
      EXPECT_NEAR(sum, 1, 20 * relative_bound<TypeParam>) << n.to_string();
    });
  }
}

}  // namespace
}  // namespace attend::test

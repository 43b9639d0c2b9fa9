// The NaN contract beside score functions, segments, sinks and dropout: excluded means not there, allowed means there.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/poison.hpp"
#include "support/score.hpp"

namespace attend::test {
namespace {

template <class T>
struct nan_of_scores : testing::Test {
  static constexpr T nan = std::numeric_limits<T>::quiet_NaN(), inf = std::numeric_limits<T>::infinity();
  static constexpr T poisons[] = {nan, inf, -inf};
};
TYPED_TEST_SUITE(nan_of_scores, element_types);

/// Both kernels; keys within one tile, across tiles and across chunks.
const std::vector<sizes> problems = {{.B = 2, .H = 2, .Hk = 1, .L = 1, .S = 7, .E = 5, .Ev = 6},
                                     {.B = 2, .H = 4, .Hk = 2, .L = 3, .S = quick() ? 300 : 1100, .E = 8, .Ev = 4},
                                     {.B = 2, .H = 2, .Hk = 1, .L = 70, .S = 130, .E = 4, .Ev = 9}};

TYPED_TEST(nan_of_scores, excluded_keys_and_their_biases_leak_nothing) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    auto mask = coins({n.S}, 3, 0.6);
    mask(0) = false, mask(n.S - 1) = false;
    for (const TypeParam poison : this->poisons) {
      const auto y = poisoned(x, poison, [&](auto, auto j) { return !mask(j); });
      const score_arrays<TypeParam> clean(n);
      score_arrays<TypeParam> dirty(n);
      for (std::int64_t j = 0; j < n.S; ++j)
        if (!mask(j)) dirty.row(j) = poison;
      for_each_index(dirty.bias.shape(), [&](const extents& at) {
        if (!mask(at[3])) dirty.bias(at[0], 0, at[2], at[3]) = poison;
      });
      auto of_clean = clean.calls(), of_dirty = dirty.calls();
      for (std::size_t i = 0; i < of_clean.size(); ++i) {
        for (const bool reproducible : {false, true}) {
          options a = of_clean[i].how, b = of_dirty[i].how;
          a.mask = b.mask = mask;
          a.reproducible = b.reproducible = reproducible;
          EXPECT_TRUE(same_bits(compute(x, a, true), compute(y, b, true)))
              << of_clean[i].name << ", " << poison << ", " << n.to_string() << (reproducible ? ", reproducible" : "");
          EXPECT_TRUE(same_bits(scores_of<TypeParam>(x.q, x.k, x.v, a, score_stage::biased),
                                scores_of<TypeParam>(y.q, y.k, y.v, b, score_stage::biased)))
              << of_clean[i].name << ", scores, " << poison << ", " << n.to_string();
        }
      }
    }
  }
}

TYPED_TEST(nan_of_scores, minus_infinity_in_any_bias_excludes_whatever_follows) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    tensor<bool> mask({n.S}, true);
    const auto numbers = normal<TypeParam>({n.S}, 5);
    for (std::int64_t j = 1; j < n.S; j += 3) mask(j) = false;
    const auto y = poisoned(x, this->nan, [&](auto, auto j) { return !mask(j); });
    for (const TypeParam beside : {TypeParam(0.5), this->inf, this->nan}) {
      auto excluding = copy(numbers), other = copy(numbers);
      for (std::int64_t j = 1; j < n.S; j += 3) excluding(j) = -this->inf, other(j) = beside;
      const score_list clean = {attend::bias(numbers), soft_cap(3), attend::bias(numbers), alibi(), attend::bias(numbers)};
      for (const bool reproducible : {false, true}) {
        const auto want = compute(x, {.query_offset = 4, .mask = mask, .score = clean, .reproducible = reproducible}, true);
        for (int place = 0; place < 3; ++place) {
          const score_list list = {attend::bias(place == 0 ? excluding : other), soft_cap(3),
                                   attend::bias(place == 1 ? excluding : other), alibi(),
                                   attend::bias(place == 2 ? excluding : other)};
          EXPECT_TRUE(same_bits(compute(y, {.query_offset = 4, .score = list, .reproducible = reproducible}, true), want))
              << "bias " << place << " beside " << beside << ", " << n.to_string() << (reproducible ? ", reproducible" : "");
        }
      }
    }
  }
}

TYPED_TEST(nan_of_scores, allowed_nan_and_infinity_are_the_references) {
  for (const sizes& n : problems) {
    for (const TypeParam poison : this->poisons) {
      auto in_key = make_inputs<TypeParam>(n), in_value = make_inputs<TypeParam>(n), in_query = make_inputs<TypeParam>(n);
      const auto x = make_inputs<TypeParam>(n);
      in_key.k(0, 0, n.S / 2, 0) = poison;
      in_value.v(0, n.Hk - 1, n.S - 1, 1) = poison;
      in_query.q(1, 0, n.L / 2, n.E - 1) = poison;
      score_arrays<TypeParam> arrays(n), in_bias(n);
      // An infinite value with a weight that float32 rounds to 0 is NaN: no slope takes any key as far as that.
      for (TypeParam& slope : arrays.slopes) slope = TypeParam(0.05 * double(slope));
      in_bias.bias(n.B - 1, 0, n.L - 1, n.S / 3) = poison;
      const auto expect_right = [&](const inputs<TypeParam>& y, options how, const std::string& what) {
        const expectation expected(y.q, y.k, y.v, how, true);
        for (const bool reproducible : {false, true}) {
          how.reproducible = reproducible;
          EXPECT_TRUE(expected.met_by(compute(y, how, true)))
              << what << ", " << poison << ", " << n.to_string() << (reproducible ? ", reproducible" : "");
        }
      };
      for (const auto& [name, how] : arrays.calls()) {
        expect_right(in_key, how, name + ", key");
        expect_right(in_value, how, name + ", value");
        expect_right(in_query, how, name + ", query");
      }
      for (const auto& [name, how] : in_bias.calls()) expect_right(x, how, name + ", bias");
    }
  }
}

TYPED_TEST(nan_of_scores, a_nan_query_leaves_every_other_row_its_bits) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const std::int64_t i = n.L / 2;
    auto y = inputs<TypeParam>{copy(x.q), copy(x.k), copy(x.v)};
    y.q(1, 0, i, 0) = this->nan;
    const score_arrays<TypeParam> arrays(n);
    for (auto [name, how] : arrays.calls()) {
      for (const bool reproducible : {false, true}) {
        how.reproducible = reproducible;
        const auto clean = compute(x, how, true), dirty = compute(y, how, true);
        for_each_index(clean.out.shape(), [&](const extents& at) {
          if (at[0] == 1 && at[1] == 0 && at[2] == i) return;
          ASSERT_EQ(dirty.out(at[0], at[1], at[2], at[3]), clean.out(at[0], at[1], at[2], at[3])) << name << n.to_string();
        });
      }
    }
  }
}

TYPED_TEST(nan_of_scores, a_nan_is_not_capped_to_a_number) {
  for (const sizes& n : problems) {
    auto x = make_inputs<TypeParam>(n);
    x.q(0, 0, 0, 0) = this->nan;
    for (const options& how : {options{.softcap = 2}, options{.score = {soft_cap(1), soft_cap(2)}}}) {
      const auto y = compute(x, how, true);
      EXPECT_TRUE(std::isnan(y.out(0, 0, 0, 0)) && std::isnan(y.lse(0, 0, 0)) && std::isnan(y.weights(0, 0, 0, n.S - 1)));
      EXPECT_TRUE(std::isnan(scores_of<TypeParam>(x.q, x.k, x.v, how, score_stage::capped)(0, 0, 0, n.S - 1)));
    }
  }
}

}  // namespace
}  // namespace attend::test

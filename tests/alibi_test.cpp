// ALiBi: slopes of the paper and of the caller's, by any position of the queries.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/score.hpp"

namespace attend::test {
namespace {

template <class T>
struct alibi_of : testing::Test {};
TYPED_TEST_SUITE(alibi_of, element_types);

TYPED_TEST(alibi_of, the_paper_adds_its_slopes_for_1_to_20_heads) {
  for (std::int64_t heads = 1; heads <= 20; ++heads) {
    for (const std::int64_t L : {1, 20}) {
      const auto x = make_inputs<TypeParam>({.B = 1, .H = heads, .Hk = 1, .L = L, .S = 100, .E = 2, .Ev = 1});
      const auto slopes = paper_slopes(heads);
      for (const std::int64_t first : {-30, 0, 50, 200}) {
        const options how{.query_offset = first, .scale = 0.0, .alibi = true};
        const auto got = scores_of<TypeParam>(x.q, x.k, x.v, how, score_stage::biased);
        for_each_index(got.shape(), [&](const extents& at) {
          const double want = -slopes[std::size_t(at[1])] * double(std::abs(at[2] + first - at[3]));
          EXPECT_NEAR(double(got(0, at[1], at[2], at[3])), want, std::numeric_limits<TypeParam>::epsilon() * std::abs(want))
              << heads << " heads, head " << at[1] << ", query " << at[2] << " from " << first << ", key " << at[3];
        });
        EXPECT_TRUE(right(x, {.query_offset = first, .alibi = true}, true)) << heads << " heads, from " << first;
      }
      if (testing::Test::HasFailure()) return;
    }
  }
}

/// Few queries, one block of lanes, several.
const std::vector<sizes> problems = {{.B = 3, .H = 6, .Hk = 2, .L = 2, .S = 300, .E = 4, .Ev = 3},
                                     {.B = 3, .H = 3, .Hk = 3, .L = 40, .S = 31, .E = 5, .Ev = 2},
                                     {.B = 3, .H = 4, .Hk = 2, .L = 70, .S = 130, .E = 3, .Ev = 5}};

TYPED_TEST(alibi_of, any_offset_is_right_with_every_mask_of_positions) {
  tensor<std::int64_t> each({3}), lengths({3});
  each(0) = -7, each(1) = 3, each(2) = 400;
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const auto slopes = normal<TypeParam>({n.H}, 5, 0.3);
    for (std::int64_t b = 0; b < 3; ++b) lengths(b) = n.S - 13 * b;
    for (const query_position& at : {query_position(upper_left), query_position(lower_right), query_position(-3),
                                     query_position(1000), query_position(each)}) {
      for (const bool reproducible : {false, true}) {
        for (const alibi_slopes& given : {alibi_slopes(true), alibi_slopes(slopes)}) {
          for (const options& base :
               {options{}, options{.causal = true}, options{.window = {20, 5}}, options{.causal = true, .prefix = 9},
                options{.key_lengths = lengths}, options{.causal = true, .key_lengths = lengths}}) {
            options how = base;
            how.query_offset = at, how.alibi = given, how.reproducible = reproducible;
            EXPECT_TRUE(right(x, how, true)) << n.to_string() << ", causal " << how.causal << ", window " << bool(how.window);
          }
        }
      }
    }
  }
}

TYPED_TEST(alibi_of, far_positions_keeps_distances_exact) {
  // Every distance is about 2^23, and so are scores; differences between keys are what counts.
  for (const std::int64_t L : {1, 40}) {
    const auto x = make_inputs<TypeParam>({.B = 1, .H = 2, .Hk = 1, .L = L, .S = 200, .E = 2, .Ev = 3});
    tensor<TypeParam> slopes({2}, TypeParam(1));
    slopes(1) = TypeParam(-0.5);
    for (const std::int64_t first : {(std::int64_t{1} << 23) - 500, -(std::int64_t{1} << 23) + 500}) {
      const options how{.query_offset = first, .scale = 0.0, .alibi = slopes};
      const auto got = scores_of<TypeParam>(x.q, x.k, x.v, how, score_stage::biased);
      for_each_index(got.shape(), [&](const extents& at) {
        EXPECT_EQ(got(0, at[1], at[2], at[3]), TypeParam(-double(slopes(at[1])) * double(std::abs(first + at[2] - at[3]))));
      });
      EXPECT_TRUE(right(x, how, true)) << first;
    }
  }
}

TYPED_TEST(alibi_of, positions_of_any_size_does_not_overflow) {
  for (const std::int64_t L : {1, 40}) {
    const auto x = make_inputs<TypeParam>({.B = 1, .H = 2, .Hk = 1, .L = L, .S = 200, .E = 2, .Ev = 3});
    for (const std::int64_t first :
         {std::int64_t{1} << 31, -(std::int64_t{1} << 33), std::int64_t{1} << 60, -(std::int64_t{1} << 61)}) {
      // Slopes that leave scores about 3: whatever is lost of such a distance is lost of every key's.
      tensor<TypeParam> slopes({2}, static_cast<TypeParam>(3 / std::abs(double(first))));
      slopes(1) = -slopes(1);
      EXPECT_TRUE(right(x, {.query_offset = first, .alibi = slopes}, true)) << first;
      for (const auto value : compute(x, {.query_offset = first, .alibi = true}).out)
        ASSERT_TRUE(std::isfinite(value)) << first;
    }
  }
}

TYPED_TEST(alibi_of, slopes_of_any_stride_change_no_bit) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const auto slopes = normal<TypeParam>({n.H}, 5, 0.3);
    const auto want = compute(x, {.query_offset = 4, .alibi = slopes}, true);
    for (const std::int64_t step : {-1, 3, -2}) {
      strided<TypeParam> placed(slopes, {step});
      EXPECT_TRUE(same_bits(compute(x, {.query_offset = 4, .alibi = placed.view()}, true), want)) << step;
    }
    unaligned<TypeParam> odd(slopes);
    EXPECT_TRUE(same_bits(compute(x, {.query_offset = 4, .alibi = array_view(odd.view())}, true), want));
    const tensor<TypeParam> same({n.H}, TypeParam(0.25));
    const TypeParam one = TypeParam(0.25);
    const tensor_view<const TypeParam> repeated(&one, {n.H}, {0});
    EXPECT_TRUE(same_bits(compute(x, {.query_offset = 4, .alibi = repeated}, true),
                          compute(x, {.query_offset = 4, .alibi = same}, true)));
  }
}

TYPED_TEST(alibi_of, a_list_is_that_of_the_option) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const auto slopes = normal<TypeParam>({n.H}, 5, 0.3);
    EXPECT_TRUE(same_bits(compute(x, {.query_offset = 4, .score = {alibi(slopes)}}, true),
                          compute(x, {.query_offset = 4, .alibi = slopes}, true)));
    EXPECT_TRUE(same_bits(compute(x, {.query_offset = 4, .score = {alibi()}}, true),
                          compute(x, {.query_offset = 4, .alibi = true}, true)));
    EXPECT_TRUE(same_bits(compute(x, {.query_offset = 4, .alibi = false}, true), compute(x, {}, true)));
  }
}

TYPED_TEST(alibi_of, a_slope_that_is_nan_reaches_its_head_alone) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    auto slopes = normal<TypeParam>({n.H}, 5, 0.3);
    const auto clean = compute(x, {.query_offset = 4, .alibi = slopes});
    slopes(1) = std::numeric_limits<TypeParam>::quiet_NaN();
    for (const bool reproducible : {false, true}) {
      const options how{.query_offset = 4, .alibi = slopes, .reproducible = reproducible};
      EXPECT_TRUE(right(x, how, true)) << n.to_string();
    }
    const auto dirty = compute(x, {.query_offset = 4, .alibi = slopes});
    for_each_index(clean.out.shape(), [&](const extents& at) {
      const TypeParam got = dirty.out(at[0], at[1], at[2], at[3]);
      EXPECT_TRUE(at[1] == 1 ? std::isnan(got) : got == clean.out(at[0], at[1], at[2], at[3])) << n.to_string();
    });
  }
}

}  // namespace
}  // namespace attend::test

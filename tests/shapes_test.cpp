// Every kernel on lengths and widths around the sizes of its registers, tiles and chunks, against the reference.
#include <gtest/gtest.h>

#include <vector>

#include "support/compute.hpp"

namespace attend::test {
namespace {

template <class T>
struct shapes : testing::Test {};
TYPED_TEST_SUITE(shapes, sized_types);

/// By the plan's own rule, and with the one kernel that serves every L.
template <class T>
void expect_right(const sizes& n, const options& how = {}, std::uint64_t seed = 1) {
  const auto x = make_inputs<T>(n, seed);
  for (const bool reproducible : {false, true}) {
    options each = how;
    each.reproducible = reproducible;
    EXPECT_TRUE(right(x, each, n.L * n.S <= 1 << 16)) << n.to_string() << (reproducible ? ", reproducible" : "");
  }
}

std::vector<std::int64_t> thinned(std::vector<std::int64_t> all) {
  if (!quick()) return all;
  std::vector<std::int64_t> some;
  for (std::size_t i = 0; i < all.size(); i += 3) some.push_back(all[i]);
  return some;
}

const std::vector<std::int64_t> widths = {1,  2,  3,  4,  5,  6,  7,   8,   9,   11,  12,  13,  15, 16,
                                          17, 18, 23, 24, 31, 32, 33,  36,  40,  47,  48,  49,  63, 64,
                                          65, 72, 80, 95, 96, 97, 100, 127, 128, 129, 192, 257, 576};

TYPED_TEST(shapes, every_query_width_is_right) {
  for (const std::int64_t E : thinned(widths)) {
    for (const std::int64_t L : {1, 5, 70})
      expect_right<TypeParam>({.B = 1, .H = 2, .Hk = 1, .L = L, .S = 101, .E = E, .Ev = 8});
  }
}

TYPED_TEST(shapes, every_value_width_is_right) {
  for (const std::int64_t Ev : thinned(widths)) {
    for (const std::int64_t L : {1, 5, 70})
      expect_right<TypeParam>({.B = 1, .H = 2, .Hk = 1, .L = L, .S = 101, .E = 8, .Ev = Ev});
  }
}

TYPED_TEST(shapes, equal_widths_are_right) {
  for (const std::int64_t E : thinned(widths)) {
    for (const std::int64_t L : {2, 33}) expect_right<TypeParam>({.B = 1, .H = 1, .Hk = 1, .L = L, .S = 50, .E = E, .Ev = E});
  }
}

TYPED_TEST(shapes, every_number_of_queries_is_right) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t L = 1; L <= 34; ++L) lengths.push_back(L);
  for (const std::int64_t L : {47, 48, 49, 63, 64, 65, 66, 95, 96, 97, 127, 128, 129, 191, 192, 193, 257}) lengths.push_back(L);
  for (const std::int64_t L : thinned(lengths))
    expect_right<TypeParam>({.B = 1, .H = 2, .Hk = 2, .L = L, .S = 37, .E = 16, .Ev = 12});
}

TYPED_TEST(shapes, every_number_of_keys_is_right) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t S = 1; S <= 34; ++S) lengths.push_back(S);
  for (const std::int64_t S :
       {47, 48, 49, 63, 64, 65, 90, 91, 95, 96, 97, 101, 102, 127, 128, 191, 192, 193, 287, 288, 289, 383, 384, 385}) {
    lengths.push_back(S);
  }
  for (const std::int64_t S : thinned(lengths)) {
    for (const std::int64_t L : {1, 3, 65})
      expect_right<TypeParam>({.B = 1, .H = 2, .Hk = 1, .L = L, .S = S, .E = 10, .Ev = 9});
  }
}

TYPED_TEST(shapes, keys_around_the_ends_of_chunks_are_right) {
  for (const std::int64_t S : thinned({511,  512,  513,  767,  768,  769,  1023, 1024, 1025, 1535, 1536, 1537, 1631,
                                       1632, 1633, 2047, 2048, 2049, 3071, 3072, 3073, 4607, 4608, 4609, 5000})) {
    for (const std::int64_t L : {1, 4, 40}) expect_right<TypeParam>({.B = 1, .H = 2, .Hk = 1, .L = L, .S = S, .E = 6, .Ev = 7});
  }
}

TYPED_TEST(shapes, grouped_heads_read_their_key_value_head) {
  for (const std::int64_t group : thinned({1, 2, 3, 4, 5, 7, 8, 9, 16, 71})) {
    for (const std::int64_t Hk : {1, 2, 3}) {
      for (const std::int64_t L : {1, 2, 3, 19}) {
        expect_right<TypeParam>({.B = 2, .H = group * Hk, .Hk = Hk, .L = L, .S = 29, .E = 8, .Ev = 5});
      }
    }
  }
}

TYPED_TEST(shapes, causal_lengths_that_do_not_fit_the_tiles_are_right) {
  for (const anchor word : {upper_left, lower_right}) {
    for (const auto& [L, S] : std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1},
                                                                                 {7, 9},
                                                                                 {9, 7},
                                                                                 {64, 64},
                                                                                 {65, 65},
                                                                                 {97, 96},
                                                                                 {100, 300},
                                                                                 {300, 100},
                                                                                 {513, 517},
                                                                                 {40, 1537},
                                                                                 {1537, 40}}) {
      expect_right<TypeParam>({.B = 1, .H = 2, .Hk = 1, .L = L, .S = S, .E = 16, .Ev = 16},
                              {.causal = true, .query_offset = word});
    }
  }
}

TYPED_TEST(shapes, long_causal_sequences_are_right) {
  if (quick()) GTEST_SKIP() << "ATTEND_TEST_QUICK is set";
  for (const anchor word : {upper_left, lower_right}) {
    for (const auto& [L, S] :
         std::vector<std::pair<std::int64_t, std::int64_t>>{{768, 768}, {512, 768}, {1537, 513}, {1024, 2100}}) {
      const auto x = make_inputs<TypeParam>({.B = 1, .H = 1, .Hk = 1, .L = L, .S = S, .E = 16, .Ev = 16});
      const auto y = compute(x, {.causal = true, .query_offset = word});
      EXPECT_TRUE(as_reference(y, x.q, x.k, x.v, {.causal = true, .query_offset = word})) << L << " queries, " << S << " keys";
    }
  }
}

TYPED_TEST(shapes, many_small_sequences_are_right) {
  expect_right<TypeParam>({.B = 37, .H = 5, .Hk = 5, .L = 3, .S = 4, .E = 3, .Ev = 2});
  expect_right<TypeParam>({.B = 7, .H = 6, .Hk = 2, .L = 17, .S = 77, .E = 40, .Ev = 40});
}

TYPED_TEST(shapes, a_row_over_very_many_keys_keeps_its_digits) {
  const std::int64_t S = quick() ? 20'000 : 1'000'000;
  expect_right<TypeParam>({.B = 1, .H = 2, .Hk = 1, .L = 2, .S = S, .E = 4, .Ev = 4});
}

TYPED_TEST(shapes, empty_dimensions_give_empty_results) {
  const auto shape_of = [](const sizes& n) {
    const auto x = make_inputs<TypeParam>(n);
    const auto y = compute(x, {}, true);
    EXPECT_EQ(y.lse.shape(), (extents{n.B, n.H, n.L})) << n.to_string();
    EXPECT_EQ(y.weights.shape(), (extents{n.B, n.H, n.L, n.S})) << n.to_string();
    return y.out.shape();
  };
  EXPECT_EQ(shape_of({.L = 0, .S = 5, .E = 4, .Ev = 3}), (extents{1, 1, 0, 3}));
  EXPECT_EQ(shape_of({.B = 0, .L = 2, .S = 5, .E = 4, .Ev = 3}), (extents{0, 1, 2, 3}));
  EXPECT_EQ(shape_of({.H = 0, .Hk = 0, .L = 2, .S = 5, .E = 4, .Ev = 3}), (extents{1, 0, 2, 3}));
  EXPECT_EQ(shape_of({.H = 0, .Hk = 2, .L = 2, .S = 5, .E = 4, .Ev = 3}), (extents{1, 0, 2, 3}));
  EXPECT_EQ(shape_of({.L = 2, .S = 5, .E = 4, .Ev = 0}), (extents{1, 1, 2, 0}));
  EXPECT_EQ(shape_of({.B = 0, .H = 0, .Hk = 0, .L = 0, .S = 0, .E = 0, .Ev = 0}), (extents{0, 0, 0, 0}));
}

TYPED_TEST(shapes, lse_and_weights_do_not_need_values) {
  const sizes n{.B = 2, .H = 2, .Hk = 1, .L = 3, .S = 5, .E = 4, .Ev = 0};
  expect_right<TypeParam>(n);
}

TYPED_TEST(shapes, no_keys_give_empty_rows) {
  for (const std::int64_t L : {1, 3, 70}) {
    const auto y = compute(make_inputs<TypeParam>({.B = 2, .H = 2, .Hk = 1, .L = L, .S = 0, .E = 4, .Ev = 3}), {}, true);
    for (const auto value : y.out) EXPECT_EQ(value, 0);
    for (const auto value : y.lse) EXPECT_EQ(double(value), -infinity);
    EXPECT_EQ(y.weights.size(), 0);
  }
}

TYPED_TEST(shapes, width_zero_gives_the_mean_of_the_values) {
  for (const std::int64_t L : {1, 3, 70}) expect_right<TypeParam>({.B = 1, .H = 2, .Hk = 2, .L = L, .S = 100, .E = 0, .Ev = 3});
}

TYPED_TEST(shapes, two_and_three_axes_are_a_matrix_and_its_heads) {
  const auto q = normal<TypeParam>({9, 7}, 1), k = normal<TypeParam>({11, 7}, 2), v = normal<TypeParam>({11, 3}, 3);
  const auto y = compute<TypeParam>(q, k, v, {}, true);
  EXPECT_EQ(y.out.shape(), (extents{9, 3}));
  EXPECT_EQ(y.lse.shape(), (extents{9}));
  EXPECT_EQ(y.weights.shape(), (extents{9, 11}));
  EXPECT_TRUE(as_reference(y, q, k, v));
  const tensor_view<const TypeParam> q3(q.data(), {1, 9, 7}), k3(k.data(), {1, 11, 7}), v3(v.data(), {1, 11, 3});
  EXPECT_TRUE(std::equal(y.out.begin(), y.out.end(), compute<TypeParam>(q3, k3, v3).out.begin()));
  const auto heads = normal<TypeParam>({6, 9, 7}, 4), keys = normal<TypeParam>({2, 11, 7}, 5),
             values = normal<TypeParam>({2, 11, 3}, 6);
  EXPECT_TRUE(as_reference(compute<TypeParam>(heads, keys, values, {}, true), heads, keys, values));
}

}  // namespace
}  // namespace attend::test

// What happens to a score: soft caps, biases and ALiBi in any order, against the reference; and the scores at each stage.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/form.hpp"
#include "support/score.hpp"

namespace attend::test {
namespace {

template <class T>
struct scores : testing::Test {};
TYPED_TEST_SUITE(scores, element_types);

/// Few queries, one block of lanes, several; keys within a tile, across tiles, across chunks; odd widths.
const std::vector<sizes> problems = {{.B = 2, .H = 3, .Hk = 1, .L = 1, .S = 9, .E = 8, .Ev = 6},
                                     {.B = 2, .H = 4, .Hk = 2, .L = 5, .S = 300, .E = 17, .Ev = 5},
                                     {.B = 1, .H = 2, .Hk = 1, .L = 3, .S = quick() ? 300 : 1100, .E = 3, .Ev = 3},
                                     {.B = 3, .H = 2, .Hk = 1, .L = 40, .S = 31, .E = 1, .Ev = 9},
                                     {.B = 2, .H = 6, .Hk = 3, .L = 70, .S = quick() ? 110 : 200, .E = 5, .Ev = 16},
                                     {.B = 1, .H = 1, .Hk = 1, .L = 17, .S = quick() ? 200 : 1600, .E = 4, .Ev = 1}};

TYPED_TEST(scores, of_every_option_and_order_are_right) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const score_arrays<TypeParam> arrays(n);
    for (const auto& [name, how] : arrays.calls()) expect_right(x, how, name + ": " + n.to_string());
  }
}

TYPED_TEST(scores, of_every_option_are_right_in_the_other_layout) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n, 1, layout::blhd);
    const score_arrays<TypeParam> arrays(n);
    for (auto [name, how] : arrays.calls()) {
      how.layout = layout::blhd;
      expect_right(x, how, name + ", blhd: " + n.to_string());
    }
  }
}

TYPED_TEST(scores, of_every_option_are_right_for_every_number_of_keys) {
  for (const std::int64_t L : {2, 33}) {
    for (std::int64_t S = 1; S <= 300; S += quick() ? 23 : S < 40 ? 1 : 7) {
      const sizes n{.B = 1, .H = 2, .Hk = 2, .L = L, .S = S, .E = 3, .Ev = 2};
      const auto x = make_inputs<TypeParam>(n);
      const score_arrays<TypeParam> arrays(n);
      for (const auto& [name, how] : arrays.calls()) EXPECT_TRUE(right(x, how)) << name << ": " << n.to_string();
    }
  }
}

TYPED_TEST(scores, of_every_option_are_right_in_every_form) {
  for (const std::int64_t L : {1, 20}) {
    const sizes n{.B = 1, .H = 2, .Hk = 1, .L = L, .S = 110, .E = 3, .Ev = 2};
    const auto x = make_inputs<TypeParam>(n);
    const score_arrays<TypeParam> arrays(n);
    const auto w = normal<TypeParam>({n.E}, 9);
    for (const auto& [name, base] : arrays.calls()) {
      for (options how : every_form(w, base)) {
        if (how.normalizer != normalizer::softmax) how.sinks = {};
        expect_right(x, how, name + ", " + form_of(how) + ", L " + std::to_string(L));
      }
    }
  }
}

TYPED_TEST(scores, are_capped_softly_at_any_cap) {
  for (const sizes& n : problems) {
    auto x = make_inputs<TypeParam>(n);
    for (const double cap : {1e-30, 1e-3, 0.7, 30.0, 1e5, 1e30}) expect_right(x, {.softcap = cap}, std::to_string(cap));
    // Caps that float32 cannot hold: the score itself, or nothing of it, is what is left.
    for (const double cap : {1e-308, 1e-300, 1e-45, 1e-39, 1e-37, 1e37, 1e38, 1e39, 1e300, 1e308})
      expect_right(x, {.softcap = cap}, "far, " + std::to_string(std::log10(cap)));
    for (TypeParam& value : x.q) value *= TypeParam(300);  // most scores lie far beyond the cap
    for (const double cap : {0.5, 20.0, 400.0}) expect_right(x, {.softcap = cap}, "wide, " + std::to_string(cap));
  }
}

TYPED_TEST(scores, that_are_capped_keep_the_digits_of_small_ones) {
  for (const std::int64_t L : {1, 40}) {
    const std::int64_t S = 2000;
    auto x = make_inputs<TypeParam>({.L = L, .S = S, .E = 1, .Ev = 1});
    for (TypeParam& value : x.q) value = 1;
    for (std::int64_t j = 0; j < S; ++j)
      x.k(0, 0, j, 0) = static_cast<TypeParam>((j % 2 ? -1 : 1) * std::pow(2.0, -24 + 30.0 * double(j) / double(S)));
    const auto got = scores_of<TypeParam>(x.q, x.k, x.v, {.scale = 1.0, .softcap = 2.0}, score_stage::capped);
    constexpr double epsilon = std::numeric_limits<TypeParam>::epsilon();
    for (std::int64_t j = 0; j < S; ++j) {
      const double want = 2 * std::tanh(double(x.k(0, 0, j, 0)) / 2);
      EXPECT_NEAR(double(got(0, 0, L - 1, j)), want, 4 * epsilon * std::abs(want)) << "of " << double(x.k(0, 0, j, 0));
    }
  }
}

TYPED_TEST(scores, beyond_any_cap_are_the_cap) {
  for (const std::int64_t L : {1, 40}) {
    auto x = make_inputs<TypeParam>({.L = L, .S = 100, .E = 1, .Ev = 2});
    for (TypeParam& value : x.q) value = 1;
    x.k(0, 0, 5, 0) = std::numeric_limits<TypeParam>::infinity();
    x.k(0, 0, 98, 0) = -std::numeric_limits<TypeParam>::infinity();
    x.k(0, 0, 7, 0) = std::numeric_limits<TypeParam>::max();
    const options how{.scale = 1.0, .softcap = 4.0};
    const auto got = scores_of<TypeParam>(x.q, x.k, x.v, how, score_stage::biased);
    EXPECT_EQ(got(0, 0, L - 1, 5), 4);
    EXPECT_EQ(got(0, 0, L - 1, 7), 4);
    EXPECT_EQ(got(0, 0, L - 1, 98), -4) << "no final score of -inf: the key counts";
    expect_right(x, how, "infinite scores");
  }
}

TYPED_TEST(scores, of_a_list_are_not_those_of_another_order) {
  for (const sizes& n : {problems[1], problems[4]}) {
    const auto x = make_inputs<TypeParam>(n);
    const score_arrays<TypeParam> arrays(n);
    const auto bias_first = compute(x, {.score = {attend::bias(arrays.bias), soft_cap(1.0)}}),
               cap_first = compute(x, {.score = {soft_cap(1.0), attend::bias(arrays.bias)}}),
               options_alone = compute(x, {.bias = arrays.bias, .softcap = 1.0});
    EXPECT_FALSE(same_bits(bias_first, cap_first));
    EXPECT_TRUE(same_bits(options_alone, cap_first)) << "the options stand for this order";
    const options other{.query_offset = 3, .score = {attend::bias(arrays.bias), soft_cap(1.0), alibi()}},
        mixed{.query_offset = 3, .softcap = 1.0, .alibi = true, .score = {attend::bias(arrays.bias)}};
    EXPECT_TRUE(same_bits(compute(x, other), compute(x, mixed))) << "the list comes before the options";
  }
}

TYPED_TEST(scores, of_as_many_functions_as_a_list_holds_are_right) {
  for (const sizes& n : {problems[1], problems[4]}) {
    const auto x = make_inputs<TypeParam>(n);
    std::vector<tensor<TypeParam>> biases;
    const std::vector<extents> shapes = {{n.S}, {n.L, 1}, {n.H, 1, 1}, {n.B, 1, 1, 1}, {n.L, n.S}, {n.B, n.H, n.L, n.S},
                                         {},    {1},      {n.S}};
    for (std::size_t at = 0; at < shapes.size(); ++at) biases.push_back(normal<TypeParam>(shapes[at], 60 + at));
    score_list all;
    for (int at = 0; at < score_list::max_size; ++at) all.push_back(attend::bias(biases[std::size_t(at)]));
    ASSERT_EQ(all.size(), 8);
    const auto table = normal<TypeParam>({n.H, 21}, 70);
    const options how{
        .query_offset = upper_left, .bias = biases[8], .relative = table, .softcap = 6, .alibi = true, .score = all};
    expect_right(x, how, n.to_string());
  }
}

TEST(scores_of_double, take_float32_numbers_beside_them) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<double>(n);
    const score_arrays<float> narrow(n);
    const auto widened = [](const tensor<float>& from) {
      tensor<double> to(from.shape());
      std::copy(from.begin(), from.end(), to.begin());
      return to;
    };
    score_arrays<double> wide(n);
    wide.slopes = widened(narrow.slopes), wide.sinks = widened(narrow.sinks);
    wide.bias = widened(narrow.bias), wide.row = widened(narrow.row);
    const auto of_float = narrow.calls(), of_double = wide.calls();
    for (std::size_t i = 0; i < of_float.size(); ++i) {
      EXPECT_TRUE(same_bits(compute(x, of_float[i].how, true), compute(x, of_double[i].how, true)))
          << of_float[i].name << ": " << n.to_string();
    }
  }
}

TYPED_TEST(scores, at_every_stage_are_those_of_the_reference) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const score_arrays<TypeParam> arrays(n);
    const auto mask = coins({n.B, 1, n.L, n.S}, 4, 0.7);
    auto calls = arrays.calls();
    calls.push_back({"none", {}});
    calls.push_back({"mask", {.mask = mask}});
    calls.push_back({"lengths", {.query_offset = lower_right, .key_lengths = arrays.lengths, .softcap = 2, .alibi = true}});
    for (auto [name, how] : calls) {
      for (const score_stage stage : {score_stage::scaled, score_stage::capped, score_stage::biased}) {
        for (const bool reproducible : {false, true}) {
          how.reproducible = reproducible;
          EXPECT_TRUE(scores_right<TypeParam>(x.q, x.k, x.v, how, stage))
              << name << ", stage " << int(stage) << ": " << n.to_string() << (reproducible ? ", reproducible" : "");
        }
      }
    }
  }
}

TYPED_TEST(scores, of_every_form_at_every_stage_are_those_of_the_reference) {
  for (const sizes& n : {problems[1], problems[3]}) {
    const auto x = make_inputs<TypeParam>(n);
    const score_arrays<TypeParam> arrays(n);
    const auto w = normal<TypeParam>({n.E}, 9), table = normal<TypeParam>({n.H, 9}, 10);
    for (const options& how : every_form(
             w, {.causal = true, .query_offset = 5, .bias = arrays.row, .relative = table, .scale = -0.6, .softcap = 2})) {
      for (const score_stage stage : {score_stage::scaled, score_stage::capped, score_stage::biased})
        EXPECT_TRUE(scores_right<TypeParam>(x.q, x.k, x.v, how, stage)) << form_of(how) << ", stage " << int(stage);
    }
  }
}

TYPED_TEST(scores, of_matrices_and_of_many_batch_axes_are_those_of_the_reference) {
  const auto mask = coins({5, 70}, 4, 0.7);
  for (const auto& [q_shape, k_shape] :
       {std::pair{extents{5, 3}, extents{70, 3}}, std::pair{extents{4, 5, 3}, extents{2, 70, 3}},
        std::pair{extents{2, 1, 4, 5, 3}, extents{3, 2, 70, 3}}}) {
    const auto q = normal<TypeParam>(q_shape, 1), k = normal<TypeParam>(k_shape, 2);
    const options how{.query_offset = 30, .mask = mask, .softcap = 2, .alibi = true};
    for (const score_stage stage : {score_stage::scaled, score_stage::capped, score_stage::biased})
      EXPECT_TRUE(scores_right<TypeParam>(q, k, k, how, stage)) << q_shape.to_string() << ", stage " << int(stage);
  }
}

TYPED_TEST(scores, of_every_zero_sized_shape_are_those_of_the_reference) {
  for (int zeros = 1; zeros < 128; ++zeros) {
    const auto size = [&](int bit, std::int64_t otherwise) { return zeros >> bit & 1 ? std::int64_t{0} : otherwise; };
    const sizes n{.B = size(0, 2),
                  .H = size(1, 4),
                  .Hk = size(2, 2),
                  .L = size(3, 3),
                  .S = size(4, 5),
                  .E = size(5, 4),
                  .Ev = size(6, 3)};
    if (n.H > 0 && n.Hk == 0) continue;
    const auto x = make_inputs<TypeParam>(n);
    const score_arrays<TypeParam> arrays(n);
    for (const auto& [name, how] : arrays.calls()) {
      EXPECT_TRUE(right(x, how, true)) << name << ": " << n.to_string();
      EXPECT_TRUE(scores_right<TypeParam>(x.q, x.k, x.v, how, score_stage::biased)) << name << ": " << n.to_string();
      EXPECT_FALSE(make_plan({.type = dtype_of<TypeParam>, .q = x.q.shape(), .k = x.k.shape(), .v = x.v.shape()}, how)
                       .describe()
                       .empty());
    }
  }
}

TYPED_TEST(scores, may_be_wanted_beside_other_results_and_have_any_strides) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const score_arrays<TypeParam> arrays(n);
    for (const auto& [name, how] : arrays.calls()) {
      const auto alone = scores_of<TypeParam>(x.q, x.k, x.v, how, score_stage::biased);
      const auto want = compute(x, how, true);
      strided<TypeParam> placed(alone.shape(), {-n.H * n.L * n.S * 2, n.L * n.S * 2, -2, 2 * n.L});
      computed<TypeParam> all{tensor<TypeParam>(want.out.shape()), tensor<TypeParam>(want.lse.shape()),
                              tensor<TypeParam>(want.weights.shape())};
      attention(x.q, x.k, x.v, outputs{.out = all.out, .lse = all.lse, .weights = all.weights, .scores = placed.view()}, how);
      EXPECT_TRUE(same_bits(placed.values(), alone)) << name << ": " << n.to_string();
      EXPECT_TRUE(placed.gaps_are_intact()) << name;
      EXPECT_TRUE(same_bits(all, want)) << name << ": scores change nothing else";
    }
  }
}

}  // namespace
}  // namespace attend::test

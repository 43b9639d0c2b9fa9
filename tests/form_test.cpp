// Every compatibility function with every normalizer: both kernels against the reference, and numbers at the ends of ranges.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/form.hpp"

namespace attend::test {
namespace {

template <class T>
struct form : testing::Test {};
TYPED_TEST_SUITE(form, element_types);

/// Both kernels meet the reference; weights are asked of one of them, and so of both ways to a result.
template <class T>
void expect_right(const inputs<T>& x, options how, const std::string& what, bool weights = true) {
  const expectation expected(x.q, x.k, x.v, how, weights);
  for (const bool reproducible : {false, true}) {
    how.reproducible = reproducible;
    EXPECT_TRUE(expected.met_by(compute(x, how, weights)))
        << what << ", " << form_of(how) << (reproducible ? ", reproducible" : "");
  }
}

/// Sizes at which tiles, blocks of lanes, chunks and the choice of the kernel turn over; odd widths, one number wide, none.
const std::vector<sizes> shapes = {{.B = 1, .H = 1, .Hk = 1, .L = 1, .S = 1, .E = 1, .Ev = 1},
                                   {.B = 2, .H = 4, .Hk = 2, .L = 1, .S = 9, .E = 3, .Ev = 5},
                                   {.B = 1, .H = 2, .Hk = 1, .L = 5, .S = 7, .E = 0, .Ev = 3},
                                   {.B = 1, .H = 1, .Hk = 1, .L = 2, .S = 0, .E = 4, .Ev = 3},
                                   {.B = 1, .H = 4, .Hk = 2, .L = 3, .S = 300, .E = 17, .Ev = 33},
                                   {.B = 1, .H = 2, .Hk = 1, .L = 8, .S = 1100, .E = 3, .Ev = 5},
                                   {.B = 1, .H = 2, .Hk = 1, .L = 70, .S = 110, .E = 65, .Ev = 1},
                                   {.B = 1, .H = 1, .Hk = 1, .L = 33, .S = 200, .E = 1, .Ev = 33},
                                   {.B = 1, .H = 1, .Hk = 1, .L = 65, .S = quick() ? 200 : 1600, .E = 3, .Ev = 5}};

TYPED_TEST(form, is_the_references_in_every_shape_of_tiles) {
  for (const sizes& n : shapes) {
    const auto x = make_inputs<TypeParam>(n, 7);
    const auto w = normal<TypeParam>({n.E}, 8);
    for (const options& how : every_form(w)) expect_right(x, how, n.to_string(), n.S < 400);
  }
}

/// Few queries, and several blocks of lanes; keys in more than one tile.
const std::vector<sizes> masked_shapes = {{.B = 2, .H = 4, .Hk = 2, .L = 3, .S = 270, .E = 8, .Ev = 6},
                                          {.B = 2, .H = 2, .Hk = 1, .L = 70, .S = 110, .E = 5, .Ev = 7}};

TYPED_TEST(form, is_the_references_under_masks_of_every_kind) {
  for (const sizes& n : masked_shapes) {
    const auto x = make_inputs<TypeParam>(n, 9);
    const auto w = normal<TypeParam>({n.E}, 10);
    auto bias = normal<TypeParam>({n.H, n.L, n.S}, 11);
    random_source draw(12);
    for (TypeParam& value : bias)
      if (draw.coin(0.1)) value = static_cast<TypeParam>(-infinity);
    auto mask = coins({n.B, 1, n.L, n.S}, 13, 0.6);
    for (std::int64_t b = 0; b < n.B; ++b)
      for (std::int64_t j = 0; j < n.S; ++j) mask(b, 0, n.L / 2, j) = false;
    tensor<std::int64_t> lengths({n.B}), prefix({n.B});
    lengths(0) = n.S - 3, lengths(1) = n.S / 3;
    prefix(0) = 0, prefix(1) = 20;
    const std::vector<std::pair<const char*, options>> calls = {
        {"causal, bias", {.causal = true, .query_offset = lower_right, .bias = bias}},
        {"mask with an empty row", {.mask = mask}},
        {"lengths, prefix", {.causal = true, .query_offset = lower_right, .prefix = prefix, .key_lengths = lengths}},
        {"window, negative scale", {.window = {37, 11}, .query_offset = 30, .scale = -0.7}},
        {"mask, bias, scale", {.window = {{}, 90}, .query_offset = 3, .mask = mask, .bias = bias, .scale = 1.5}}};
    for (std::size_t i = 0; i < calls.size(); ++i) {
      std::size_t number = 0;
      for (const options& how : every_form(w, calls[i].second)) {
        if (quick() && number++ % calls.size() != i) continue;
        expect_right(x, how, std::string(calls[i].first) + ", " + n.to_string());
      }
    }
  }
}

TYPED_TEST(form, is_the_references_in_grouped_heads_of_either_layout) {
  for (const sizes& n : {sizes{.B = 2, .H = 6, .Hk = 2, .L = 2, .S = 40, .E = 9, .Ev = 5},
                         sizes{.B = 2, .H = 3, .Hk = 1, .L = 30, .S = 50, .E = 9, .Ev = 5}}) {
    const auto x = make_inputs<TypeParam>(n, 14, layout::blhd);
    const auto w = normal<TypeParam>({n.E}, 15);
    for (const options& how : every_form(w, {.layout = layout::blhd})) expect_right(x, how, n.to_string());
  }
}

TYPED_TEST(form, of_matrices_and_many_batch_axes_is_the_references) {
  const auto q = normal<TypeParam>({4, 6}, 16), k = normal<TypeParam>({9, 6}, 17), w = normal<TypeParam>({6}, 18);
  const auto many = normal<TypeParam>({2, 1, 2, 4, 6}, 19), shared = normal<TypeParam>({3, 1, 9, 6}, 20);
  for (const options& how : every_form(w)) {
    EXPECT_TRUE(as_reference(compute<TypeParam>(q, k, k, how, true), q, k, k, how)) << form_of(how);
    EXPECT_TRUE(as_reference(compute<TypeParam>(many, shared, shared, how, true), many, shared, shared, how)) << form_of(how);
  }
}

TYPED_TEST(form, without_an_allowed_key_is_zero) {
  for (const std::int64_t L : {1, 70}) {
    const auto x = make_inputs<TypeParam>({.L = L, .S = 20, .E = 4, .Ev = 3});
    const auto w = normal<TypeParam>({4}, 21);
    const bool none = false;
    const tensor_view<const bool> mask(&none, {L, 20}, {0, 0});
    for (const options& how : every_form(w, {.mask = mask})) {
      const auto y = compute(x, how, true);
      for (const TypeParam value : y.out) EXPECT_EQ(value, 0) << form_of(how);
      for (const TypeParam value : y.weights) EXPECT_EQ(value, 0) << form_of(how);
      for (const TypeParam value : y.lse) EXPECT_EQ(double(value), -infinity) << form_of(how);
    }
  }
}

TYPED_TEST(form, of_float32_weights_beside_wider_inputs_is_that_of_the_same_numbers) {
  const sizes n{.B = 1, .H = 2, .Hk = 1, .L = 20, .S = 50, .E = 9, .Ev = 4};
  const auto x = make_inputs<TypeParam>(n);
  const auto narrow = normal<float>({n.E}, 22);
  tensor<TypeParam> wide({n.E});
  std::copy(narrow.begin(), narrow.end(), wide.begin());
  for (const normalizer z : normalizers) {
    const auto y = compute(x, {.compatibility = additive(narrow), .normalizer = z}, true);
    EXPECT_TRUE(same_bits(y, compute(x, {.compatibility = additive(wide), .normalizer = z}, true))) << attend::name_of(z);
  }
}

TYPED_TEST(form, shares_are_zero_where_their_sum_is) {
  for (const std::int64_t L : {1, 70}) {
    auto x = make_inputs<TypeParam>({.L = L, .S = 30, .E = 4, .Ev = 3});
    for (const normalizer z : {normalizer::relu2, normalizer::abs}) {
      const auto zero = compute(x, {.compatibility = compatibility::none, .normalizer = z}, true);
      for (const TypeParam value : zero.out) EXPECT_EQ(value, 0);
      for (const TypeParam value : zero.weights) EXPECT_EQ(value, 0);
    }
    const auto below = compute(x, {.compatibility = compatibility::l1, .normalizer = normalizer::relu2}, true);
    for (const TypeParam value : below.out) EXPECT_EQ(value, 0) << "no distance is above 0";
    for (const TypeParam value : below.weights) EXPECT_EQ(value, 0);
    x.v(0, 0, 7, 1) = std::numeric_limits<TypeParam>::quiet_NaN();
    const options how{.compatibility = compatibility::l1, .normalizer = normalizer::relu2};
    EXPECT_TRUE(as_reference(compute(x, how), x.q, x.k, x.v, how)) << "a NaN that is allowed stays, even with weight 0";
  }
}

TYPED_TEST(form, shares_do_not_depend_on_the_size_of_scores) {
  const double far =
      std::is_same_v<TypeParam, float> ? 0x1p80 : 0x1p600;  // its square leaves the range, and so does that of 1/far
  for (const std::int64_t L : {1, 70}) {
    const auto x = make_inputs<TypeParam>({.L = L, .S = 300, .E = 4, .Ev = 3});
    const auto scores = normal<TypeParam>({L, 300}, 24);
    for (const normalizer z : {normalizer::relu2, normalizer::abs}) {
      options how{.bias = scores, .compatibility = compatibility::none, .normalizer = z};
      const expectation expected(x.q, x.k, x.v, how, true);
      for (const double factor : {far, 1 / far}) {
        auto scaled = copy(scores);
        for (TypeParam& score : scaled) score = static_cast<TypeParam>(score * factor);
        how.bias = scaled;
        for (const bool reproducible : {false, true}) {
          how.reproducible = reproducible;
          EXPECT_TRUE(expected.met_by(compute(x, how, true))) << attend::name_of(z) << ", L " << L << ", factor " << factor;
        }
        const auto truth = reference::attention(x.q, x.k, x.v, how, true);
        EXPECT_LE(std::abs(truth.out(0, 0, 0, 0) - expected.truth().out(0, 0, 0, 0)), 1e-14) << "the reference, too";
      }
    }
  }
}

TYPED_TEST(form, a_mean_is_finite_where_its_sum_is_not) {
  constexpr bool narrow = std::is_same_v<TypeParam, float>;
  const std::int64_t N = 1000;
  for (const std::int64_t L : {1, 70}) {
    auto x = make_inputs<TypeParam>({.L = L, .S = N, .E = 4, .Ev = 3});
    random_source draw(23);
    for (TypeParam& value : x.v) value = static_cast<TypeParam>((narrow ? 1e36 : 1e306) * (1 + draw.uniform()));
    const tensor<TypeParam> bias({N}, TypeParam(1)), more({N}, TypeParam(100));
    const options mean{.bias = bias, .compatibility = compatibility::none, .normalizer = normalizer::mean};
    options sum = mean, hundred = mean;
    sum.normalizer = normalizer::sum;
    hundred.bias = more;
    for (const bool reproducible : {false, true}) {
      options how = mean;
      how.reproducible = reproducible;
      const auto y = compute(x, how);
      for (const TypeParam value : y.out) EXPECT_TRUE(std::isfinite(value));
      EXPECT_TRUE(as_reference(y, x.q, x.k, x.v, how)) << L;
      sum.reproducible = hundred.reproducible = reproducible;
      EXPECT_EQ(double(compute(x, sum).out(0, 0, 0, 0)), infinity) << "the sum overflows";
      EXPECT_TRUE(right(x, hundred)) << "100 times the mean is still in range, " << L;
    }
  }
}

TYPED_TEST(form, a_sigmoid_of_any_score_is_between_0_and_1) {
  const std::int64_t S = 401;
  for (const std::int64_t L : {1, 70}) {
    const auto x = make_inputs<TypeParam>({.L = L, .S = S, .E = 2, .Ev = 3});
    tensor<TypeParam> bias({S});
    for (std::int64_t j = 0; j < S; ++j) bias(j) = static_cast<TypeParam>(5 * (j - 200));
    bias(0) = std::numeric_limits<TypeParam>::lowest(), bias(S - 1) = std::numeric_limits<TypeParam>::max();
    const options how{.bias = bias, .compatibility = compatibility::none, .normalizer = normalizer::sigmoid};
    const auto y = compute(x, how, true);
    EXPECT_TRUE(as_reference(y, x.q, x.k, x.v, how));
    for (const TypeParam weight : y.weights) EXPECT_TRUE(weight >= 0 && weight <= 1) << weight;
    EXPECT_EQ(y.weights(0, 0, L - 1, 0), 0);
    EXPECT_EQ(y.weights(0, 0, L - 1, 200), TypeParam(0.5));
    EXPECT_EQ(y.weights(0, 0, L - 1, S - 1), 1);
  }
}

}  // namespace
}  // namespace attend::test

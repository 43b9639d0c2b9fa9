// Single scores of the compatibility functions: how exact they are, and vectors at the ends of the range of their type.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/form.hpp"

namespace attend::test {
namespace {

template <class T>
struct scores_of : testing::Test {
  static constexpr bool narrow = std::is_same_v<T, float>;
  static constexpr double ulp = std::numeric_limits<T>::epsilon();
};
TYPED_TEST_SUITE(scores_of, element_types);

/// From 1e-30 to 50 and back below 0, and 0.
template <class T>
tensor<T> arguments() {
  const std::int64_t each = quick() ? 300 : 3000;
  tensor<T> x({2 * each + 1});
  for (std::int64_t i = 0; i < each; ++i) {
    const double at = static_cast<double>(i) / static_cast<double>(each - 1);
    x(i) = static_cast<T>(1e-30 * std::pow(5e31, at));
    x(2 * each - i) = -x(i);
  }
  return x;
}

TYPED_TEST(scores_of, additive_have_every_digit_of_tanh) {
  const auto x = arguments<TypeParam>();
  const std::int64_t N = x.size();
  const tensor<TypeParam> one({1}, TypeParam(1)), zeros({N}), ones({N}, TypeParam(1));
  const options how{.compatibility = additive(one), .normalizer = normalizer::sum};
  const auto expect_tanh = [&](const tensor<TypeParam>& y, const char* what) {
    ASSERT_EQ(y.size(), N);
    for (std::int64_t i = 0; i < N; ++i) {
      const double should = std::tanh(static_cast<double>(x(i)));
      ASSERT_LE(std::abs(static_cast<double>(y.data()[i]) - should), 4 * this->ulp * std::abs(should))
          << what << ", tanh(" << x(i) << ") = " << y.data()[i];
    }
  };
  // One query and one key a sequence; a query for each; one query and a key for each.
  const auto view = [&](const tensor<TypeParam>& t, const extents& shape) {
    return tensor_view<const TypeParam>(t.data(), shape);
  };
  const extents sequences{N, 1, 1, 1}, rows{1, 1, N, 1}, single{1, 1, 1, 1};
  expect_tanh(compute<TypeParam>(view(x, sequences), view(zeros, sequences), view(ones, sequences), how).out,
              "few queries, of q");
  expect_tanh(compute<TypeParam>(view(zeros, sequences), view(x, sequences), view(ones, sequences), how).out,
              "few queries, of k");
  expect_tanh(compute<TypeParam>(view(x, rows), view(zeros, single), view(ones, single), how).out, "many queries");
  expect_tanh(compute<TypeParam>(view(zeros, single), view(x, rows), view(zeros, rows), how, true).weights, "weights");
}

TYPED_TEST(scores_of, additive_end_at_plus_and_minus_1) {
  constexpr TypeParam inf = std::numeric_limits<TypeParam>::infinity(), most = std::numeric_limits<TypeParam>::max();
  for (const std::int64_t L : {1, 70}) {
    const tensor<TypeParam> q({L, 1}), one({1}, TypeParam(1));
    tensor<TypeParam> k({6, 1}), v({6, 1});
    k(0, 0) = inf, k(1, 0) = -inf, k(2, 0) = most, k(3, 0) = -most, k(4, 0) = 1000, k(5, 0) = -1000;
    const auto y = compute<TypeParam>(q, k, v, {.compatibility = additive(one), .normalizer = normalizer::sum}, true);
    for (std::int64_t j = 0; j < 6; ++j) EXPECT_EQ(y.weights(L - 1, j), j % 2 == 0 ? 1 : -1) << j;
  }
}

/// Rows times powers of two: a cosine does not know of them.
template <class T>
tensor<T> magnified(const tensor<T>& x, const std::vector<double>& factors) {
  tensor<T> y = copy(x);
  const std::int64_t width = x.shape()[x.shape().rank() - 1];
  for (std::int64_t at = 0; at < y.size(); ++at)
    y.data()[at] = static_cast<T>(y.data()[at] * factors[static_cast<std::size_t>(at / width) % factors.size()]);
  return y;
}

TYPED_TEST(scores_of, cosine_do_not_depend_on_lengths) {
  const double far = this->narrow ? 0x1p100 : 0x1p700;  // squares of such numbers leave the range
  const std::vector<std::vector<double>> scalings = {{far}, {1 / far}, {far, 1, 1 / far}, {1 / far, far}};
  for (const std::int64_t L : {1, 5, 70}) {
    const sizes n{.B = 1, .H = 2, .Hk = 1, .L = L, .S = 120, .E = 33, .Ev = 6};
    const auto x = make_inputs<TypeParam>(n, 24);
    for (const normalizer z : normalizers) {
      options how{.compatibility = compatibility::cosine, .normalizer = z};
      const expectation expected(x.q, x.k, x.v, how, true);
      for (std::size_t i = 0; i < scalings.size(); ++i) {
        const auto q = magnified(x.q, scalings[i]), k = magnified(x.k, scalings[(i + 1) % scalings.size()]);
        for (const bool reproducible : {false, true}) {
          how.reproducible = reproducible;
          EXPECT_TRUE(expected.met_by(compute<TypeParam>(q, k, x.v, how, true)))
              << attend::name_of(z) << ", scaling " << i << ", L " << L << (reproducible ? ", reproducible" : "");
        }
      }
    }
  }
}

TYPED_TEST(scores_of, cosine_of_vectors_with_large_and_small_elements_are_right) {
  const auto large = static_cast<TypeParam>(this->narrow ? 1e30 : 1e200), small = static_cast<TypeParam>(1 / large);
  for (const std::int64_t L : {1, 70}) {
    tensor<TypeParam> q({L, 3}), k({4, 3});
    const auto v = normal<TypeParam>({4, 2}, 25);
    for (std::int64_t i = 0; i < L; ++i) q(i, 0) = large, q(i, 1) = static_cast<TypeParam>(i), q(i, 2) = small;
    k(0, 0) = small, k(1, 1) = large, k(2, 2) = 1, k(3, 0) = large, k(3, 1) = -large;
    const options how{.compatibility = compatibility::cosine, .normalizer = normalizer::sum};
    const auto y = compute<TypeParam>(q, k, v, how, true);
    EXPECT_TRUE(as_reference(y, q, k, v, how)) << L;
    EXPECT_NEAR(double(y.weights(0, 0)), 1, 4 * this->ulp);
    EXPECT_NEAR(double(y.weights(0, 3)), std::sqrt(0.5), 4 * this->ulp);
  }
}

TYPED_TEST(scores_of, cosine_of_zero_vectors_are_0) {
  for (const std::int64_t L : {1, 5, 70}) {
    const sizes n{.B = 1, .H = 2, .Hk = 1, .L = L, .S = 110, .E = 5, .Ev = 3};
    auto x = make_inputs<TypeParam>(n, 26);
    for (std::int64_t d = 0; d < n.E; ++d) {
      x.q(0, 1, L / 2, d) = 0;
      for (std::int64_t j = 0; j < n.S; j += 7) x.k(0, 0, j, d) = d % 2 == 0 ? TypeParam(0) : TypeParam(-0.0);
    }
    for (const normalizer z : normalizers) {
      const options how{.compatibility = compatibility::cosine, .normalizer = z};
      EXPECT_TRUE(right(x, how, true)) << attend::name_of(z) << ", L " << L;
    }
    const auto y = compute(x, {.compatibility = compatibility::cosine, .normalizer = normalizer::sum}, true);
    for (std::int64_t j = 0; j < n.S; ++j) EXPECT_EQ(y.weights(0, 1, L / 2, j), 0);
    for (std::int64_t j = 0; j < n.S; j += 7) EXPECT_EQ(y.weights(0, 0, L / 2, j), 0);
  }
}

TYPED_TEST(scores_of, distances_between_equal_vectors_are_0) {
  for (const std::int64_t L : {1, 70}) {
    const auto rows = normal<TypeParam>({70, 7}, 27, 1000);
    const tensor_view<const TypeParam> q(rows.data(), {L, 7});
    for (const compatibility& f : {gaussian(0.001), compatibility::l1}) {
      const auto y = compute<TypeParam>(q, rows, rows, {.compatibility = f, .normalizer = normalizer::sum}, true);
      for (std::int64_t i = 0; i < L; ++i) EXPECT_EQ(y.weights(i, i), 0) << attend::name_of(f.kind);
    }
  }
}

TYPED_TEST(scores_of, distances_between_near_vectors_keep_their_digits) {
  // Long vectors, close together: a distance taken from |q|^2 + |k|^2 - 2 q . k would lose every digit.
  for (const std::int64_t L : {1, 70}) {
    auto x = make_inputs<TypeParam>({.L = L, .S = 100, .E = 8, .Ev = 3}, 28);
    for (TypeParam& value : x.q) value = static_cast<TypeParam>(1000 + value / 8);
    for (TypeParam& value : x.k) value = static_cast<TypeParam>(1000 + value / 8);
    for (const normalizer z : normalizers) {
      for (const compatibility& f : {gaussian(0.2), compatibility::l1})
        EXPECT_TRUE(right(x, {.compatibility = f, .normalizer = z}, true))
            << attend::name_of(f.kind) << ", " << attend::name_of(z);
    }
  }
}

TYPED_TEST(scores_of, gaussian_are_right_for_any_finite_sigma) {
  for (const std::int64_t L : {1, 70}) {
    for (const double sigma : {1e-3, 1.0, 1e3, 1e15, 1e25, 1e-15, 1e-25}) {
      auto x = make_inputs<TypeParam>({.L = L, .S = 50, .E = 4, .Ev = 3}, 29);
      for (tensor<TypeParam>* const t : {&x.q, &x.k})
        for (TypeParam& value : *t) value = static_cast<TypeParam>(value * sigma);
      for (const normalizer z : normalizers)
        EXPECT_TRUE(right(x, {.compatibility = gaussian(sigma), .normalizer = z}, true)) << sigma << ", " << attend::name_of(z);
    }
  }
}

TYPED_TEST(scores_of, any_compatibility_take_any_finite_scale) {
  for (const std::int64_t L : {1, 70}) {
    const auto x = make_inputs<TypeParam>({.L = L, .S = 100, .E = 6, .Ev = 3}, 30);
    const auto w = normal<TypeParam>({6}, 31);
    for (const options& form : every_form(w)) {
      for (const double scale : {0.0, -1.0, 1e-30, 1.0 / 3}) {
        options how = form;
        how.scale = scale;
        EXPECT_TRUE(right(x, how, true)) << form_of(how) << ", scale " << scale << ", L " << L;
      }
    }
  }
}

}  // namespace
}  // namespace attend::test

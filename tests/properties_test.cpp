// What attention must satisfy whatever the numbers are: orders of keys, splits of keys, shifts of scores.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/compute.hpp"
#include "support/memory.hpp"

namespace attend::test {
namespace {

template <class T>
struct properties : testing::Test {};
TYPED_TEST_SUITE(properties, element_types);

const std::vector<sizes> problems = {{.B = 2, .H = 4, .Hk = 2, .L = 2, .S = 333, .E = 12, .Ev = 10},
                                     {.B = 1, .H = 2, .Hk = 1, .L = 80, .S = 250, .E = 16, .Ev = 16}};

template <class T>
testing::AssertionResult close(const tensor<T>& got, const tensor<T>& want, double times, double size) {
  tensor<double> truth(want.shape());
  std::copy(want.begin(), want.end(), truth.begin());
  return near(got, truth, [&](std::int64_t) { return times * relative_bound<T> * size; });
}

/// K or V with its keys in this order.
template <class T>
tensor<T> gathered(const tensor<T>& x, const std::vector<std::int64_t>& order) {
  extents shape = x.shape();
  shape[2] = static_cast<std::int64_t>(order.size());
  tensor<T> y(shape);
  for_each_index(shape, [&](const extents& at) {
    y(at[0], at[1], at[2], at[3]) = x(at[0], at[1], order[static_cast<std::size_t>(at[2])], at[3]);
  });
  return y;
}

TYPED_TEST(properties, the_order_of_the_keys_does_not_matter) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    std::vector<std::int64_t> order(static_cast<std::size_t>(n.S));
    random_source source(4);
    for (std::int64_t j = 0; j < n.S; ++j) order[static_cast<std::size_t>(j)] = j;
    for (std::int64_t j = n.S - 1; j > 0; --j)
      std::swap(order[static_cast<std::size_t>(j)], order[static_cast<std::size_t>(source.between(0, j))]);
    const auto a = compute(x), b = compute<TypeParam>(x.q, gathered(x.k, order), gathered(x.v, order));
    EXPECT_TRUE(close(a.out, b.out, 2, largest(x.v))) << n.to_string();
    EXPECT_TRUE(close(a.lse, b.lse, 2, std::max(1.0, largest(b.lse)))) << n.to_string();
  }
}

TYPED_TEST(properties, parts_over_disjoint_keys_merge_by_their_lse) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    auto mask = coins({n.L, n.S}, 4, 0.5);
    for (std::int64_t j = 0; j < n.S; ++j) mask(n.L - 1, j) = j < 3;  // empty in most parts, not in the whole
    const auto whole = compute(x, {.mask = mask});
    for (const std::vector<std::int64_t>& cuts :
         std::vector<std::vector<std::int64_t>>{{0, 1, n.S}, {0, 96, 100, n.S}, {0, 0, 7, 200, n.S}}) {
      tensor<double> merged(whole.out.shape()), lse(whole.lse.shape(), -infinity);
      for (std::size_t part = 0; part + 1 < cuts.size(); ++part) {
        std::vector<std::int64_t> keys;
        for (std::int64_t j = cuts[part]; j < cuts[part + 1]; ++j) keys.push_back(j);
        const tensor_view<const bool> seen(mask.data() + cuts[part], {n.L, cuts[part + 1] - cuts[part]}, {n.S, 1});
        const auto one = compute<TypeParam>(x.q, gathered(x.k, keys), gathered(x.v, keys), {.mask = seen});
        for (std::int64_t row = 0; row < lse.size(); ++row) {
          const double before = lse.data()[row], own = double(one.lse.data()[row]);
          if (own == -infinity) continue;  // an empty part adds nothing
          const double top = std::max(before, own), sum = std::exp(before - top) + std::exp(own - top);
          for (std::int64_t c = 0; c < n.Ev; ++c) {
            double& y = merged.data()[row * n.Ev + c];
            y = (std::exp(before - top) * y + std::exp(own - top) * double(one.out.data()[row * n.Ev + c])) / sum;
          }
          lse.data()[row] = top + std::log(sum);
        }
      }
      EXPECT_TRUE(near(whole.out, merged, [&](std::int64_t) { return 3 * relative_bound<TypeParam> * largest(x.v); }))
          << n.to_string();
      EXPECT_TRUE(lse_near(whole.lse, lse)) << n.to_string();
    }
  }
}

TYPED_TEST(properties, a_constant_added_to_a_row_of_scores_moves_the_lse_alone) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const auto plain = compute(x);
    const tensor<TypeParam> bias({n.L, 1}, TypeParam(3.25));
    const auto moved = compute(x, {.bias = bias});
    EXPECT_TRUE(close(moved.out, plain.out, 2, largest(x.v))) << n.to_string();
    tensor<double> lse(plain.lse.shape());
    for (std::int64_t i = 0; i < lse.size(); ++i) lse.data()[i] = double(plain.lse.data()[i]) + 3.25;
    EXPECT_TRUE(lse_near(moved.lse, lse)) << n.to_string();
  }
}

TYPED_TEST(properties, a_scaled_query_is_a_scale) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    tensor<TypeParam> q = copy(x.q);
    for (TypeParam& value : q) value = TypeParam(4 * double(value));  // exact
    EXPECT_TRUE(close(compute<TypeParam>(q, x.k, x.v, {.scale = 0.125}).out, compute(x, {.scale = 0.5}).out, 2, largest(x.v)));
  }
}

TYPED_TEST(properties, doubled_keys_change_nothing_but_the_lse) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    std::vector<std::int64_t> twice;
    for (int round = 0; round < 2; ++round)
      for (std::int64_t j = 0; j < n.S; ++j) twice.push_back(j);
    const auto one = compute(x), two = compute<TypeParam>(x.q, gathered(x.k, twice), gathered(x.v, twice));
    EXPECT_TRUE(close(two.out, one.out, 2, largest(x.v)));
    for (std::int64_t i = 0; i < one.lse.size(); ++i)
      EXPECT_NEAR(double(two.lse.data()[i]), double(one.lse.data()[i]) + std::log(2.0), 5 * relative_bound<TypeParam>);
  }
}

TYPED_TEST(properties, equal_values_come_back) {
  for (const sizes& n : problems) {
    auto x = make_inputs<TypeParam>(n);
    std::fill(x.v.begin(), x.v.end(), TypeParam(1));
    for (const auto value : compute(x).out) EXPECT_NEAR(double(value), 1, relative_bound<TypeParam>);
  }
}

TYPED_TEST(properties, values_may_be_their_own_one_hot_weights) {
  for (const sizes& n :
       {sizes{.H = 1, .L = 3, .S = 40, .E = 8, .Ev = 40}, sizes{.H = 1, .L = 70, .S = 100, .E = 8, .Ev = 100}}) {
    auto x = make_inputs<TypeParam>(n);
    for_each_index(x.v.shape(),
                   [&](const extents& at) { x.v(at[0], at[1], at[2], at[3]) = TypeParam(at[2] == at[3] ? 1 : 0); });
    const auto y = compute(x, {}, true);
    EXPECT_TRUE(close(y.out, y.weights, 1, 1)) << "the output of the identity is the weights";
  }
}

TYPED_TEST(properties, one_key_gives_its_value_bit_for_bit) {
  for (const std::int64_t L : {1, 3, 80}) {
    const auto x = make_inputs<TypeParam>({.B = 2, .H = 2, .Hk = 2, .L = L, .S = L, .E = 6, .Ev = 33});
    const auto y = compute(x, {.window = {0, 0}});
    EXPECT_TRUE(same_bits(y.out, x.v));
  }
}

}  // namespace
}  // namespace attend::test

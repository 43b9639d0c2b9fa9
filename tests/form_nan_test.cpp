// The NaN contract for every compatibility function and normalizer: excluded means not there, allowed means there.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/form.hpp"
#include "support/poison.hpp"

namespace attend::test {
namespace {

template <class T>
struct nan_of_forms : testing::Test {
  static constexpr T nan = std::numeric_limits<T>::quiet_NaN(), inf = std::numeric_limits<T>::infinity();
  static constexpr T poisons[] = {nan, inf, -inf};
};
TYPED_TEST_SUITE(nan_of_forms, element_types);

/// Both kernels; keys within one tile and across tiles.
const std::vector<sizes> problems = {{.B = 2, .H = 2, .Hk = 1, .L = 1, .S = 7, .E = 5, .Ev = 6},
                                     {.B = 2, .H = 4, .Hk = 2, .L = 3, .S = 300, .E = 8, .Ev = 4},
                                     {.B = 2, .H = 2, .Hk = 1, .L = 70, .S = 100, .E = 4, .Ev = 9}};

/// Every form with every kernel gives the same bits, with weights, whether the excluded keys hold numbers or poison.
template <class T>
void expect_no_leak(const inputs<T>& x, const options& clean, const inputs<T>& y, const options& dirty,
                    const std::string& what) {
  const auto w = normal<T>({x.q.shape()[3]}, 40);
  const auto of_x = every_form(w, clean), of_y = every_form(w, dirty);
  for (std::size_t i = 0; i < of_x.size(); ++i) {
    for (const bool reproducible : {false, true}) {
      options a = of_x[i], b = of_y[i];
      a.reproducible = b.reproducible = reproducible;
      EXPECT_TRUE(same_bits(compute(x, a, true), compute(y, b, true)))
          << what << ", " << form_of(a) << ", L " << x.q.shape()[2] << (reproducible ? ", reproducible" : "");
      if (testing::Test::HasFailure()) return;  // one says enough
    }
  }
}

TYPED_TEST(nan_of_forms, keys_that_a_mask_excludes_leak_nothing) {
  std::vector<sizes> all = problems;
  if (!quick()) all.push_back({.B = 2, .H = 2, .Hk = 1, .L = 20, .S = 1600, .E = 3, .Ev = 4});  // across chunks
  for (const sizes& n : all) {
    const auto x = make_inputs<TypeParam>(n);
    auto mask = coins({n.S}, 3, 0.6);
    mask(0) = false, mask(n.S - 1) = false;
    for (const TypeParam poison : this->poisons) {
      const auto y = poisoned(x, poison, [&](auto, auto j) { return !mask(j); });
      expect_no_leak(x, {.mask = mask}, y, {.mask = mask}, "mask");
    }
  }
}

TYPED_TEST(nan_of_forms, keys_that_minus_infinity_excludes_leak_nothing) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    auto bias = normal<TypeParam>({n.L, n.S}, 4), table = normal<TypeParam>({n.H, 7}, 5);
    for (std::int64_t i = 0; i < n.L; ++i)
      for (std::int64_t j = 0; j < n.S; j += 3) bias(i, j) = -this->inf;
    for (std::int64_t h = 0; h < n.H; ++h) table(h, 6) = -this->inf;  // keys at least 3 after the query
    for (const TypeParam poison : this->poisons) {
      const auto by_bias = poisoned(x, poison, [&](auto, auto j) { return j % 3 == 0; });
      expect_no_leak(x, {.bias = bias}, by_bias, {.bias = bias}, "bias");
      const auto by_table = poisoned(x, poison, [&](auto, auto j) { return j >= n.L - 1 - 1 + 3; });
      const options how{.query_offset = -1, .relative = table};
      expect_no_leak(x, how, by_table, how, "relative");
    }
  }
}

TYPED_TEST(nan_of_forms, keys_that_structure_excludes_leak_nothing) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    tensor<std::int64_t> lengths({2});
    lengths(0) = n.S / 2, lengths(1) = n.S - 1;
    const options causal{.causal = true, .query_offset = 2, .prefix = 1, .key_lengths = lengths};
    for (const TypeParam poison : this->poisons) {
      const auto y = poisoned(x, poison, [&](auto b, auto j) { return j >= lengths(b) || j > n.L - 1 + 2; });
      expect_no_leak(x, causal, y, causal, "causal, prefix, lengths");
    }
  }
}

TYPED_TEST(nan_of_forms, what_is_added_to_an_excluded_pair_leaks_nothing) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const auto mask = coins({n.L, n.S}, 6, 0.6);
    const auto bias = normal<TypeParam>({n.L, n.S}, 7);
    auto table = normal<TypeParam>({1, 7}, 8);
    for (const TypeParam poison : this->poisons) {
      auto hidden = copy(bias);
      for (std::int64_t at = 0; at < hidden.size(); ++at)
        if (!mask.data()[at]) hidden.data()[at] = poison;
      expect_no_leak(x, {.mask = mask, .bias = bias}, x, {.mask = mask, .bias = hidden}, "bias behind a mask");

      auto past = copy(table);
      for (std::int64_t at = 4; at < 7; ++at) past(0, at) = poison;
      const options seen{.causal = true, .query_offset = 3, .relative = table},
          unseen{.causal = true, .query_offset = 3, .relative = past};
      expect_no_leak(x, seen, x, unseen, "relative behind causal");
    }
  }
}

TYPED_TEST(nan_of_forms, minus_infinity_excludes_whatever_else_is_added) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    auto bias = normal<TypeParam>({n.L, n.S}, 9), table = normal<TypeParam>({1, 5}, 10);
    table(0, 4) = -this->inf;  // offsets from 2 on
    const options clean{.query_offset = upper_left, .bias = bias, .relative = table};
    for (const TypeParam poison : {this->nan, this->inf}) {
      auto hidden = copy(bias);
      for (std::int64_t i = 0; i < n.L; ++i)
        for (std::int64_t j = i + 2; j < n.S; ++j) hidden(i, j) = poison;
      expect_no_leak(x, clean, x, {.query_offset = upper_left, .bias = hidden, .relative = table}, "table over bias");

      auto cut = copy(bias);
      for (std::int64_t i = 0; i < n.L; ++i)
        for (std::int64_t j = 0; j < n.S; ++j)
          if (j - i >= 2) cut(i, j) = -this->inf;
      auto wild = copy(table), tame = copy(table);
      wild(0, 4) = poison, tame(0, 4) = 0;
      expect_no_leak(x, {.query_offset = upper_left, .bias = cut, .relative = tame}, x,
                     {.query_offset = upper_left, .bias = cut, .relative = wild}, "bias over table");
    }
  }
}

TYPED_TEST(nan_of_forms, a_nan_query_is_a_nan_row_and_no_other) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const auto w = normal<TypeParam>({n.E}, 41);
    inputs<TypeParam> y{copy(x.q), copy(x.k), copy(x.v)};
    const std::int64_t i = n.L / 2;
    y.q(1, 0, i, n.E - 1) = this->nan;
    for (const options& how : every_form(w)) {
      const auto clean = compute(x, how), dirty = compute(y, how);
      const bool reads = how.compatibility.kind != compatibility_kind::none;
      for (std::int64_t at = 0; at < clean.out.size(); ++at) {
        if (reads && at / n.Ev == n.H * n.L + i) {  // the row of batch 1, head 0
          ASSERT_TRUE(std::isnan(dirty.out.data()[at])) << form_of(how) << ", " << n.to_string();
        } else {
          ASSERT_EQ(dirty.out.data()[at], clean.out.data()[at]) << form_of(how) << ", " << n.to_string();
        }
      }
      EXPECT_TRUE(as_reference(dirty, y.q, y.k, y.v, how)) << form_of(how) << ", " << n.to_string();
    }
  }
}

TYPED_TEST(nan_of_forms, allowed_nan_and_infinity_are_the_references) {
  for (sizes n : problems) {
    n.B = 1;
    const auto w = normal<TypeParam>({n.E}, 42);
    const std::int64_t j = n.S / 2;
    for (const TypeParam poison : this->poisons) {
      auto in_key = make_inputs<TypeParam>(n), in_value = make_inputs<TypeParam>(n), x = make_inputs<TypeParam>(n);
      in_key.k(0, 0, j, n.E / 2) = poison;
      in_value.v(0, 0, j, n.Ev / 2) = poison;
      tensor<TypeParam> bias({n.H, n.L, n.S}, TypeParam(0.125));  // no score of `none` is 0: 0 times infinity is NaN
      bias(n.H - 1, n.L - 1, j) = poison;
      const auto expect_right = [&](const inputs<TypeParam>& y, options how, const char* where, bool weights) {
        const expectation expected(y.q, y.k, y.v, how, weights);
        for (const bool reproducible : {false, true}) {
          how.reproducible = reproducible;
          EXPECT_TRUE(expected.met_by(compute(y, how, weights))) << where << ", " << form_of(how) << ", " << n.to_string()
                                                                 << ", " << poison << (reproducible ? ", reproducible" : "");
        }
      };
      for (options how : every_form(w)) {
        expect_right(in_key, how, "key", true);
        expect_right(in_value, how, "value", false);
        how.bias = bias;
        expect_right(x, how, "bias", false);
      }
    }
  }
}

TYPED_TEST(nan_of_forms, distances_that_are_infinite_exclude) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    auto far = poisoned(x, this->nan, [](auto, auto j) { return j % 4 == 1; });  // V keeps it
    tensor<bool> mask({n.S}, true);
    for (std::int64_t j = 1; j < n.S; j += 4) {
      mask(j) = false;
      for (std::int64_t b = 0; b < n.B; ++b)
        for (std::int64_t h = 0; h < n.Hk; ++h)
          for (std::int64_t d = 0; d < n.E; ++d) far.k(b, h, j, d) = d == 0 ? -this->inf : TypeParam(1);
    }
    for (const compatibility& f : {gaussian(2), compatibility::l1}) {
      for (const normalizer z : normalizers) {
        const options how{.compatibility = f, .normalizer = z}, masked{.mask = mask, .compatibility = f, .normalizer = z};
        EXPECT_TRUE(same_bits(compute(far, how, true), compute(x, masked, true))) << form_of(how) << ", " << n.to_string();
      }
    }
  }
}

TYPED_TEST(nan_of_forms, none_reads_neither_queries_nor_keys) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const auto bias = normal<TypeParam>({n.H, n.L, n.S}, 43);
    inputs<TypeParam> y{tensor<TypeParam>(x.q.shape(), this->nan), tensor<TypeParam>(x.k.shape(), this->nan), copy(x.v)};
    for (const normalizer z : normalizers) {
      const options how{.bias = bias, .compatibility = compatibility::none, .normalizer = z};
      EXPECT_TRUE(same_bits(compute(x, how, true), compute(y, how, true))) << attend::name_of(z) << ", " << n.to_string();
      EXPECT_TRUE(right(y, how)) << attend::name_of(z) << ", " << n.to_string();
    }
  }
}

}  // namespace
}  // namespace attend::test

// The promises of equal bits, for every compatibility function and normalizer.
#include <gtest/gtest.h>

#include <vector>

#include "support/form.hpp"
#include "support/parts.hpp"

namespace attend::test {
namespace {

template <class T>
struct bits_of_forms : testing::Test {};
TYPED_TEST_SUITE(bits_of_forms, element_types);

/// Few queries with keys split over threads, one block of lanes, several.
const std::vector<sizes> problems = {{.B = 2, .H = 4, .Hk = 2, .L = 1, .S = 2200, .E = 5, .Ev = 6},
                                     {.B = 2, .H = 2, .Hk = 2, .L = 5, .S = 300, .E = 9, .Ev = 8},
                                     {.B = 1, .H = 2, .Hk = 1, .L = 70, .S = quick() ? 130 : 1700, .E = 3, .Ev = 3}};

template <class T>
tensor<T> additive_weights(const sizes& n) {
  return normal<T>({n.E}, 50);
}

TYPED_TEST(bits_of_forms, do_not_depend_on_threads) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const auto w = additive_weights<TypeParam>(n);
    for (options how : every_form(w, {.causal = true, .query_offset = lower_right})) {
      how.threads = 1;
      const auto one = compute(x, how, true);
      for (const int threads : {2, 3, 7}) {
        how.threads = threads;
        EXPECT_TRUE(same_bits(compute(x, how, true), one)) << form_of(how) << ", " << threads << " threads, " << n.to_string();
      }
    }
  }
}

TYPED_TEST(bits_of_forms, do_not_depend_on_the_batch_or_other_heads) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const auto w = additive_weights<TypeParam>(n);
    const auto table = normal<TypeParam>({n.H, 9}, 51);
    tensor<std::int64_t> lengths({n.B});
    for (std::int64_t b = 0; b < n.B; ++b) lengths(b) = n.S - 40 * b;
    for (const options& form : every_form(w, {.query_offset = 3, .relative = table})) {
      options how = form;
      how.key_lengths = lengths;
      const auto whole = compute(x, how, true);
      const std::int64_t b = n.B - 1, group = n.H / n.Hk;
      how.key_lengths = lengths(b);
      const auto one = compute<TypeParam>(part(x.q, 0, b, 1), part(x.k, 0, b, 1), part(x.v, 0, b, 1), how, true);
      EXPECT_TRUE(is_part(one.out, whole.out, 0, b)) << form_of(how) << ", " << n.to_string();
      EXPECT_TRUE(is_part(one.weights, whole.weights, 0, b)) << form_of(how) << ", " << n.to_string();
      how.key_lengths = lengths;
      how.relative = part(table, 0, n.H - group, group);
      const auto head =
          compute<TypeParam>(part(x.q, 1, n.H - group, group), part(x.k, 1, n.Hk - 1, 1), part(x.v, 1, n.Hk - 1, 1), how);
      EXPECT_TRUE(is_part(head.out, whole.out, 1, n.H - group)) << form_of(how) << ", " << n.to_string();
    }
  }
}

TYPED_TEST(bits_of_forms, are_those_of_every_form_of_a_mask) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const auto w = additive_weights<TypeParam>(n);
    // A window of 20 before each query as structure, booleans, a bias and a table of offsets.
    const std::int64_t first = n.S / 2;
    constexpr auto excluded = static_cast<TypeParam>(-infinity);
    tensor<bool> mask({n.L, n.S});
    tensor<TypeParam> bias({n.L, n.S}, excluded), table({1, 43}, excluded);
    for (std::int64_t i = 0; i < n.L; ++i)
      for (std::int64_t j = 0; j < n.S; ++j)
        if (j <= i + first && j >= i + first - 20) mask(i, j) = true, bias(i, j) = 0;
    for (std::int64_t offset = -20; offset <= 0; ++offset) table(0, 21 + offset) = 0;
    for (const bool reproducible : {false, true}) {
      for (const options& form : every_form(w, {.reproducible = reproducible})) {
        options how = form;
        how.query_offset = first;
        how.causal = true, how.window = {20, {}};
        const auto structured = compute(x, how, true);
        how.causal = false, how.window = {};
        how.mask = mask;
        EXPECT_TRUE(same_bits(compute(x, how, true), structured)) << "boolean, " << form_of(how) << ", " << n.to_string();
        how.mask = {};
        how.bias = bias;
        EXPECT_TRUE(same_bits(compute(x, how, true), structured)) << "-inf, " << form_of(how) << ", " << n.to_string();
        how.bias = {};
        how.relative = table;
        EXPECT_TRUE(same_bits(compute(x, how, true), structured)) << "table, " << form_of(how) << ", " << n.to_string();
      }
    }
  }
}

TYPED_TEST(bits_of_forms, do_not_change_with_a_mask_that_excludes_nothing) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const auto w = additive_weights<TypeParam>(n);
    const tensor<bool> mask({n.L, n.S}, true);
    for (options how : every_form(w)) {
      const auto want = compute(x, how, true);
      how.mask = mask;
      EXPECT_TRUE(same_bits(compute(x, how, true), want)) << form_of(how) << ", " << n.to_string();
      how.mask = {};
      how.window = {n.S, n.S}, how.query_offset = upper_left;
      EXPECT_TRUE(same_bits(compute(x, how, true), want)) << form_of(how) << ", " << n.to_string();
    }
  }
}

TYPED_TEST(bits_of_forms, do_not_change_with_keys_that_are_hidden) {
  for (const std::int64_t L : {1, 70}) {
    const std::int64_t most = quick() ? 400 : 2000;
    const auto x = make_inputs<TypeParam>({.B = 1, .H = 2, .Hk = 1, .L = L, .S = most, .E = 4, .Ev = 3});
    const auto w = normal<TypeParam>({4}, 52), table = normal<TypeParam>({1, 11}, 53);
    for (const std::int64_t seen : {std::int64_t{97}, most - 300}) {
      for (const options& how : every_form(w, {.causal = true, .query_offset = seen - L, .relative = table})) {
        const auto first = compute<TypeParam>(x.q, part(x.k, 2, 0, seen), part(x.v, 2, 0, seen), how);
        for (const std::int64_t S : {seen + 1, most})
          EXPECT_TRUE(same_bits(compute<TypeParam>(x.q, part(x.k, 2, 0, S), part(x.v, 2, 0, S), how), first))
              << form_of(how) << ", " << S << " keys, " << seen << " seen";
        options cut = how;
        cut.key_lengths = seen;
        EXPECT_TRUE(same_bits(compute<TypeParam>(x.q, x.k, x.v, cut), first)) << form_of(how) << ", length " << seen;
      }
    }
  }
}

TYPED_TEST(bits_of_forms, are_those_of_prefill_in_pieces_where_reproducible) {
  const sizes n{.B = 2, .H = 4, .Hk = 2, .L = 200, .S = 200, .E = 6, .Ev = 4};
  const auto x = make_inputs<TypeParam>(n);
  const auto w = normal<TypeParam>({n.E}, 54), table = normal<TypeParam>({n.H, 31}, 55);
  for (options how : every_form(w, {.causal = true, .window = {90, {}}, .relative = table, .reproducible = true})) {
    const auto whole = compute(x, how);
    std::int64_t first = 0;
    for (const std::int64_t piece : {1, 3, 64, 1, 100, 31}) {
      how.query_offset = first;
      const auto now =
          compute<TypeParam>(part(x.q, 2, first, piece), part(x.k, 2, 0, first + piece), part(x.v, 2, 0, first + piece), how);
      EXPECT_TRUE(is_part(now.out, whole.out, 2, first)) << form_of(how) << ", rows from " << first;
      first += piece;
    }
    ASSERT_EQ(first, n.L);
  }
}

TYPED_TEST(bits_of_forms, do_not_depend_on_what_memory_held) {
  constexpr TypeParam nan = std::numeric_limits<TypeParam>::quiet_NaN();
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    auto y = make_inputs<TypeParam>({.L = 40, .S = 200, .E = 40, .Ev = 50});
    const auto w = additive_weights<TypeParam>(n);
    const tensor<TypeParam> dirty({40}, nan);
    std::fill(y.q.begin(), y.q.end(), nan);
    std::fill(y.k.begin(), y.k.end(), nan);
    for (const options& how : every_form(w)) {
      const auto first = compute(x, how, true);
      options other = how;
      if (other.compatibility.kind == compatibility_kind::additive) other.compatibility = additive(dirty);
      compute(y, other, true);  // the scratch now holds NaN
      EXPECT_TRUE(same_bits(compute(x, how, true), first)) << form_of(how) << ", " << n.to_string();
    }
  }
}

}  // namespace
}  // namespace attend::test

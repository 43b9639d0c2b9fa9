// Tables by the distance between key and query along a sequence: any reach, any position, any memory.
#include <gtest/gtest.h>

#include <vector>

#include "support/form.hpp"

namespace attend::test {
namespace {

template <class T>
struct relative : testing::Test {};
TYPED_TEST_SUITE(relative, element_types);

/// Few queries, one block of lanes, several; keys in more than one tile.
const std::vector<sizes> problems = {{.B = 2, .H = 4, .Hk = 2, .L = 1, .S = 40, .E = 4, .Ev = 3},
                                     {.B = 2, .H = 2, .Hk = 1, .L = 5, .S = 300, .E = 4, .Ev = 3},
                                     {.B = 2, .H = 2, .Hk = 2, .L = 70, .S = 110, .E = 4, .Ev = 3}};

struct position {
  query_position given;
  std::function<std::int64_t(std::int64_t)> first;
};

TYPED_TEST(relative, tables_are_the_references_at_every_reach_and_position) {
  const auto w = normal<TypeParam>({4}, 80);
  const std::vector<options> forms = every_form(w);
  std::size_t form = 0;
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n, 81);
    tensor<std::int64_t> each({n.B});
    each(0) = -30, each(1) = 17;
    const std::vector<position> positions = {
        {upper_left, [](auto) { return 0; }},
        {lower_right, [&](auto) { return n.S - n.L; }},
        {query_position(9), [](auto) { return 9; }},
        {query_position(std::int64_t{1} << 61), [](auto) { return std::int64_t{1} << 61; }},
        {query_position(-(std::int64_t{1} << 61)), [](auto) { return -(std::int64_t{1} << 61); }},
        {each, [&](auto b) { return each(b); }}};
    for (const std::int64_t reach : {0, 1, 3, 20, 95, 1000}) {
      for (const std::int64_t heads : {std::int64_t{1}, n.H}) {
        const auto table = normal<TypeParam>({heads, 2 * reach + 1}, 82);
        for (const position& at : positions) {
          options how = forms[++form * 7 % forms.size()];
          how.reproducible = form % 3 == 0;
          how.query_offset = at.given;
          const std::string what = form_of(how) + ", reach " + std::to_string(reach) + ", first position " +
                                   std::to_string(at.first(0)) + ", " + n.to_string();
          const auto bias = expanded(table, n, at.first);
          how.bias = bias;
          const auto want = compute(x, how, true);
          how.bias = {}, how.relative = table;
          const auto got = compute(x, how, true);
          EXPECT_TRUE(same_bits(got, want)) << what;
          EXPECT_TRUE(as_reference(got, x.q, x.k, x.v, how)) << what;
        }
      }
    }
  }
}

TYPED_TEST(relative, tables_cross_chunks) {
  const auto w = normal<TypeParam>({4}, 83);
  for (const std::int64_t L : {2, 70}) {
    const sizes n{.B = 1, .H = 1, .Hk = 1, .L = L, .S = quick() ? 400 : 3300, .E = 4, .Ev = 3};
    const auto x = make_inputs<TypeParam>(n, 84);
    const auto table = normal<TypeParam>({1, 2 * 1000 + 1}, 85);
    const std::int64_t first = n.S / 2;
    const auto bias = expanded(table, n, [&](auto) { return first; });
    for (options how : every_form(w, {.query_offset = first})) {
      how.bias = bias;
      const auto want = compute(x, how, true);
      how.bias = {}, how.relative = table;
      EXPECT_TRUE(same_bits(compute(x, how, true), want)) << form_of(how) << ", " << n.to_string();
    }
  }
}

TYPED_TEST(relative, tables_stand_beside_everything_else) {
  for (const sizes& n : problems) {
    for (const layout order : {layout::bhld, layout::blhd}) {
      const auto x = make_inputs<TypeParam>(n, 86, order);
      const auto w = normal<TypeParam>({n.E}, 87), bias = normal<TypeParam>({n.H, 1, n.S}, 88);
      auto table = normal<TypeParam>({n.H, 23}, 89);
      table(0, 3) = table(n.H - 1, 12) = static_cast<TypeParam>(-infinity);
      const auto mask = coins({n.B, 1, n.L, n.S}, 90, 0.7);
      tensor<std::int64_t> lengths({n.B}), prefix({n.B}), offset({n.B});
      lengths(0) = n.S, lengths(1) = n.S / 2;
      prefix(0) = 0, prefix(1) = 4;
      offset(0) = 3, offset(1) = n.S / 3;
      std::size_t number = 0;
      for (const options& form : every_form(w, {.query_offset = offset, .relative = table, .layout = order})) {
        options how = form;
        if (++number % 2 == 0) how.causal = true, how.prefix = prefix;
        if (number % 3 == 0) how.mask = mask;
        if (number % 3 == 1) how.bias = bias;
        if (number % 5 < 3) how.key_lengths = lengths;
        if (number % 7 == 0) how.window = {n.S / 3, 3}, how.query_offset = lower_right;
        if (number % 4 < 2) how.reproducible = true;
        if (number % 5 == 0) how.scale = -0.8;
        EXPECT_TRUE(right(x, how, true)) << form_of(how) << ", number " << number << ", " << n.to_string();
      }
    }
  }
}

TYPED_TEST(relative, tables_may_have_any_strides_and_address) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n, 91);
    const grid_size grid(n.S / 10, 10);
    const auto line = normal<TypeParam>({n.H, 31}, 92), plane = normal<TypeParam>({n.H, 5, 7}, 93);
    const auto square = make_inputs<TypeParam>({.B = 1, .H = n.H, .Hk = n.Hk, .L = n.S, .S = n.S, .E = 4, .Ev = 3}, 94);
    const auto on_line = [&](const array_view& t) { return compute(x, {.query_offset = 4, .relative = t}, true); };
    const auto on_plane = [&](const array_view& t) { return compute(square, {.grid = grid, .relative = t}, true); };
    const auto want = on_line(line), want_on_plane = on_plane(plane);
    for (const extents& steps : std::vector<extents>{{31, -1}, {-93, 3}, {1, n.H}, {-1, -n.H}, {500, 2}}) {
      strided<TypeParam> placed(line, steps);
      EXPECT_TRUE(same_bits(on_line(placed.view()), want)) << steps.to_string() << ", " << n.to_string();
    }
    for (const extents& steps :
         std::vector<extents>{{35, -7, -1}, {-70, 14, 2}, {1, n.H * 7, n.H}, {35, 1, 5}, {-1, -n.H, 5 * n.H}}) {
      strided<TypeParam> placed(plane, steps);
      EXPECT_TRUE(same_bits(on_plane(placed.view()), want_on_plane)) << steps.to_string() << ", " << n.to_string();
    }
    EXPECT_TRUE(same_bits(on_line(unaligned<TypeParam>(line).view()), want)) << n.to_string();
    EXPECT_TRUE(same_bits(on_plane(unaligned<TypeParam>(plane).view()), want_on_plane)) << n.to_string();

    // One number for all heads, offsets or both.
    const auto few = normal<TypeParam>({40}, 95);
    for (const auto& [heads, columns] : {std::pair{0, 1}, std::pair{1, 0}, std::pair{0, 0}}) {
      const tensor_view<const TypeParam> view(few.data(), {n.H, 31}, {heads, columns});
      tensor<TypeParam> dense({n.H, 31});
      for_each_index(dense.shape(), [&](const extents& at) { dense(at[0], at[1]) = few(at[0] * heads + at[1] * columns); });
      EXPECT_TRUE(same_bits(on_line(view), on_line(dense))) << heads << ", " << columns << ", " << n.to_string();
    }
  }
}

TEST(relative_of_double, takes_a_float32_table) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<double>(n, 96);
    const auto narrow = normal<float>({n.H, 31}, 97);
    tensor<double> wide(narrow.shape());
    std::copy(narrow.begin(), narrow.end(), wide.begin());
    for (const bool reproducible : {false, true}) {
      const options how{.query_offset = 4, .relative = narrow, .reproducible = reproducible};
      EXPECT_TRUE(right(x, how, true)) << n.to_string();
      const options same{.query_offset = 4, .relative = wide, .reproducible = reproducible};
      EXPECT_TRUE(same_bits(compute(x, how, true), compute(x, same, true))) << n.to_string();
    }
  }
}

TYPED_TEST(relative, entries_that_are_not_finite_meet_the_pairs_they_belong_to) {
  constexpr TypeParam nan = std::numeric_limits<TypeParam>::quiet_NaN(), inf = std::numeric_limits<TypeParam>::infinity();
  const auto w = normal<TypeParam>({4}, 98);
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n, 99);
    for (const TypeParam value : {nan, inf, -inf}) {
      for (const std::int64_t at : {0, 10, 20}) {
        auto table = normal<TypeParam>({n.H, 21}, 100);
        table(n.H - 1, at) = value;
        for (const normalizer z : normalizers) {
          const options how{.query_offset = lower_right, .relative = table, .normalizer = z};
          EXPECT_TRUE(right(x, how, n.S < 200)) << form_of(how) << ", " << value << " at " << at << ", " << n.to_string();
        }
      }
    }
  }
}

TYPED_TEST(relative, a_table_that_excludes_everything_empties_the_rows) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n, 101);
    const auto w = normal<TypeParam>({n.E}, 102);
    const tensor<TypeParam> table({1, 3}, static_cast<TypeParam>(-infinity));
    for (const options& how : every_form(w, {.query_offset = upper_left, .relative = table})) {
      const auto y = compute(x, how, true);
      for (const TypeParam value : y.out) ASSERT_EQ(value, 0) << form_of(how);
      for (const TypeParam value : y.weights) ASSERT_EQ(value, 0) << form_of(how);
    }
  }
}

}  // namespace
}  // namespace attend::test

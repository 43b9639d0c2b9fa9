// Regions of a grid: neighbourhoods of every kind, tables by row and column offset, and both beside everything else.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/form.hpp"
#include "support/poison.hpp"

namespace attend::test {
namespace {

template <class T>
struct regions : testing::Test {};
TYPED_TEST_SUITE(regions, element_types);

const std::vector<grid_size> grids = {{1, 1}, {1, 7}, {7, 1}, {3, 2}, {9, 8}, {1, 70}, {70, 1}, {12, 20}};
const std::vector<grid_size> kernels = {1, 3, {5, 3}, {1, 5}, 7, {3, 99}};
const std::vector<grid_size> dilations = {1, 2, {3, 2}, {50, 1}};

sizes on(const grid_size& grid, std::int64_t heads = 2) {
  return {.B = 1, .H = heads, .Hk = 1, .L = grid.rows * grid.columns, .S = grid.rows * grid.columns, .E = 3, .Ev = 5};
}

std::string text(const grid_size& size) { return std::to_string(size.rows) + " x " + std::to_string(size.columns); }

std::string text(const options& how) {
  const neighborhood& near = how.neighborhood;
  return "grid " + text(how.grid) + ", kernel " + text(near.kernel) + ", dilation " + text(near.dilation) +
         (near.border == border::clip ? ", clip, " : ", shift, ") + form_of(how);
}

/// What every query head gets whose cells see nothing but themselves.
template <class T>
tensor<T> values_of(const inputs<T>& x) {
  tensor<T> y({1, x.q.shape()[1], x.v.shape()[2], x.v.shape()[3]});
  for (std::int64_t at = 0; at < y.size(); ++at) y.data()[at] = x.v.data()[at % x.v.size()];
  return y;
}

/// Calls `visit` with every neighbourhood of `grid` that is allowed on it, each with another form; returns how many.
template <class Visit>
std::size_t for_each_neighborhood(const grid_size& grid, const array_view& w, const Visit& visit) {
  const std::vector<options> forms = every_form(w);
  std::size_t count = 0;
  for (const grid_size& kernel : kernels) {
    for (const grid_size& dilation : dilations) {
      for (const border edge : {border::clip, border::shift}) {
        options how = forms[count * 7 % forms.size()];  // 7 and 36 have no common factor
        how.grid = grid;
        how.neighborhood = {.kernel = kernel, .dilation = dilation, .border = edge};
        bool fits = true;
        for (std::int64_t row = 0; row < grid.rows; ++row)
          fits = fits && !neighbors_along(row, grid.rows, kernel.rows, dilation.rows, edge).empty();
        for (std::int64_t column = 0; column < grid.columns; ++column)
          fits = fits && !neighbors_along(column, grid.columns, kernel.columns, dilation.columns, edge).empty();
        visit(how, fits);
        count += fits;
      }
    }
  }
  return count;
}

TYPED_TEST(regions, neighborhoods_are_the_references_on_grids_of_any_shape) {
  const auto w = normal<TypeParam>({3}, 60);
  std::size_t count = 0;
  for (const grid_size& grid : grids) {
    const auto x = make_inputs<TypeParam>(on(grid), 61);
    count += for_each_neighborhood(grid, w, [&](options how, bool fits) {
      ASSERT_EQ(check(x.q, x.k, x.v, {}, how).has_value(), !fits) << text(how);
      if (!fits) return;
      const expectation expected(x.q, x.k, x.v, how, true);
      for (const bool reproducible : {false, true}) {
        how.reproducible = reproducible;
        EXPECT_TRUE(expected.met_by(compute(x, how, true))) << text(how) << (reproducible ? ", reproducible" : "");
      }
    });
  }
  EXPECT_GT(count, 200u);
}

// Neighbours of the next query along a row may begin further left where columns are dilated, so one hull has to hold both.
TYPED_TEST(regions, dilated_neighborhoods_keep_their_keys_below_every_length) {
  const auto x = make_inputs<TypeParam>(on(grid_size(4, 5)), 68);
  for (std::int64_t length = 0; length <= 20; ++length) {
    for (const border edge : {border::clip, border::shift}) {
      const neighborhood near{
          .kernel = edge == border::clip ? grid_size(7, 3) : grid_size(3, 1), .dilation = {1, 2}, .border = edge};
      for (const bool reproducible : {false, true}) {
        const options how{.key_lengths = length, .grid = {4, 5}, .neighborhood = near, .reproducible = reproducible};
        EXPECT_TRUE(expectation(x.q, x.k, x.v, how, true).met_by(compute(x, how, true))) << text(how) << ", length " << length;
      }
    }
  }
}

TYPED_TEST(regions, neighborhoods_are_the_bits_of_their_mask_in_every_form) {
  const auto w = normal<TypeParam>({3}, 62);
  for (const grid_size& grid : {grid_size(2, 3), grid_size(9, 8), grid_size(1, 70), grid_size(16, 10)}) {
    const auto x = make_inputs<TypeParam>(on(grid), 63);
    for (const neighborhood& near : {neighborhood{.kernel = 3}, neighborhood{.kernel = {7, 5}, .dilation = {1, 2}},
                                     neighborhood{.kernel = {1, 3}, .border = border::shift}}) {
      const auto mask = neighbor_mask(grid, near);
      tensor<TypeParam> bias(mask.shape(), static_cast<TypeParam>(-infinity));
      for (std::int64_t at = 0; at < mask.size(); ++at)
        if (mask.data()[at]) bias.data()[at] = 0;
      for (const bool reproducible : {false, true}) {
        for (options how : every_form(w, {.reproducible = reproducible})) {
          how.mask = mask;
          const auto masked = compute(x, how, true);
          how.mask = {}, how.bias = bias;
          EXPECT_TRUE(same_bits(compute(x, how, true), masked)) << "-inf, " << text(how);
          how.bias = {}, how.grid = grid, how.neighborhood = near;
          EXPECT_TRUE(same_bits(compute(x, how, true), masked)) << text(how);
        }
      }
    }
  }
}

TYPED_TEST(regions, tables_by_offset_are_the_references_and_the_bits_of_their_bias) {
  const auto w = normal<TypeParam>({3}, 64);
  const std::vector<options> forms = every_form(w);
  std::size_t form = 0;
  for (const grid_size& grid : grids) {
    const auto x = make_inputs<TypeParam>(on(grid), 65);
    for (const auto& [rows, columns] :
         {std::pair{0, 0}, std::pair{1, 1}, std::pair{2, 4}, std::pair{0, 3}, std::pair{80, 75}}) {
      for (const std::int64_t heads : {1, 2}) {
        const auto table = normal<TypeParam>({heads, 2 * rows + 1, 2 * columns + 1}, 66);
        const auto bias = expanded(table, grid);
        for (const neighborhood& near : {neighborhood{}, neighborhood{.kernel = {5, 3}}}) {
          options how = forms[++form * 7 % forms.size()];
          how.reproducible = form % 3 == 0;
          how.grid = grid, how.neighborhood = near;
          how.bias = bias;
          const auto want = compute(x, how, true);
          how.bias = {}, how.relative = table;
          const auto got = compute(x, how, true);
          EXPECT_TRUE(same_bits(got, want)) << text(how) << ", table " << table.shape().to_string();
          EXPECT_TRUE(as_reference(got, x.q, x.k, x.v, how)) << text(how) << ", table " << table.shape().to_string();
        }
      }
    }
  }
}

TYPED_TEST(regions, stand_beside_everything_else) {
  for (const grid_size& grid : {grid_size(3, 2), grid_size(9, 8), grid_size(4, 40)}) {
    sizes n = on(grid, 4);
    n.B = 2, n.Hk = 2;
    for (const layout order : {layout::bhld, layout::blhd}) {
      const auto x = make_inputs<TypeParam>(n, 67, order);
      const auto w = normal<TypeParam>({n.E}, 68), table = normal<TypeParam>({n.H, 5, 7}, 69),
                 bias = normal<TypeParam>({n.H, n.L, n.S}, 70);
      const auto mask = coins({n.B, 1, n.L, n.S}, 71, 0.7);
      tensor<std::int64_t> lengths({n.B}), prefix({n.B}), offset({n.B});
      lengths(0) = n.S, lengths(1) = n.S / 2;
      prefix(0) = 0, prefix(1) = 4;
      offset(0) = 0, offset(1) = 2;
      const neighborhood near{.kernel = {3, 5}, .dilation = {1, 2}}, all{};
      std::size_t number = 0;
      for (const options& form : every_form(w, {.grid = grid, .relative = table, .layout = order})) {
        options how = form;
        how.neighborhood = ++number % 4 == 0 ? all : near;
        if (number % 2 == 0) how.causal = true, how.query_offset = offset, how.prefix = prefix;
        if (number % 3 == 0) how.mask = mask;
        if (number % 3 == 1) how.bias = bias;
        if (number % 5 < 3) how.key_lengths = lengths;
        if (number % 7 == 0) how.window = {n.S / 3, 3}, how.query_offset = lower_right;
        if (number % 2 == 1) how.reproducible = true;
        EXPECT_TRUE(right(x, how, true)) << text(how) << ", number " << number;
      }
    }
  }
}

TYPED_TEST(regions, hide_what_lies_outside) {
  constexpr TypeParam nan = std::numeric_limits<TypeParam>::quiet_NaN();
  for (const grid_size& grid : {grid_size(2, 3), grid_size(9, 8), grid_size(5, 50)}) {
    const sizes n = on(grid);
    const auto x = make_inputs<TypeParam>(n, 72);
    const auto w = normal<TypeParam>({n.E}, 73);
    const neighborhood near{.kernel = 3};
    const auto mask = neighbor_mask(grid, near);
    for (const std::int64_t cell : {std::int64_t{0}, n.S / 2, n.S - 1}) {
      const auto y = poisoned(x, nan, [&](auto, auto j) { return j == cell; });
      for (const options& how : every_form(w, {.grid = grid, .neighborhood = near})) {
        const auto clean = compute(x, how, true), dirty = compute(y, how, true);
        for (std::int64_t i = 0; i < n.L; ++i) {
          for (std::int64_t c = 0; c < n.Ev; ++c) {
            const TypeParam is = dirty.out(0, 1, i, c), was = clean.out(0, 1, i, c);
            ASSERT_TRUE(mask(i, cell) ? std::isnan(is) : is == was) << text(how) << ", row " << i << ", cell " << cell;
          }
          for (std::int64_t j = 0; j < n.S; ++j)
            ASSERT_TRUE(mask(i, j) || dirty.weights(0, 1, i, j) == 0) << text(how) << ", row " << i << ", cell " << j;
        }
      }
    }
  }
}

TYPED_TEST(regions, of_one_cell_give_its_value) {
  for (const grid_size& grid : {grid_size(1, 1), grid_size(9, 8)}) {
    const auto x = make_inputs<TypeParam>(on(grid), 74);
    for (const border edge : {border::clip, border::shift}) {
      const auto y = compute(x, {.grid = grid, .neighborhood = {.kernel = 1, .dilation = 4, .border = edge}});
      EXPECT_TRUE(same_bits(y.out, values_of(x))) << text(grid);
    }
  }
}

TYPED_TEST(regions, of_any_size_do_not_overflow) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const grid_size& grid : {grid_size(2, 3), grid_size(9, 8)}) {
    const auto x = make_inputs<TypeParam>(on(grid), 77);
    const auto all = compute(x, {}, true);
    for (const std::int64_t size : {most, most - 2, std::int64_t{(1LL << 62) + 1}})
      EXPECT_TRUE(same_bits(compute(x, {.grid = grid, .neighborhood = {.kernel = size}}, true), all)) << size;
    for (const std::int64_t step : {most, std::int64_t{1} << 62, std::int64_t{1} << 40}) {
      const std::vector<neighborhood> own = {{.kernel = 3, .dilation = step},
                                             {.kernel = most, .dilation = step},
                                             {.kernel = 1, .dilation = step, .border = border::shift}};
      for (const neighborhood& near : own) {
        const options how{.grid = grid, .neighborhood = near};
        const auto y = compute(x, how);
        EXPECT_TRUE(same_bits(y.out, values_of(x))) << text(how);
        EXPECT_TRUE(right(x, how)) << text(how);
      }
    }
  }
}

TYPED_TEST(regions, with_a_table_of_weights_are_convolutions) {
  const std::int64_t rows = 13, columns = 11, filters = 3, width = 2;
  const auto image = normal<TypeParam>({1, rows * columns, width}, 75);
  const tensor<TypeParam> nothing_q({filters, rows * columns, 1}), nothing_k({1, rows * columns, 1});
  for (const std::int64_t size : {1, 3, 5, 7}) {
    const auto filter = normal<TypeParam>({filters, size, size}, 76);
    const auto y = attention(nothing_q, nothing_k, image,
                             {.grid = {rows, columns},
                              .neighborhood = {.kernel = size},
                              .relative = filter,
                              .compatibility = compatibility::none,
                              .normalizer = normalizer::sum});
    for_each_index(y.shape(), [&](const extents& at) {
      const std::int64_t row = at[1] / columns, column = at[1] % columns;
      double sum = 0, terms = 0;
      for (std::int64_t down = -size / 2; down <= size / 2; ++down) {
        for (std::int64_t along = -size / 2; along <= size / 2; ++along) {
          if (row + down < 0 || row + down >= rows || column + along < 0 || column + along >= columns) continue;
          const double term = double(filter(at[0], size / 2 + down, size / 2 + along)) *
                              double(image(0, (row + down) * columns + column + along, at[2]));
          sum += term, terms += std::abs(term);
        }
      }
      ASSERT_NEAR(double(y(at[0], at[1], at[2])), sum, 4 * terms * double(std::numeric_limits<TypeParam>::epsilon())) << size;
    });
  }
}

TYPED_TEST(regions, of_a_grid_without_cells_are_empty) {
  const tensor<TypeParam> none({2, 0, 3}), table({1, 3, 3});
  for (const grid_size& grid : {grid_size(0, 0), grid_size(0, 5), grid_size(5, 0)}) {
    for (const border edge : {border::clip, border::shift}) {
      const auto y =
          attention(none, none, none, {.grid = grid, .neighborhood = {.kernel = 3, .border = edge}, .relative = table});
      EXPECT_EQ(y.shape(), (extents{2, 0, 3}));
    }
  }
}

}  // namespace
}  // namespace attend::test

// Numbers at the ends of their ranges: scales, windows and offsets, widths, and plans of problems that nobody could run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "kernels/mask_intervals.hpp"
#include "route.hpp"
#include "tables.hpp"
#include "support/compute.hpp"
#include "validate.hpp"

namespace attend::test {
namespace {

constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();

template <class T>
struct extremes : testing::Test {};
TYPED_TEST_SUITE(extremes, element_types);

TYPED_TEST(extremes, any_finite_scale_counts) {
  for (const std::int64_t L : {1, 40}) {
    for (const double scale : {1e39, 1e40, -1e39, 1e20, 1e-20, 1e-39, 1e-60, 3e38, 1e-300}) {
      if (std::abs(scale) < 1e-200 && sizeof(TypeParam) == 4) continue;  // no float32 input makes such scores matter
      // Queries and keys whose scaled products are of ordinary size.
      const double size = 1 / std::sqrt(std::abs(scale));
      auto q = normal<TypeParam>({L, 8}, 1), k = normal<TypeParam>({100, 8}, 2);
      const auto v = normal<TypeParam>({100, 5}, 3);
      for (auto& x : q) x = static_cast<TypeParam>(x * size);
      for (auto& x : k) x = static_cast<TypeParam>(x * size);
      const options how{.scale = scale};
      const auto y = attention(q, k, v, how);
      const auto truth = reference::attention(q, k, v, how);
      const auto bound = reference::error_bound(q, k, v, how, truth);
      for (std::int64_t i = 0; i < y.size(); ++i)
        ASSERT_LE(std::abs(static_cast<double>(y.data()[i]) - truth.out.data()[i]), bound.data()[i])
            << "scale " << scale << ", L " << L;
    }
    const auto none = tensor<TypeParam>({L, 8}), k = normal<TypeParam>({3, 8}, 2), v = normal<TypeParam>({3, 5}, 3);
    const auto huge = attention(none, k, v, {.scale = std::numeric_limits<double>::max()}), usual = attention(none, k, v);
    EXPECT_TRUE(same_bits(huge, usual)) << "0 times any scale is 0";
  }
}

TYPED_TEST(extremes, many_small_weights_beside_a_large_one_are_not_lost) {
  // One key has nearly all of the weight; each of the others adds less than rounding to it would keep.
  const double epsilon = sizeof(TypeParam) == 4 ? 0x1p-24 : 0x1p-53;
  for (const std::int64_t L : {1, 20}) {
    for (const std::int64_t S : {97, 300, 1537, 5000}) {
      inputs<TypeParam> x{tensor<TypeParam>({L, 1}, TypeParam{1}), tensor<TypeParam>({S, 1}),
                          tensor<TypeParam>({S, 1}, TypeParam{-1})};
      x.v(0, 0) = 1;
      for (const std::int64_t place : {std::int64_t{0}, S / 2, S - 1}) {
        for (double part = 0.4; part < 2.2; part += 0.1) {
          std::fill(x.k.begin(), x.k.end(), TypeParam{0});
          x.k(place, 0) = static_cast<TypeParam>(-std::log(part * epsilon));
          EXPECT_TRUE(right(x, {.scale = 1.0})) << L << " queries, " << S << " keys, " << part << " at " << place;
        }
      }
    }
  }
}

TYPED_TEST(extremes, windows_and_offsets_reach_as_far_as_they_say) {
  const auto q = normal<TypeParam>({4, 8}, 1), k = normal<TypeParam>({6, 8}, 2);
  constexpr std::int64_t edge = std::int64_t{1} << 61;
  const auto seen = [&](const window& sides, std::int64_t offset) {
    tensor<TypeParam> weights({4, 6});
    attention(q, k, k, outputs{.weights = weights}, {.window = sides, .query_offset = query_position(offset)});
    std::string rows;
    for (int i = 0; i < 4; ++i)
      rows += std::to_string(std::count_if(&weights(i, 0), &weights(i, 0) + 6, [](auto w) { return w > 0; }));
    return rows;
  };
  EXPECT_EQ(seen({std::nullopt, most}, -edge), "6666");
  EXPECT_EQ(seen({most, std::nullopt}, edge), "6666");
  EXPECT_EQ(seen({std::nullopt, edge}, -edge), "1234");
  EXPECT_EQ(seen({edge, std::nullopt}, edge), "6543");
  EXPECT_EQ(seen({0, 0}, edge), "0000");
  for (const std::int64_t far : {edge + 1, -edge - 1, most, -most})
    EXPECT_TRUE(check(q, k, k, {}, {.causal = true, .query_offset = query_position(far)})) << far;
}

TYPED_TEST(extremes, widths_whose_tiles_cannot_be_counted_are_refused) {
  const TypeParam one = 1;
  const auto wide = [&one](std::int64_t width) { return tensor_view<const TypeParam>(&one, {1, width}, {0, 0}); };
  for (const std::int64_t width : {(std::int64_t{1} << 40) + 1, std::int64_t{1} << 55, std::int64_t{1} << 57}) {
    const auto fault = check(wide(width), wide(width), wide(1), {});
    ASSERT_TRUE(fault) << width;
    EXPECT_EQ(fault->rfind("q: ", 0), 0) << *fault;
    EXPECT_TRUE(check(wide(1), wide(1), wide(width), {})) << width;
  }
}

/// Tiles of every class, counted one by one with the question that kernels ask.
TEST(a_plan, counts_the_tiles_that_kernels_see) {
  const std::int64_t lengths[] = {0, 100, 333}, offsets[] = {-50, 7, 400};
  const tensor_view<const std::int64_t> each_length(lengths, {3}), each_offset(offsets, {3});
  const problem_shape shapes{.q = {3, 4, 150, 8}, .k = {3, 2, 333, 8}, .v = {3, 2, 333, 8}};
  const options calls[] = {
      {},
      {.causal = true, .query_offset = -60},
      {.causal = true, .query_offset = lower_right, .key_lengths = each_length},
      {.window = {40, 3}, .query_offset = each_offset},
      {.causal = true, .window = {20, 0}, .query_offset = each_offset, .prefix = 110, .key_lengths = each_length},
      {.window = {0, 0}, .query_offset = 500}};
  for (const options& how : calls) {
    const array_view q(nullptr, dtype::f32, shapes.q, {0, 0, 0, 0}), k(nullptr, dtype::f32, shapes.k, {0, 0, 0, 0});
    const detail::problem p = detail::validate(q, k, k, {}, how, detail::inputs::shapes);
    const detail::route r(p);
    const detail::part& work = *r.begin();
    const detail::mask_tables tables(p, r, [](auto, const auto&) { FAIL() << "there is no mask to look at"; });
    const std::int64_t tile = work.choice.entry->tile_keys;
    std::int64_t skipped = 0, full = 0, partial = 0;
    for (std::int64_t block = 0; block < work.blocks; ++block) {
      detail::lane_map lanes;
      detail::fill_masks(p, tables, detail::place_of(p, work, block), lanes);
      const detail::lane_bounds bounds = detail::bounds_of(lanes);
      for (std::int64_t first = 0; first < p.keys; first += tile) {
        const std::int64_t last = std::min(first + tile, detail::last_key(bounds));
        const auto kind = last <= first ? detail::tile_class::skip : detail::classify(bounds, first, last);
        ++(kind == detail::tile_class::skip ? skipped : kind == detail::tile_class::full ? full : partial);
      }
    }
    const plan_facts facts = make_plan(shapes, how).facts();
    EXPECT_EQ(facts.tiles_skipped, skipped);
    EXPECT_EQ(facts.tiles_full, full);
    EXPECT_EQ(facts.tiles_partial, partial);
  }
}

TEST(a_plan, of_a_billion_sequences_or_keys_is_made_at_once) {
  const plan_facts many =
      make_plan({.q = {1000000000, 8, 1, 64}, .k = {1000000000, 8, 1, 64}, .v = {1000000000, 8, 1, 64}}).facts();
  EXPECT_EQ(many.tiles_full, 8000000000);
  const plan_facts deep = make_plan({.q = {1, 64}, .k = {1000000000000, 64}, .v = {1000000000000, 64}}).facts();
  EXPECT_EQ(deep.tiles_full, (1000000000000 + deep.tile_keys - 1) / deep.tile_keys);
  EXPECT_EQ(deep.flops, 2e12 * 128);
}

}  // namespace
}  // namespace attend::test

// Tiles that a boolean mask or segments empty or fill: plans count them as one counts pairs, and results do not know of them.
#include <gtest/gtest.h>

#include <vector>

#include "support/score.hpp"

namespace attend::test {
namespace {

/// Whether query i of head h may see key j of batch b, by the boolean mask alone and by everything else alone.
using pair_test = std::function<bool(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j)>;

struct classes {
  std::int64_t skipped = 0, full = 0, partial = 0;
};

/// Tiles counted pair by pair. A tile is skipped where the mask or the structure leaves no pair of it, and full where neither
/// excludes one. A block of rows ends at the last key that its structure leaves.
classes count_pairs(const sizes& n, const plan_facts& facts, const pair_test& masked, const pair_test& structure) {
  classes found;
  const std::int64_t group = n.H / n.Hk, rows = n.L * group;
  for_each_index({n.B, n.Hk, facts.lane_blocks}, [&](const extents& at) {
    const auto count = [&](const pair_test& sees, std::int64_t first, std::int64_t last) {
      std::int64_t seen = 0;
      for (std::int64_t row = at[2] * facts.lanes; row < std::min(rows, (at[2] + 1) * facts.lanes); ++row)
        for (std::int64_t j = first; j < last; ++j) seen += sees(at[0], at[1] * group + row % group, row / group, j);
      return seen;
    };
    const std::int64_t lanes = std::min<std::int64_t>(facts.lanes, rows - at[2] * facts.lanes);
    std::int64_t end = n.S;
    while (end > 0 && count(structure, end - 1, end) == 0) --end;
    for (std::int64_t first = 0; first < n.S; first += facts.tile_keys) {
      const std::int64_t all = std::min<std::int64_t>(first + facts.tile_keys, n.S), last = std::min(all, end);
      const std::int64_t by_structure = last > first ? count(structure, first, last) : 0, by_mask = count(masked, first, all);
      if (by_structure == 0 || by_mask == 0)
        ++found.skipped;
      else
        ++(by_structure == lanes * (last - first) && by_mask == lanes * (all - first) ? found.full : found.partial);
    }
  });
  return found;
}

void expect_counts(const sizes& n, const options& how, const pair_test& masked, const pair_test& structure,
                   const std::string& what) {
  const plan_facts facts =
      make_plan({.type = dtype::f32, .q = {n.B, n.H, n.L, n.E}, .k = {n.B, n.Hk, n.S, n.E}, .v = {n.B, n.Hk, n.S, n.Ev}}, how)
          .facts();
  const classes want = count_pairs(n, facts, masked, structure);
  EXPECT_EQ(facts.tiles_skipped, want.skipped) << what << ", " << n.to_string();
  EXPECT_EQ(facts.tiles_full, want.full) << what << ", " << n.to_string();
  EXPECT_EQ(facts.tiles_partial, want.partial) << what << ", " << n.to_string();
}

/// Few queries, and several blocks of lanes; grouped heads.
const std::vector<sizes> problems = {{.B = 2, .H = 4, .Hk = 2, .L = 3, .S = 1500, .E = 4, .Ev = 3},
                                     {.B = 2, .H = 2, .Hk = 2, .L = 200, .S = 700, .E = 4, .Ev = 3},
                                     {.B = 1, .H = 6, .Hk = 2, .L = 90, .S = 500, .E = 3, .Ev = 2}};

/// A mask (B, H, L, S) with rectangles of false and of true, whose edges lie on, before and behind those of tiles.
tensor<bool> patches(const sizes& n, const extents& shape, std::uint64_t seed) {
  auto mask = coins(shape, seed, 0.9);
  random_source draw(seed);
  for (int patch = 0; patch < 24; ++patch) {
    const bool value = draw.coin();
    const std::int64_t rows = draw.one_of<std::int64_t>({1, 33, 64, 65, 128}),
                       keys = draw.one_of<std::int64_t>({95, 96, 192, 256, 300, 512});
    const std::int64_t first_row = draw.between(0, 3) * 32 % n.L, first_key = draw.between(0, 14) * 32 + draw.between(-1, 1);
    for_each_index(shape, [&](const extents& at) {
      const std::int64_t i = at[2], j = at[3];
      if ((shape[2] == 1 || (i >= first_row && i < first_row + rows)) && j >= first_key && j < first_key + keys)
        mask(at[0], at[1], i, j) = value;
    });
  }
  return mask;
}

TEST(a_plan, counts_tiles_of_a_mask_as_pairs_say) {
  const auto everything = [](auto...) { return true; };
  for (const sizes& n : problems) {
    const std::vector<extents> shapes = {{n.B, n.H, n.L, n.S}, {n.B, 1, n.L, n.S}, {1, n.H, n.L, n.S}, {1, 1, n.L, n.S},
                                         {n.B, 1, 1, n.S},     {1, n.H, 1, n.S},   {1, 1, 1, n.S},     {1, 1, n.L, 1}};
    for (std::size_t at = 0; at < shapes.size(); ++at) {
      const extents& shape = shapes[at];
      const auto mask = shape[3] == 1 ? coins(shape, 3, 0.5) : patches(n, shape, 7 + at);
      const pair_test masked = [&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
        return mask(shape[0] == 1 ? 0 : b, shape[1] == 1 ? 0 : h, shape[2] == 1 ? 0 : i, shape[3] == 1 ? 0 : j);
      };
      expect_counts(n, {.mask = mask}, masked, everything, "mask " + shape.to_string());
      const std::int64_t first = n.S - n.L - 50;
      expect_counts(
          n, {.causal = true, .query_offset = first, .mask = mask}, masked,
          [&](auto, auto, auto i, auto j) { return j <= i + first; }, "causal, mask " + shape.to_string());
      expect_counts(
          n, {.window = {100, 20}, .query_offset = 200, .mask = mask}, masked,
          [&](auto, auto, auto i, auto j) { return j >= i + 100 && j <= i + 220; }, "window, mask " + shape.to_string());
    }
  }
}

TEST(a_plan, counts_tiles_of_documents_as_pairs_say) {
  const auto everything = [](auto...) { return true; };
  for (const sizes& n : problems) {
    for (const std::int64_t shift : {0, 1, 31, 96}) {
      const auto of_q = documents(n.L, {n.L / 3, n.L / 2, n.L / 2 + 1});
      const auto of_k = documents(n.S, {96 + shift, 288 + shift, 400});
      expect_counts(
          n, {.query_segments = of_q, .key_segments = of_k}, everything,
          [&](auto, auto, auto i, auto j) { return of_q(i) == of_k(j); }, "documents");
    }
  }
}

TEST(a_plan, counts_tiles_of_documents_of_each_batch) {
  const sizes n = problems[1];
  tensor<std::int64_t> of_q({n.B, n.L}), of_k({n.B, n.S});
  for (std::int64_t b = 0; b < n.B; ++b) {
    for (std::int64_t i = 0; i < n.L; ++i) of_q(b, i) = i >= (b + 1) * 50;
    for (std::int64_t j = 0; j < n.S; ++j) of_k(b, j) = j >= (b + 1) * 150;
  }
  expect_counts(
      n, {.query_segments = of_q, .key_segments = of_k}, [](auto...) { return true; },
      [&](auto b, auto, auto i, auto j) { return of_q(b, i) == of_k(b, j); }, "documents of each batch");
}

TEST(a_plan, of_a_mask_names_the_work_that_is_left) {
  const sizes n{.B = 1, .H = 1, .Hk = 1, .L = 512, .S = 3072, .E = 8, .Ev = 8};
  tensor<bool> mask({n.L, n.S});
  const auto facts = [&] { return make_plan({.q = {n.L, 8}, .k = {n.S, 8}, .v = {n.S, 8}}, {.mask = mask}).facts(); };
  EXPECT_EQ(facts().flops, 0) << "nothing is left";
  for (std::int64_t i = 0; i < n.L; ++i)
    for (std::int64_t j = 0; j < n.S / 4; ++j) mask(i, j) = true;
  const double whole = 2.0 * double(n.L * n.S) * 16;
  EXPECT_NEAR(facts().flops / whole, 0.25, 0.02);
}

template <class T>
struct mask_tiles : testing::Test {};
TYPED_TEST_SUITE(mask_tiles, element_types);

TYPED_TEST(mask_tiles, of_every_class_are_right) {
  for (sizes n : problems) {
    if (quick()) n.S = std::min<std::int64_t>(n.S, 600);
    const auto x = make_inputs<TypeParam>(n);
    for (const extents& shape : {extents{n.B, n.H, n.L, n.S}, extents{n.B, 1, n.L, n.S}, extents{n.B, 1, 1, n.S}}) {
      const auto mask = patches(n, shape, 11);
      for (const options& base : {options{.mask = mask}, options{.causal = true, .query_offset = n.S - n.L, .mask = mask},
                                  options{.window = {300, {}}, .query_offset = n.S / 2, .mask = mask}}) {
        const expectation expected(x.q, x.k, x.v, base, true);
        for (const bool reproducible : {false, true}) {
          options how = base;
          how.reproducible = reproducible;
          EXPECT_TRUE(expected.met_by(compute(x, how, true))) << n.to_string() << ", mask " << shape.to_string();
        }
      }
    }
  }
}

TYPED_TEST(mask_tiles, that_are_empty_or_full_have_the_bits_of_those_that_are_not) {
  // The same mask as a bias of 0 and -inf, which has no summary.
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const auto mask = patches(n, {n.B, 1, n.L, n.S}, 12);
    tensor<TypeParam> bias(mask.shape());
    for (std::int64_t at = 0; at < bias.size(); ++at)
      if (!mask.data()[at]) bias.data()[at] = static_cast<TypeParam>(-infinity);
    for (const bool reproducible : {false, true})
      EXPECT_TRUE(same_bits(compute(x, {.mask = mask, .reproducible = reproducible}, true),
                            compute(x, {.bias = bias, .reproducible = reproducible}, true)))
          << n.to_string();
  }
}

TYPED_TEST(mask_tiles, of_scores_are_minus_infinity_where_they_are_skipped) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const auto mask = patches(n, {n.B, n.H, n.L, n.S}, 14);
    for (const options& how :
         {options{.mask = mask}, options{.causal = true, .query_offset = n.S / 2, .mask = mask, .softcap = 3}}) {
      for (const score_stage stage : {score_stage::capped, score_stage::biased})
        EXPECT_TRUE(scores_right<TypeParam>(x.q, x.k, x.v, how, stage)) << n.to_string() << ", stage " << int(stage);
    }
  }
}

TYPED_TEST(mask_tiles, are_those_of_their_batch_whatever_axes_a_mask_moves_along) {
  const auto q = normal<TypeParam>({2, 3, 2, 4, 40, 3}, 1), k = normal<TypeParam>({2, 1, 2, 2, 400, 3}, 2),
             v = normal<TypeParam>({3, 1, 2, 400, 2}, 3);
  const sizes n{.B = 1, .H = 4, .Hk = 2, .L = 40, .S = 400, .E = 3, .Ev = 2};
  for (const extents& shape : {extents{2, 3, 2, 4, 40, 400}, extents{2, 1, 2, 1, 40, 400}, extents{3, 1, 4, 1, 400},
                               extents{1, 3, 1, 1, 1, 400}, extents{2, 1, 1, 4, 40, 400}, extents{2, 1, 40, 400}}) {
    tensor<bool> mask(shape);
    std::int64_t number = 0;
    const std::int64_t one = shape[shape.rank() - 2] * 400;  // each head of each batch has patches of its own
    for (std::int64_t first = 0; first < mask.size(); first += one) {
      const auto patch = patches(n, {1, 1, shape[shape.rank() - 2], 400}, std::uint64_t(20 + number++));
      std::copy(patch.begin(), patch.end(), mask.data() + first);
    }
    for (const bool reproducible : {false, true}) {
      const options how{.mask = mask, .reproducible = reproducible};
      EXPECT_TRUE(as_reference(compute<TypeParam>(q, k, v, how, true), q, k, v, how)) << shape.to_string();
    }
  }
}

TYPED_TEST(mask_tiles, are_those_of_their_heads_where_a_group_is_larger_than_a_block) {
  const sizes n{.B = 1, .H = 71, .Hk = 1, .L = 3, .S = 400, .E = 2, .Ev = 2};
  const auto x = make_inputs<TypeParam>(n);
  tensor<bool> mask({n.H, 1, n.S});
  for (std::int64_t h = 0; h < n.H; ++h)  // of later heads, other tiles are empty
    for (std::int64_t j = 0; j < n.S; ++j) mask(h, 0, j) = h < 64 ? j < 200 : j >= 190;
  EXPECT_TRUE(right(x, {.mask = mask}, true));
  expect_counts(
      n, {.mask = mask}, [&](auto, auto h, auto, auto j) { return mask(h, 0, j); }, [](auto...) { return true; },
      "a mask of heads");
}

TYPED_TEST(mask_tiles, may_be_any_bytes_that_are_not_zero) {
  // Booleans of other languages: every byte but 0 is true, in summaries as in tiles.
  const sizes n = problems[1];
  const auto x = make_inputs<TypeParam>(n);
  const auto mask = patches(n, {1, 1, n.L, n.S}, 13);
  const extents shape{n.L, n.S};
  std::vector<unsigned char> bytes(std::size_t(n.L * n.S));
  for (std::size_t at = 0; at < bytes.size(); ++at) bytes[at] = mask.data()[at] ? static_cast<unsigned char>(1 + at % 255) : 0;
  const array_view any(bytes.data(), dtype::boolean, shape, {n.S, 1});
  EXPECT_TRUE(same_bits(compute(x, {.mask = any}, true), compute(x, {.mask = mask}, true)));
}

}  // namespace
}  // namespace attend::test

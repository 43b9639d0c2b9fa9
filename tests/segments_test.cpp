// Segments: a pair is allowed where both ids are equal and not negative; alone, with all else that excludes, in every form.
#include <gtest/gtest.h>

#include <vector>

#include "support/poison.hpp"
#include "support/score.hpp"

namespace attend::test {
namespace {

template <class T>
struct segments : testing::Test {};
TYPED_TEST_SUITE(segments, element_types);

/// Few queries, one block of lanes, several; keys within a tile, across tiles, across chunks.
const std::vector<sizes> problems = {{.B = 2, .H = 4, .Hk = 2, .L = 1, .S = 9, .E = 5, .Ev = 6},
                                     {.B = 2, .H = 2, .Hk = 1, .L = 5, .S = 1100, .E = 8, .Ev = 3},
                                     {.B = 3, .H = 2, .Hk = 1, .L = 40, .S = 31, .E = 4, .Ev = 6},
                                     {.B = 2, .H = 2, .Hk = 2, .L = 150, .S = quick() ? 210 : 1700, .E = 5, .Ev = 7}};

TYPED_TEST(segments, of_documents_in_a_row_are_right_wherever_they_begin) {
  for (const auto& [L, S] : {std::pair{1, 400}, std::pair{7, 400}, std::pair{130, 200}, std::pair{200, 400}}) {
    const auto x = make_inputs<TypeParam>({.B = 1, .H = 2, .Hk = 1, .L = L, .S = S, .E = 4, .Ev = 5});
    for (const std::int64_t start : {0, 1, 31, 32, 33, 63, 64, 65, 95, 96, 97, 191, 192, 193, 255, 256, 257, 399}) {
      const auto of_q = documents(L, {L / 2}), of_k = documents(S, {start});
      const options how{.query_segments = of_q, .key_segments = of_k};
      EXPECT_TRUE(right(x, how, true)) << "L " << L << ", start " << start;
      EXPECT_TRUE(right(x, {.query_segments = of_q, .key_segments = of_k, .reproducible = true}, true)) << start;
    }
  }
}

TYPED_TEST(segments, of_many_documents_are_right_and_see_nothing_of_the_others) {
  for (const std::int64_t step : {1, 5, 64, 96, 130}) {
    const std::int64_t length = quick() ? 300 : 700;
    std::vector<std::int64_t> starts;
    for (std::int64_t start = step; start < length; start += step + start % 3) starts.push_back(start);
    const auto x = make_inputs<TypeParam>({.B = 1, .H = 2, .Hk = 2, .L = length, .S = length, .E = 3, .Ev = 4});
    const auto ids = documents(length, starts);
    for (const bool causal : {false, true})
      expect_right(x, {.causal = causal, .query_segments = ids, .key_segments = ids}, "steps of " + std::to_string(step));
  }
}

TYPED_TEST(segments, that_interleave_and_negative_ids_are_right) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max(), least = std::numeric_limits<std::int64_t>::min();
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    for (const std::int64_t ids : {0, 1, 5}) {
      auto of_q = random_ids({n.B, n.L}, 3, -1, ids), of_k = random_ids({n.B, n.S}, 4, -2, ids);
      expect_right(x, {.query_segments = of_q, .key_segments = of_k}, n.to_string());
      for (std::int64_t& id : of_q) id = id == 0 ? most : id == 1 ? std::int64_t{1} << 32 : id == -1 ? least : id;
      for (std::int64_t& id : of_k) id = id == 0 ? most : id == 2 ? std::int64_t{1} << 33 : id == -1 ? least : id;
      expect_right(x, {.query_segments = of_q, .key_segments = of_k}, "64 bits, " + n.to_string());
    }
    const tensor<std::int64_t> none({n.L}, -1), all({n.S}, -1);
    const auto empty = compute(x, {.query_segments = none, .key_segments = all}, true);
    for (const auto value : empty.out) ASSERT_EQ(value, 0) << "negative ids belong to no segment, not to each other";
    for (const auto value : empty.lse) ASSERT_EQ(double(value), -infinity);
    for (const auto value : empty.weights) ASSERT_EQ(value, 0);
  }
}

TYPED_TEST(segments, intersect_with_whatever_else_excludes) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const score_arrays<TypeParam> arrays(n);
    const auto mask = coins({n.B, 1, n.L, n.S}, 4, 0.8);
    for (const bool interleaved : {false, true}) {
      options base{.query_offset = lower_right};
      base.query_segments = interleaved ? array_view(arrays.query_ids) : array_view(arrays.query_documents);
      base.key_segments = interleaved ? array_view(arrays.key_ids) : array_view(arrays.key_documents);
      const auto with = [&](const char* what, const auto& change) {
        options how = base;
        change(how);
        expect_right(x, how, std::string(what) + (interleaved ? ", interleaved, " : ", ") + n.to_string());
      };
      with("causal", [](options& how) { how.causal = true; });
      with("window", [](options& how) { how.window = {25, 3}; });
      with("prefix", [&](options& how) { how.causal = true, how.prefix = n.S / 2; });
      with("lengths", [&](options& how) { how.key_lengths = arrays.lengths; });
      with("mask", [&](options& how) { how.mask = mask; });
      with("bias", [&](options& how) { how.bias = arrays.row; });
      with("all", [&](options& how) {
        how.causal = true, how.window = {90, {}}, how.prefix = arrays.prefix, how.key_lengths = arrays.lengths;
        how.mask = mask, how.bias = arrays.row;
      });
    }
  }
}

TYPED_TEST(segments, that_begin_within_the_prefix_are_right_where_the_window_is_apart_from_it) {
  for (const std::int64_t L : {2, 70}) {
    const auto x = make_inputs<TypeParam>({.B = 1, .H = 2, .Hk = 1, .L = L, .S = 600, .E = 4, .Ev = 5});
    const tensor<std::int64_t> of_q({L}, 1);
    for (const std::int64_t start : {1, 96, 130, 299, 300, 301}) {
      const auto of_k = documents(600, {start});
      for (const std::int64_t prefix : {97, 300, 520})
        expect_right(x,
                     {.causal = true,
                      .window = {30, {}},
                      .query_offset = lower_right,
                      .prefix = prefix,
                      .query_segments = of_q,
                      .key_segments = of_k},
                     "start " + std::to_string(start) + ", prefix " + std::to_string(prefix));
    }
  }
}

TYPED_TEST(segments, intersect_with_neighborhoods) {
  const std::int64_t cells = 11 * 13;
  const auto x = make_inputs<TypeParam>({.B = 2, .H = 2, .Hk = 1, .L = cells, .S = cells, .E = 4, .Ev = 3});
  for (const auto& ids : {documents(cells, {40, 90}), random_ids({cells}, 5, -1, 2)}) {
    for (const grid_size& dilation : {grid_size(1), grid_size(1, 2)})
      expect_right(x,
                   {.query_segments = ids,
                    .key_segments = ids,
                    .grid = {11, 13},
                    .neighborhood = {.kernel = {5, 3}, .dilation = dilation}},
                   "neighborhood");
  }
}

TYPED_TEST(segments, have_the_bits_of_the_same_mask_in_other_forms) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const score_arrays<TypeParam> arrays(n);
    for (const bool interleaved : {false, true}) {
      const auto id = [&](const tensor<std::int64_t>& each, const tensor<std::int64_t>& all, std::int64_t b, std::int64_t at) {
        return interleaved ? each(b, at) : all(at);
      };
      tensor<bool> mask({n.B, 1, n.L, n.S});
      tensor<TypeParam> bias(mask.shape(), static_cast<TypeParam>(-infinity));
      for_each_index(mask.shape(), [&](const extents& at) {
        const std::int64_t own = id(arrays.query_ids, arrays.query_documents, at[0], at[2]);
        if (own < 0 || own != id(arrays.key_ids, arrays.key_documents, at[0], at[3])) return;
        mask(at[0], 0, at[2], at[3]) = true, bias(at[0], 0, at[2], at[3]) = TypeParam(0);
      });
      for (const bool reproducible : {false, true}) {
        options how{
            .query_segments = arrays.query_documents, .key_segments = arrays.key_documents, .reproducible = reproducible};
        if (interleaved) how.query_segments = arrays.query_ids, how.key_segments = arrays.key_ids;
        const auto want = compute(x, how, true);
        EXPECT_TRUE(same_bits(compute(x, {.mask = mask, .reproducible = reproducible}, true), want))
            << "boolean, interleaved " << interleaved << ", " << n.to_string();
        EXPECT_TRUE(same_bits(compute(x, {.bias = bias, .reproducible = reproducible}, true), want))
            << "-inf, interleaved " << interleaved << ", " << n.to_string();
      }
    }
  }
}

TYPED_TEST(segments, of_one_document_change_no_bit) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const tensor<std::int64_t> of_q({n.L}, 5), of_k({n.S}, 5);
    EXPECT_TRUE(same_bits(compute(x, {.query_segments = of_q, .key_segments = of_k}, true), compute(x, {}, true)))
        << n.to_string();
  }
}

TYPED_TEST(segments, may_have_any_batch_axes_and_strides) {
  const auto q = normal<TypeParam>({2, 3, 2, 40, 5}, 1), k = normal<TypeParam>({3, 1, 70, 5}, 2),
             v = normal<TypeParam>({2, 1, 1, 70, 3}, 3);
  const auto of_q = random_ids({2, 3, 40}, 4, -1, 2), of_k = random_ids({2, 3, 70}, 5, -1, 2);
  const auto want = compute<TypeParam>(q, k, v, {.query_segments = of_q, .key_segments = of_k}, true);
  EXPECT_TRUE(as_reference(want, q, k, v, {.query_segments = of_q, .key_segments = of_k}));
  strided<std::int64_t> turned(of_q, {1, 80, 2}), backwards(of_k, {-700, 200, -2});
  EXPECT_TRUE(
      same_bits(compute<TypeParam>(q, k, v, {.query_segments = turned.view(), .key_segments = backwards.view()}, true), want));
  for (const extents& steps :
       {extents{0, 70, 1}, extents{70, 0, 1}, extents{0, 0, 1}}) {  // along some batch axes, or along none
    const tensor_view<const std::int64_t> some(of_k.data(), {2, 3, 70}, steps);
    const options how{.query_segments = of_q, .key_segments = some};
    EXPECT_TRUE(as_reference(compute<TypeParam>(q, k, v, how, true), q, k, v, how)) << steps.to_string();
  }
  unaligned<std::int64_t> placed(of_k);
  EXPECT_TRUE(same_bits(compute<TypeParam>(q, k, v, {.query_segments = of_q, .key_segments = placed.view()}, true), want));
  const std::int64_t one = 1;
  const tensor_view<const std::int64_t> same_q(&one, {2, 3, 40}, {0, 0, 0}), same_k(&one, {70}, {0});
  EXPECT_TRUE(same_bits(compute<TypeParam>(q, k, v, {.query_segments = same_q, .key_segments = same_k}, true),
                        compute<TypeParam>(q, k, v, {}, true)));
}

TYPED_TEST(segments, leak_nothing_of_each_other) {
  constexpr TypeParam nan = std::numeric_limits<TypeParam>::quiet_NaN(), inf = std::numeric_limits<TypeParam>::infinity();
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const score_arrays<TypeParam> arrays(n);
    for (const TypeParam poison : {nan, inf, -inf}) {
      // Segment 1 is poisoned: rows of other segments keep their bits, rows of its own do not.
      const auto y = poisoned(x, poison, [&](auto b, auto j) { return arrays.key_ids(b, j) == 1; });
      for (const bool reproducible : {false, true}) {
        const options how{.query_segments = arrays.query_ids, .key_segments = arrays.key_ids, .reproducible = reproducible};
        const auto clean = compute(x, how, true), dirty = compute(y, how, true);
        EXPECT_TRUE(as_reference(dirty, y.q, y.k, y.v, how)) << n.to_string() << ", " << poison;
        for_each_index(clean.out.shape(), [&](const extents& at) {
          if (arrays.query_ids(at[0], at[2]) == 1) return;
          EXPECT_EQ(dirty.out(at[0], at[1], at[2], at[3]), clean.out(at[0], at[1], at[2], at[3])) << n.to_string();
        });
      }
    }
  }
}

TEST(a_plan, skips_tiles_between_documents) {
  const std::int64_t length = 6144;
  const auto ids = documents(length, {1000, 2500, 3000, 5000});
  const problem_shape shapes{.q = {1, length, 64}, .k = {1, length, 64}, .v = {1, length, 64}};
  const plan_facts f = make_plan(shapes, {.query_segments = ids, .key_segments = ids}).facts();
  const double all = double(f.tiles_skipped + f.tiles_full + f.tiles_partial);
  // The documents' squares: (1000^2 + 1500^2 + 500^2 + 2000^2 + 1144^2) / 6144^2 = 0.233, and what tiles at their edges add.
  EXPECT_GT(double(f.tiles_skipped) / all, 0.70);
  EXPECT_GT(f.tiles_full, 0);
}

}  // namespace
}  // namespace attend::test

// Score functions, segments, sinks and dropout keep the promises of bits: threads, batches, later keys, forms of one mask.
#include <gtest/gtest.h>

#include <vector>

#include "support/parts.hpp"
#include "support/score.hpp"

namespace attend::test {
namespace {

template <class T>
struct bits_of_scores : testing::Test {};
TYPED_TEST_SUITE(bits_of_scores, element_types);

/// Few queries with keys split over threads, one block of lanes, several.
const std::vector<sizes> problems = {{.B = 2, .H = 4, .Hk = 2, .L = 1, .S = 2200, .E = 5, .Ev = 6},
                                     {.B = 2, .H = 2, .Hk = 2, .L = 5, .S = 300, .E = 9, .Ev = 8},
                                     {.B = 3, .H = 2, .Hk = 1, .L = 70, .S = quick() ? 130 : 1700, .E = 3, .Ev = 3}};

TYPED_TEST(bits_of_scores, do_not_depend_on_threads) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const score_arrays<TypeParam> arrays(n);
    for (auto [name, how] : arrays.calls()) {
      how.threads = 1;
      const auto one = compute(x, how, true);
      for (const int threads : {2, 3, 7}) {
        how.threads = threads;
        EXPECT_TRUE(same_bits(compute(x, how, true), one)) << name << ", " << threads << " threads, " << n.to_string();
      }
    }
  }
}

TYPED_TEST(bits_of_scores, are_those_of_a_plan) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const score_arrays<TypeParam> arrays(n);
    for (const auto& [name, how] : arrays.calls()) {
      const plan p = make_plan({.type = dtype_of<TypeParam>, .q = x.q.shape(), .k = x.k.shape(), .v = x.v.shape()}, how);
      const auto want = compute(x, how, true);
      computed<TypeParam> y{tensor<TypeParam>(want.out.shape()), tensor<accumulator<TypeParam>>(want.lse.shape()),
                            tensor<TypeParam>(want.weights.shape())};
      p.run(x.q, x.k, x.v, outputs{.out = y.out, .lse = y.lse, .weights = y.weights});
      EXPECT_TRUE(same_bits(y, want)) << name << ", " << n.to_string();
      const plan_facts f = p.facts();
      EXPECT_EQ(f.tiles_skipped + f.tiles_full + f.tiles_partial,
                n.B * n.Hk * f.lane_blocks * ((n.S + f.tile_keys - 1) / f.tile_keys))
          << name << ", " << n.to_string();
    }
  }
}

TYPED_TEST(bits_of_scores, do_not_depend_on_the_batch_or_later_heads) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const score_arrays<TypeParam> arrays(n);
    const std::int64_t b = n.B - 1, group = n.H / n.Hk;
    for (const auto& [name, how] : arrays.calls()) {
      if (how.dropout.p == 0 && !how.prefix.given()) {  // random words count the batch
        options one = how;
        if (one.query_segments.shape.rank() == 2) {
          one.query_segments = part(arrays.query_ids, 0, b, 1), one.key_segments = part(arrays.key_ids, 0, b, 1);
        }
        const auto only = part(arrays.bias, 0, b, 1);
        if (one.bias.shape.rank() == 4) one.bias = only;
        score_list list;
        for (score_step step : one.score) {
          if (step.numbers.shape.rank() == 4) step.numbers = only;
          list.push_back(step);
        }
        one.score = list;
        const auto whole = compute(x, how, true);
        const auto alone = compute<TypeParam>(part(x.q, 0, b, 1), part(x.k, 0, b, 1), part(x.v, 0, b, 1), one, true);
        EXPECT_TRUE(is_part(alone.out, whole.out, 0, b)) << name << ", " << n.to_string();
        EXPECT_TRUE(is_part(alone.weights, whole.weights, 0, b)) << name << ", " << n.to_string();
      }
      if (!how.alibi && how.score.size() == 0) {  // the paper's slopes depend on the number of heads
        options first = how;
        if (first.sinks) first.sinks = part(arrays.sinks, 0, 0, group);
        const auto whole = compute(x, how);
        const auto heads = compute<TypeParam>(part(x.q, 1, 0, group), part(x.k, 1, 0, 1), part(x.v, 1, 0, 1), first);
        EXPECT_TRUE(is_part(heads.out, whole.out, 1, 0)) << name << ", " << n.to_string();
      }
    }
  }
}

TYPED_TEST(bits_of_scores, are_those_of_every_form_of_a_mask) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const score_arrays<TypeParam> arrays(n);
    // A window of 20 before each query as structure, booleans, and a bias before or behind all other score functions.
    const std::int64_t first = n.S / 2;
    tensor<bool> mask({n.L, n.S});
    tensor<TypeParam> bias({n.L, n.S}, static_cast<TypeParam>(-infinity));
    for (std::int64_t i = 0; i < n.L; ++i)
      for (std::int64_t j = std::max<std::int64_t>(0, i + first - 20); j <= std::min(i + first, n.S - 1); ++j)
        mask(i, j) = true, bias(i, j) = TypeParam(0);
    for (const bool reproducible : {false, true}) {
      for (const options& base :
           {options{.softcap = 2.0}, options{.alibi = true}, options{.sinks = arrays.sinks},
            options{.dropout = {.p = 0.3, .seed = 4}},
            options{.query_segments = arrays.query_documents, .key_segments = arrays.key_documents},
            options{.softcap = 2.0, .alibi = arrays.slopes, .sinks = arrays.sinks, .dropout = {.p = 0.1, .seed = 5}}}) {
        options how = base;
        how.reproducible = reproducible, how.query_offset = first;
        how.causal = true, how.window = {20, {}};
        const auto structured = compute(x, how, true);
        how.causal = false, how.window = {};
        const auto expect_same = [&](const char* form) {
          EXPECT_TRUE(same_bits(compute(x, how, true), structured))
              << form << ", soft cap " << bool(how.softcap) << ", ALiBi " << bool(how.alibi) << ", sinks " << bool(how.sinks)
              << ", dropout " << how.dropout.p << ", " << n.to_string();
        };
        how.mask = mask;
        expect_same("boolean");
        how.mask = {};
        how.bias = bias;
        expect_same("-inf behind the soft cap");
        how.bias = {};
        how.score = {attend::bias(bias)};
        expect_same("-inf before everything");
      }
    }
  }
}

TYPED_TEST(bits_of_scores, do_not_change_with_what_changes_nothing) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const score_arrays<TypeParam> arrays(n);
    const tensor<bool> mask({n.L, n.S}, true);
    const tensor<std::int64_t> of_q({n.L}, 3), of_k({n.S}, 3);
    const tensor<TypeParam> none({n.H}, static_cast<TypeParam>(-infinity));
    for (const auto& [name, base] : arrays.calls()) {
      const auto want = compute(x, base, true);
      const auto expect_same = [&](const char* what, const auto& change) {
        options how = base;
        change(how);
        EXPECT_TRUE(same_bits(compute(x, how, true), want)) << name << " beside " << what << ", " << n.to_string();
      };
      expect_same("a mask of all", [&](options& how) { how.mask = mask; });
      if (!base.query_segments)
        expect_same("one segment", [&](options& how) { how.query_segments = of_q, how.key_segments = of_k; });
      if (!base.sinks) expect_same("sinks of -inf", [&](options& how) { how.sinks = none; });
      if (base.dropout.p == 0) expect_same("dropout of 0", [](options& how) { how.dropout = {.p = 0, .seed = 9}; });
    }
  }
}

TYPED_TEST(bits_of_scores, do_not_change_with_keys_that_are_hidden) {
  for (const std::int64_t L : {1, 70}) {
    const std::int64_t most = quick() ? 400 : 2000, seen = most - 300;
    const sizes n{.B = 1, .H = 2, .Hk = 1, .L = L, .S = most, .E = 4, .Ev = 3};
    const auto x = make_inputs<TypeParam>(n);
    const score_arrays<TypeParam> arrays(n);
    const auto fewer = part(arrays.key_ids, 1, 0, seen);
    for (const options& base :
         {options{.softcap = 2.0}, options{.alibi = arrays.slopes}, options{.sinks = arrays.sinks},
          options{.dropout = {.p = 0.3, .seed = 4}},
          options{.query_segments = arrays.query_ids, .key_segments = arrays.key_ids},
          options{.softcap = 2.0, .alibi = true, .sinks = arrays.sinks, .dropout = {.p = 0.1, .seed = 5}}}) {
      options how = base;
      how.causal = true, how.query_offset = seen - L;
      const auto whole = compute<TypeParam>(x.q, x.k, x.v, how);
      options cut = how;
      cut.key_lengths = seen;
      EXPECT_TRUE(same_bits(compute<TypeParam>(x.q, x.k, x.v, cut), whole)) << "length " << seen;
      if (how.key_segments) how.key_segments = fewer;
      EXPECT_TRUE(same_bits(compute<TypeParam>(x.q, part(x.k, 2, 0, seen), part(x.v, 2, 0, seen), how), whole))
          << seen << " keys";
    }
  }
}

TYPED_TEST(bits_of_scores, are_those_of_prefill_in_pieces_where_reproducible) {
  const sizes n{.B = 2, .H = 4, .Hk = 2, .L = 200, .S = 200, .E = 6, .Ev = 4};
  const auto x = make_inputs<TypeParam>(n);
  const score_arrays<TypeParam> arrays(n);
  const auto ids = random_ids({n.L}, 5, 0, 2);
  for (const options& base : {options{.softcap = 2.0}, options{.alibi = true}, options{.sinks = arrays.sinks},
                              options{.query_segments = ids, .key_segments = ids},
                              options{.window = {90, {}}, .softcap = 2.0, .alibi = arrays.slopes, .sinks = arrays.sinks}}) {
    options how = base;
    how.causal = how.reproducible = true;
    const auto whole = compute(x, how);
    std::int64_t first = 0;
    for (const std::int64_t piece : {1, 3, 64, 1, 100, 31}) {
      how.query_offset = first;
      if (base.query_segments)
        how.query_segments = part(ids, 0, first, piece), how.key_segments = part(ids, 0, 0, first + piece);
      const auto now =
          compute<TypeParam>(part(x.q, 2, first, piece), part(x.k, 2, 0, first + piece), part(x.v, 2, 0, first + piece), how);
      EXPECT_TRUE(is_part(now.out, whole.out, 2, first)) << "rows from " << first << ", ALiBi " << bool(how.alibi);
      first += piece;
    }
    ASSERT_EQ(first, n.L);
  }
}

}  // namespace
}  // namespace attend::test

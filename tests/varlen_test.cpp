// Packed sequences: every option against the reference, for sequences of any lengths, none and thousands of keys among them.
#include <gtest/gtest.h>

#include <vector>

#include "support/form.hpp"
#include "support/varlen.hpp"

namespace attend::test {
namespace {

template <class T>
struct varlen : testing::Test {};
TYPED_TEST_SUITE(varlen, element_types);

const sizes heads{.H = 4, .Hk = 2, .E = 5, .Ev = 3};

/// Empty on either side, one element, few and many queries, ends of tiles, chunks and blocks; first and last ones empty, too.
const std::vector<sequence_lengths> batches = {
    {{1, 1}},
    {{0, 0}, {5, 5}, {0, 3}, {4, 0}, {1, 130}, {70, 70}, {0, 0}},
    {{33, 96}, {32, 97}, {31, 95}, {64, 192}, {65, 193}, {1, 256}, {2, 257}, {8, 1024}, {9, 1025}},
    {{1, 9}, {1, 40}, {1, 7}, {1, 300}, {1, 1}, {1, 33}},
    {{17, 20}, {1, 1100}, {40, 40}, {3, 2}, {130, 1600}}};

/// One sequence of thousands of keys among many short ones.
sequence_lengths one_long_among_short(std::int64_t keys) {
  sequence_lengths lengths;
  for (std::int64_t s = 0; s < 60; ++s) lengths.emplace_back(1 + s % 7, 1 + (s * 5) % 23);
  lengths[31] = {20, keys};
  return lengths;
}

TYPED_TEST(varlen, sequences_of_any_lengths_are_right) {
  for (const sequence_lengths& lengths : batches) {
    for (const sizes& n : {heads, sizes{.H = 1, .Hk = 1, .E = 1, .Ev = 1}, sizes{.H = 7, .Hk = 1, .E = 17, .Ev = 9},
                           sizes{.H = 1, .Hk = 1, .E = 64, .Ev = 33}}) {
      const auto x = make_packed<TypeParam>(lengths, n);
      EXPECT_TRUE(right(x)) << n.to_string();
      EXPECT_TRUE(right(x, {.causal = true})) << n.to_string();
    }
    EXPECT_TRUE(right(make_packed<TypeParam>(lengths, heads), {.causal = true, .reproducible = true}));
  }
}

TYPED_TEST(varlen, one_long_sequence_among_many_short_ones_is_right) {
  const auto x = make_packed<TypeParam>(one_long_among_short(3000), heads);
  for (const int threads : {1, 3}) {
    EXPECT_TRUE(right(x, {.threads = threads}));
    EXPECT_TRUE(right(x, {.causal = true, .window = {700, {}}, .threads = threads}));
  }
}

TYPED_TEST(varlen, thousands_of_sequences_are_right) {
  sequence_lengths lengths;
  for (std::int64_t s = 0; s < 4000; ++s) lengths.emplace_back(s % 3, (s * 7) % 5);
  const auto x = make_packed<TypeParam>(lengths, {.H = 2, .Hk = 1, .E = 2, .Ev = 1});
  EXPECT_TRUE(right(x, {.causal = true, .threads = 3}));
}

TYPED_TEST(varlen, positions_are_those_of_each_sequence) {
  for (const sequence_lengths& lengths : {batches[1], batches[3], sequence_lengths{{33, 96}, {16, 97}, {64, 50}, {1, 1030}}}) {
    const auto x = make_packed<TypeParam>(lengths, heads);
    const auto table = normal<TypeParam>({4, 21}, 5);
    tensor<std::int64_t> offset({x.count()}), prefix({x.count()}), keys({x.count()});
    for (std::int64_t s = 0; s < x.count(); ++s) {
      const auto [L, S] = lengths[std::size_t(s)];
      offset(s) = 7 * s - 10, prefix(s) = s % 4, keys(s) = S - S * (s % 3) / 4;
    }
    for (const query_position& at : {query_position(), query_position(upper_left), query_position(lower_right),
                                     query_position(3), query_position(offset)}) {
      for (const bool with_lengths : {false, true}) {
        options base{.query_offset = at};
        if (with_lengths) base.key_lengths = keys;
        const auto with = [&](const char* what, const auto& change) {
          options how = base;
          change(how);
          EXPECT_TRUE(right(x, how)) << what << ", lengths " << with_lengths << ", " << x.count() << " sequences";
        };
        with("nothing", [](options&) {});
        with("causal", [](options& how) { how.causal = true; });
        with("window", [](options& how) { how.window = {20, 3}; });
        with("prefix", [&](options& how) { how.causal = true, how.prefix = prefix; });
        with("table", [&](options& how) { how.relative = table; });
        with("ALiBi", [](options& how) { how.alibi = true; });
        with("reproducible",
             [&](options& how) { how.causal = how.reproducible = true, how.alibi = true, how.relative = table; });
      }
    }
  }
}

TYPED_TEST(varlen, segments_and_score_functions_are_right) {
  for (const sequence_lengths& lengths : batches) {
    const auto x = make_packed<TypeParam>(lengths, heads);
    const auto of_q = random_ids({x.queries()}, 3, -1, 1), of_k = random_ids({x.keys()}, 4, -1, 1);
    const auto slopes = normal<TypeParam>({4}, 5, 0.2), sinks = normal<TypeParam>({4}, 6, 2);
    for (const bool reproducible : {false, true}) {
      for (const options& base : {options{.query_segments = of_q, .key_segments = of_k}, options{.softcap = 1.5},
                                  options{.alibi = slopes}, options{.sinks = sinks}, options{.dropout = {.p = 0.4, .seed = 6}},
                                  options{.softcap = 4, .score = {alibi(slopes), soft_cap(3)}},
                                  options{.causal = true,
                                          .window = {200, {}},
                                          .query_segments = of_q,
                                          .key_segments = of_k,
                                          .scale = 0.7,
                                          .softcap = 2,
                                          .alibi = true,
                                          .sinks = sinks,
                                          .dropout = {.p = 0.1, .seed = 7}}}) {
        options how = base;
        how.reproducible = reproducible;
        EXPECT_TRUE(right(x, how)) << x.count() << " sequences, soft cap " << bool(how.softcap) << ", ALiBi " << bool(how.alibi)
                                   << ", sinks " << bool(how.sinks) << ", dropout " << how.dropout.p << ", segments "
                                   << bool(how.query_segments);
      }
    }
  }
}

TYPED_TEST(varlen, every_form_is_right) {
  const auto x = make_packed<TypeParam>({{3, 5}, {0, 2}, {40, 110}, {2, 0}, {1, 300}}, heads);
  const auto w = normal<TypeParam>({heads.E}, 9);
  for (const options& how : every_form(w, {.causal = true})) EXPECT_TRUE(right(x, how)) << form_of(how);
}

TYPED_TEST(varlen, grids_are_those_of_every_sequence) {
  const auto x = make_packed<TypeParam>({{42, 42}, {42, 42}, {42, 42}}, heads);
  const auto table = normal<TypeParam>({4, 5, 3}, 5);
  for (const border edge : {border::clip, border::shift}) {
    EXPECT_TRUE(
        right(x, {.grid = {6, 7}, .neighborhood = {.kernel = {3, 5}, .border = edge}, .relative = table, .softcap = 3}));
  }
}

TYPED_TEST(varlen, no_sequence_and_empty_dimensions_give_empty_results) {
  EXPECT_EQ(compute(make_packed<TypeParam>({}, heads)).out.size(), 0) << "no sequence";
  EXPECT_EQ(compute(make_packed<TypeParam>({{0, 5}, {0, 0}}, heads)).out.size(), 0) << "no query";
  const auto keyless = compute(make_packed<TypeParam>({{3, 0}, {20, 0}}, heads));
  for (const auto value : keyless.out) EXPECT_EQ(value, 0);
  for (const auto value : keyless.lse) EXPECT_EQ(double(value), -infinity);
  for (const sizes& n : {sizes{.H = 2, .Hk = 1, .E = 0, .Ev = 3}, sizes{.H = 2, .Hk = 1, .E = 3, .Ev = 0},
                         sizes{.H = 0, .Hk = 0, .E = 3, .Ev = 3}}) {
    const auto x = make_packed<TypeParam>({{3, 5}, {20, 7}}, n);
    EXPECT_TRUE(right(x)) << n.to_string();
  }
}

TYPED_TEST(varlen, strides_of_every_array_change_no_bit) {
  const auto x = make_packed<TypeParam>(batches[1], heads);
  const auto of_q = random_ids({x.queries()}, 3, -1, 1), of_k = random_ids({x.keys()}, 4, -1, 1);
  const options plain{.causal = true, .query_segments = of_q, .key_segments = of_k};
  const auto want = compute(x, plain);
  for (const std::int64_t step : {2, -1}) {
    const auto spread = [&](const tensor<TypeParam>& from) {
      const extents& n = from.shape();
      return strided<TypeParam>(from, {step * n[1] * n[2], step, -step * n[1]});
    };
    auto q = spread(x.q), k = spread(x.k), v = spread(x.v);
    strided<std::int64_t> at_q(x.at_q, {step}), at_k(x.at_k, {-3 * step}), ids_q(of_q, {2 * step}), ids_k(of_k, {step});
    strided<TypeParam> out(want.out.shape(), {step * 4 * 3, step * 3, -step});
    strided<accumulator<TypeParam>> lse(want.lse.shape(), {step, 2 * x.queries()});
    options how = plain;
    how.query_segments = ids_q.view(), how.key_segments = ids_k.view();
    attention_varlen(q.view(), k.view(), v.view(), at_q.view(), at_k.view(), {.out = out.view(), .lse = lse.view()}, how);
    EXPECT_TRUE(same_bits(out.values(), want.out)) << step;
    EXPECT_TRUE(same_bits(lse.values(), want.lse)) << step;
    EXPECT_TRUE(out.gaps_are_intact() && lse.gaps_are_intact()) << step;
  }
  unaligned<TypeParam> q(x.q), k(x.k), v(x.v), out(want.out.shape());
  unaligned<std::int64_t> at_q(x.at_q), at_k(x.at_k);
  attention_varlen(array_view(q.view()), k.view(), v.view(), at_q.view(), at_k.view(), outputs{.out = out.view()}, plain);
  EXPECT_TRUE(same_bits(out.values(), want.out)) << "unaligned";
}

TYPED_TEST(varlen, results_may_be_wanted_alone_and_owned) {
  const auto x = make_packed<TypeParam>(batches[1], heads);
  const auto want = compute(x, {.causal = true});
  EXPECT_EQ(output_shape_varlen(x.q, x.k, x.v, x.at_q, x.at_k), want.out.shape());
  const tensor<TypeParam> owned = attention_varlen(x.q, x.k, x.v, x.at_q, x.at_k, {.causal = true});
  EXPECT_TRUE(same_bits(owned, want.out));
  tensor<accumulator<TypeParam>> lse(want.lse.shape());
  attention_varlen(x.q, x.k, x.v, x.at_q, x.at_k, outputs{.lse = lse}, {.causal = true});
  EXPECT_TRUE(same_bits(lse, want.lse));
}

}  // namespace
}  // namespace attend::test

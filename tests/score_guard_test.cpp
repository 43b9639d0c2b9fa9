// Nothing outside segments, slopes, sinks, biases of a list and boundaries is touched: each borders on a page that faults.
#include <gtest/gtest.h>

#include <vector>

#include "support/varlen.hpp"

namespace attend::test {
namespace {

template <class T>
struct guarded_scores : testing::Test {};
TYPED_TEST_SUITE(guarded_scores, element_types);

const std::vector<side> sides = {side::ends_at_page, side::begins_at_page};

/// The arrays of score_arrays at guard pages, and its calls with them.
template <class T>
struct guarded_arrays {
  guarded<std::int64_t> query_documents, key_documents, query_ids, key_ids;
  guarded<T> slopes, sinks, bias, row;

  guarded_arrays(const score_arrays<T>& from, side where)
      : query_documents(from.query_documents, where),
        key_documents(from.key_documents, where),
        query_ids(from.query_ids, where),
        key_ids(from.key_ids, where),
        slopes(from.slopes, where),
        sinks(from.sinks, where),
        bias(from.bias, where),
        row(from.row, where) {}

  /// The same view of the copy at the page.
  array_view placed(const array_view& x, const score_arrays<T>& from) const {
    if (x.data == from.query_documents.data()) return query_documents.view();
    if (x.data == from.key_documents.data()) return key_documents.view();
    if (x.data == from.query_ids.data()) return query_ids.view();
    if (x.data == from.key_ids.data()) return key_ids.view();
    if (x.data == from.slopes.data()) return slopes.view();
    if (x.data == from.sinks.data()) return sinks.view();
    if (x.data == from.bias.data()) return bias.view();
    if (x.data == from.row.data()) return row.view();
    return x;
  }

  options placed(options how, const score_arrays<T>& from) const {
    for (array_view* x : {&how.query_segments, &how.key_segments, &how.sinks, &how.bias}) *x = placed(*x, from);
    if (how.alibi.given()) how.alibi = placed(how.alibi.given(), from);
    score_list list;
    for (score_step step : how.score) {
      step.numbers = placed(step.numbers, from);
      if (step.slopes.given()) step.slopes = placed(step.slopes.given(), from);
      list.push_back(step);
    }
    how.score = list;
    return how;
  }
};

TYPED_TEST(guarded_scores, touch_nothing_outside_their_arrays) {
  for (const side where : sides) {
    for (const std::int64_t L : {1, 5, 33, 70}) {
      for (const std::int64_t S : {1, 7, 16, 17, 31, 64, 65, 95, 96, 97, 130, 257}) {
        if (quick() && S % 2 == 0) continue;
        const sizes n{.B = 2, .H = 3, .Hk = 1, .L = L, .S = S, .E = 3, .Ev = 5};
        const auto x = make_inputs<TypeParam>(n);
        const score_arrays<TypeParam> arrays(n);
        const guarded_arrays<TypeParam> near(arrays, where);
        const guarded<TypeParam> q(x.q, where), k(x.k, where), v(x.v, where);
        for (const auto& [name, how] : arrays.calls()) {
          const options placed = near.placed(how, arrays);
          const auto want = compute(x, how, true);
          EXPECT_TRUE(same_bits(compute<TypeParam>(q.view(), k.view(), v.view(), placed, true), want)) << name << n.to_string();
          const guarded<TypeParam> scores(want.weights.shape(), where);
          attention(q.view(), k.view(), v.view(), outputs{.scores = scores.view()}, placed);
          EXPECT_TRUE(same_bits(scores.values(), scores_of<TypeParam>(x.q, x.k, x.v, how, score_stage::biased)))
              << name << n.to_string();
        }
      }
    }
  }
}

TYPED_TEST(guarded_scores, are_not_made_of_keys_past_a_length) {
  for (const std::int64_t length : {0, 1, 31, 95, 96, 97, 130}) {
    for (const std::int64_t L : {1, 4, 65}) {
      const auto x = make_inputs<TypeParam>({.B = 1, .H = 1, .Hk = 1, .L = L, .S = length, .E = 5, .Ev = 3});
      const guarded<TypeParam> k(x.k, side::ends_at_page), v(x.v, side::ends_at_page);
      const tensor_view<const TypeParam> long_k(k.view().data, {1, 1, 400, 5}), long_v(v.view().data, {1, 1, 400, 3});
      for (const score_stage stage : {score_stage::scaled, score_stage::capped, score_stage::biased}) {
        const options how{.query_offset = 3, .key_lengths = length, .softcap = 2, .alibi = true};
        const auto got = scores_of<TypeParam>(x.q, long_k, long_v, how, stage);
        options whole = how;
        whole.key_lengths = {};
        const auto want = scores_of<TypeParam>(x.q, x.k, x.v, whole, stage);
        for_each_index(got.shape(), [&](const extents& at) {
          if (at[3] < length)
            EXPECT_EQ(got(0, 0, at[2], at[3]), want(0, 0, at[2], at[3]));
          else
            EXPECT_EQ(double(got(0, 0, at[2], at[3])), -infinity);
        });
      }
    }
  }
}

TYPED_TEST(guarded_scores, of_packed_sequences_touch_nothing_outside) {
  for (const side where : sides) {
    for (const sequence_lengths& lengths :
         {sequence_lengths{{1, 1}}, sequence_lengths{{0, 0}, {5, 5}, {3, 0}, {0, 4}, {70, 97}, {1, 300}},
          sequence_lengths{{33, 31}, {1, 17}, {64, 96}, {2, 65}}}) {
      for (const sizes& n : {sizes{.H = 3, .Hk = 1, .E = 5, .Ev = 3}, sizes{.H = 2, .Hk = 2, .E = 17, .Ev = 15}}) {
        const auto x = make_packed<TypeParam>(lengths, n);
        const auto of_q = random_ids({x.queries()}, 3, -1, 1), of_k = random_ids({x.keys()}, 4, -1, 1);
        const auto slopes = normal<TypeParam>({n.H}, 5), sinks = normal<TypeParam>({n.H}, 6);
        const guarded<TypeParam> q(x.q, where), k(x.k, where), v(x.v, where), near_slopes(slopes, where),
            near_sinks(sinks, where);
        const guarded<std::int64_t> at_q(x.at_q, where), at_k(x.at_k, where), ids_q(of_q, where), ids_k(of_k, where);
        for (const bool segments : {false, true}) {
          options plain{.causal = true, .alibi = slopes, .sinks = sinks}, near = plain;
          near.alibi = near_slopes.view(), near.sinks = near_sinks.view();
          if (segments) {
            plain.query_segments = of_q, plain.key_segments = of_k;
            near.query_segments = ids_q.view(), near.key_segments = ids_k.view();
          }
          const auto want = compute(x, plain);
          const guarded<TypeParam> out(want.out.shape(), where);
          const guarded<accumulator<TypeParam>> lse(want.lse.shape(), where);
          attention_varlen(q.view(), k.view(), v.view(), at_q.view(), at_k.view(),
                           outputs{.out = out.view(), .lse = lse.view()}, near);
          EXPECT_TRUE(same_bits(out.values(), want.out)) << n.to_string();
          EXPECT_TRUE(same_bits(lse.values(), want.lse)) << n.to_string();
        }
      }
    }
  }
}

}  // namespace
}  // namespace attend::test

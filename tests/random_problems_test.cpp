// Problems with everything drawn at random at once: sizes, options, layouts, strides, threads. A failure names its seed.
#include <gtest/gtest.h>

#include <sstream>

#include "support/form.hpp"
#include "support/score.hpp"
#include "support/varlen.hpp"

namespace attend::test {
namespace {

template <class T>
struct random_problems : testing::Test {};
TYPED_TEST_SUITE(random_problems, stored_types);

extents axes_of(const sizes& n, std::int64_t heads, std::int64_t length, std::int64_t width, layout order) {
  return order == layout::bhld ? extents{n.B, heads, length, width} : extents{n.B, length, heads, width};
}

/// Strides that permute the axes in memory, leave gaps and turn some axes around.
extents any_strides(const extents& shape, random_source& draw) {
  int order[max_rank] = {};
  for (int axis = 0; axis < shape.rank(); ++axis) order[axis] = axis;
  for (int axis = shape.rank() - 1; axis > 0; --axis) std::swap(order[axis], order[draw.between(0, axis)]);
  extents steps = shape;
  std::int64_t step = draw.between(1, 3);
  for (int at = 0; at < shape.rank(); ++at) {
    steps[order[at]] = draw.coin(0.3) ? -step : step;
    step = step * std::max<std::int64_t>(1, shape[order[at]]) + draw.between(0, 2);
  }
  return steps;
}

/// Whether a problem of this size is refused with these options.
bool is_refused(const sizes& n, const options& how) {
  const tensor_view<const double> any(nullptr, {1, n.L, 0}, {0, 0, 0});
  return check(any, any, any, {}, {.grid = how.grid, .neighborhood = how.neighborhood}).has_value();
}

TYPED_TEST(random_problems, are_those_of_the_reference) {
  const std::uint64_t count = quick() ? 60 : 220;
  for (std::uint64_t seed = 1; seed <= count; ++seed) {
    random_source draw(seed);
    sizes n;
    n.B = draw.between(1, 3);
    n.Hk = draw.between(1, 3);
    n.H = n.Hk * draw.one_of<std::int64_t>({1, 1, 2, 3, 4, 7});
    n.L = draw.one_of<std::int64_t>({1, 1, 2, 3, 5, 8, 17, 33, 64, 65, 100, 130});
    n.S = draw.one_of<std::int64_t>({1, 2, 5, 16, 31, 64, 95, 96, 97, 150, 193, 400, 1600});
    if (n.L * n.S > 20'000) n.S = 193;
    n.E = draw.one_of<std::int64_t>({0, 1, 3, 8, 15, 16, 17, 32, 40, 64, 65, 96});
    n.Ev = draw.one_of<std::int64_t>({1, 2, 5, 8, 16, 17, 31, 33, 64, 80});
    if (draw.coin()) n.S = std::max<std::int64_t>(n.S / 2, 1);

    options how;
    random_source form(seed + 5000);
    if (form.coin(0.25)) {
      how.grid = {form.one_of<std::int64_t>({1, 2, 3, 7, 10}), form.one_of<std::int64_t>({1, 2, 5, 8, 13, 30})};
      n.L = n.S = how.grid.rows * how.grid.columns;
    }
    std::ostringstream what;
    what << "seed " << seed << ": " << n.to_string();
    how.layout = draw.one_of({layout::bhld, layout::blhd});
    how.reproducible = draw.coin();
    how.threads = static_cast<int>(draw.between(0, 4));
    if (draw.coin(0.3)) how.scale = draw.normal();
    how.causal = draw.coin(0.4);
    if (draw.coin(0.4)) {
      if (draw.coin(0.7)) how.window.left = draw.between(0, n.S);
      if (draw.coin(0.7)) how.window.right = draw.between(0, n.S / 2);
    }
    tensor<std::int64_t> offset({n.B}), prefix({n.B}), lengths({n.B});
    for (std::int64_t b = 0; b < n.B; ++b) {
      offset(b) = draw.between(-n.L - 3, n.S + 3);
      prefix(b) = draw.between(0, n.S / 3 + 2);
      lengths(b) = draw.between(0, n.S);
    }
    if (how.causal || how.window) {
      how.query_offset =
          draw.one_of<query_position>({upper_left, lower_right, query_position(offset(0)), query_position(offset)});
      if (draw.coin(0.3)) how.prefix = draw.one_of<batch_integers>({prefix(0), batch_integers(prefix)});
    }
    if (draw.coin(0.3)) how.key_lengths = draw.one_of<batch_integers>({lengths(0), batch_integers(lengths)});
    const auto mask = coins(any_broadcast(n, draw), seed + 1000, 0.8);
    auto bias = normal<TypeParam>(any_broadcast(n, draw), seed + 2000, 2);
    for (TypeParam& value : bias)
      if (draw.coin(0.1)) value = static_cast<TypeParam>(-infinity);
    strided<bool> placed_mask(mask, any_strides(mask.shape(), draw));
    strided<TypeParam> placed_bias(bias, any_strides(bias.shape(), draw));
    if (draw.coin(0.3)) how.mask = placed_mask.view();
    if (draw.coin(0.3)) how.bias = placed_bias.view();
    const auto w = normal<TypeParam>({n.E}, seed + 3000);
    if (form.coin(0.7)) {
      const auto all = every_form(w);
      const options& one = all[static_cast<std::size_t>(form.between(0, static_cast<std::int64_t>(all.size()) - 1))];
      how.compatibility = one.compatibility, how.normalizer = one.normalizer;
    }
    if (how.grid && form.coin(0.8)) {
      how.neighborhood = {.kernel = {2 * form.between(0, 4) + 1, 2 * form.between(0, 4) + 1},
                          .dilation = {form.between(1, 3), form.between(1, 3)}};
      how.neighborhood.border = border::shift;
      if (form.coin() || is_refused(n, how)) how.neighborhood.border = border::clip;
    }
    const std::int64_t table_heads = form.coin() ? 1 : n.H, reach = form.one_of<std::int64_t>({0, 1, 4, 30, 2000});
    auto table = normal<TypeParam>(how.grid ? extents{table_heads, 2 * form.between(0, 5) + 1, 2 * form.between(0, 9) + 1}
                                            : extents{table_heads, 2 * reach + 1},
                                   seed + 4000);
    for (TypeParam& value : table)
      if (form.coin(0.02)) value = static_cast<TypeParam>(-infinity);
    strided<TypeParam> placed_table(table, any_strides(table.shape(), form));
    if (form.coin(0.4)) how.relative = placed_table.view();
    random_source score(seed + 9000);
    const auto of_q = random_ids(score.coin() ? extents{n.L} : extents{n.B, n.L}, seed + 9001, -1, score.between(0, 4));
    const auto of_k = score.coin(0.4)   ? documents(n.S, {score.between(0, n.S), score.between(0, n.S)})
                      : score.coin(0.5) ? random_ids({n.S}, seed + 9002, -1, 3)
                                        : random_ids({n.B, n.S}, seed + 9002, 0, 2);
    strided<std::int64_t> placed_q(of_q, any_strides(of_q.shape(), score)), placed_k(of_k, any_strides(of_k.shape(), score));
    if (score.coin(0.3)) how.query_segments = placed_q.view(), how.key_segments = placed_k.view();
    if (score.coin(0.3)) how.softcap = std::exp(2 * score.normal());
    const auto slopes = normal<TypeParam>({n.H}, seed + 9003, 0.2), sinks = normal<TypeParam>({n.H}, seed + 9004, 3);
    strided<TypeParam> placed_sinks(sinks, {score.one_of<std::int64_t>({1, 2, -1})});
    if (score.coin(0.3)) how.alibi = score.coin() ? alibi_slopes(true) : alibi_slopes(slopes);
    if (score.coin(0.3) && how.normalizer == normalizer::softmax) how.sinks = placed_sinks.view();
    if (score.coin(0.25)) how.dropout = {.p = score.one_of({0.1, 0.5, 0.9}), .seed = score.bits()};
    auto row = normal<TypeParam>(any_broadcast(n, score), seed + 9005, 2);
    for (TypeParam& value : row)
      if (score.coin(0.05)) value = static_cast<TypeParam>(-infinity);
    for (auto steps = score.coin(0.6) ? 0 : score.between(1, 4); steps > 0; --steps) {
      switch (score.between(0, how.alibi ? 1 : 2)) {
        case 0: how.score.push_back(soft_cap(std::exp(2 * score.normal()))); break;
        case 1: how.score.push_back(attend::bias(row)); break;
        default: how.score.push_back(alibi(slopes)), steps = 1;
      }
    }
    if (!how.query_offset.given()) how.query_offset = offset;
    what << ", " << form_of(how) << ", segments " << bool(how.query_segments) << ", soft cap " << how.softcap.value_or(0)
         << ", ALiBi " << bool(how.alibi) << ", sinks " << bool(how.sinks) << ", dropout " << how.dropout.p << ", list of "
         << how.score.size() << ", grid " << how.grid.rows << " x " << how.grid.columns << ", neighborhood "
         << bool(how.neighborhood) << ", relative " << bool(how.relative) << ", causal " << how.causal << ", window "
         << bool(how.window) << ", mask " << bool(how.mask) << ", bias " << bool(how.bias) << ", lengths "
         << how.key_lengths.given();

    const auto place = [&](std::int64_t heads, std::int64_t length, std::int64_t width, std::uint64_t own) {
      const extents shape = axes_of(n, heads, length, width, how.layout);
      const extents steps = draw.coin() ? detail::contiguous_strides(shape) : any_strides(shape, draw);
      return strided<TypeParam>(normal<TypeParam>(shape, own), steps);
    };
    auto q = place(n.H, n.L, n.E, 3 * seed), k = place(n.Hk, n.S, n.E, 3 * seed + 1), v = place(n.Hk, n.S, n.Ev, 3 * seed + 2);
    const extents shape = output_shape(q.view(), k.view(), v.view(), how);
    strided<TypeParam> out(shape, any_strides(shape, draw));
    const auto all = compute<TypeParam>(q.view(), k.view(), v.view(), how, true);
    EXPECT_TRUE(as_reference(all, q.view(), k.view(), v.view(), how)) << what.str();
    attention(q.view(), k.view(), v.view(), outputs{.out = out.view()}, how);
    EXPECT_TRUE(same_bits(out.values(), all.out)) << what.str();
    EXPECT_TRUE(out.gaps_are_intact()) << what.str();
    if (how.dropout.p == 0) {
      const score_stage stage = score.one_of({score_stage::scaled, score_stage::capped, score_stage::biased});
      EXPECT_TRUE(scores_right<TypeParam>(q.view(), k.view(), v.view(), how, stage)) << what.str();
    }
    if (testing::Test::HasFailure()) return;  // one failing seed says enough
  }
}

TYPED_TEST(random_problems, of_packed_sequences_are_those_of_the_reference) {
  const std::uint64_t count = quick() ? 25 : 90;
  for (std::uint64_t seed = 1; seed <= count; ++seed) {
    random_source draw(seed);
    sizes n;
    n.Hk = draw.between(1, 3);
    n.H = n.Hk * draw.one_of<std::int64_t>({1, 1, 2, 3, 7});
    n.E = draw.one_of<std::int64_t>({0, 1, 3, 8, 17, 32});
    n.Ev = draw.one_of<std::int64_t>({1, 2, 5, 16, 33});
    sequence_lengths lengths;
    for (auto sequences = draw.between(0, 12); sequences > 0; --sequences)
      lengths.emplace_back(draw.one_of<std::int64_t>({0, 1, 1, 2, 3, 8, 17, 33, 65}),
                           draw.one_of<std::int64_t>({0, 1, 5, 16, 31, 95, 97, 150, 260}));
    if (draw.coin(0.2)) lengths.emplace_back(draw.between(1, 20), draw.between(1000, 2500));
    const auto x = make_packed<TypeParam>(lengths, n, seed);
    tensor<std::int64_t> offset({x.count()}), prefix({x.count()}), keys({x.count()});
    for (std::int64_t s = 0; s < x.count(); ++s) {
      const auto [L, S] = lengths[std::size_t(s)];
      offset(s) = draw.between(-L - 3, S + 3), prefix(s) = draw.between(0, S / 3 + 2), keys(s) = draw.between(0, S);
    }
    options how{.causal = draw.coin(0.5)};
    if (draw.coin(0.3)) how.window = {draw.between(0, 100), draw.between(0, 20)};
    if (draw.coin(0.3)) how.query_offset = draw.coin() ? query_position(offset) : query_position(upper_left);
    if ((how.causal || how.window) && draw.coin(0.3)) how.prefix = prefix;
    if (draw.coin(0.3)) how.key_lengths = keys;
    const auto of_q = random_ids({x.queries()}, seed + 1, -1, 2), of_k = random_ids({x.keys()}, seed + 2, -1, 2);
    if (draw.coin(0.3)) how.query_segments = of_q, how.key_segments = of_k;
    const auto w = normal<TypeParam>({n.E}, seed + 3), slopes = normal<TypeParam>({n.H}, seed + 4, 0.2),
               sinks = normal<TypeParam>({n.H}, seed + 5, 2), table = normal<TypeParam>({n.H, 21}, seed + 6);
    if (draw.coin(0.4)) {
      const auto all = every_form(w);
      const options& one = all[std::size_t(draw.between(0, std::int64_t(all.size()) - 1))];
      how.compatibility = one.compatibility, how.normalizer = one.normalizer;
    }
    if (draw.coin(0.3)) how.softcap = 2;
    if (draw.coin(0.3)) how.alibi = draw.coin() ? alibi_slopes(true) : alibi_slopes(slopes);
    if (draw.coin(0.3)) how.relative = table;
    if (draw.coin(0.3) && how.normalizer == normalizer::softmax) how.sinks = sinks;
    if (draw.coin(0.2)) how.dropout = {.p = 0.4, .seed = draw.bits()};
    how.reproducible = draw.coin(0.3);
    how.threads = int(draw.between(0, 4));
    EXPECT_TRUE(right(x, how)) << "seed " << seed << ": " << n.to_string() << ", " << x.count() << " sequences, "
                               << form_of(how) << ", causal " << how.causal << ", segments " << bool(how.query_segments)
                               << ", ALiBi " << bool(how.alibi) << ", sinks " << bool(how.sinks) << ", dropout "
                               << how.dropout.p;
    if (testing::Test::HasFailure()) return;  // one failing seed says enough
  }
}

}  // namespace
}  // namespace attend::test

// Backward calls with everything drawn at random at once: sizes, options, layouts, threads. A failure names its seed.
#include <gtest/gtest.h>

#include <sstream>

#include "support/form.hpp"
#include "support/gradients.hpp"
#include "support/score.hpp"

namespace attend::test {
namespace {

template <class T>
struct random_gradients : testing::Test {};
TYPED_TEST_SUITE(random_gradients, stored_types);

TYPED_TEST(random_gradients, are_those_of_the_reference) {
  const std::uint64_t count = quick() ? 40 : 160;
  for (std::uint64_t seed = 1; seed <= count; ++seed) {
    random_source draw(seed);
    sizes n;
    n.B = draw.between(1, 3);
    n.Hk = draw.between(1, 2);
    n.H = n.Hk * draw.one_of<std::int64_t>({1, 1, 2, 3, 7});
    n.L = draw.one_of<std::int64_t>({1, 2, 5, 17, 33, 64, 65, 100});
    n.S = draw.one_of<std::int64_t>({1, 2, 16, 31, 95, 96, 97, 150, 400, 800});
    n.E = draw.one_of<std::int64_t>({1, 3, 8, 17, 32, 40});
    n.Ev = draw.one_of<std::int64_t>({1, 2, 8, 17, 33});
    options how;
    if (draw.coin(0.2)) {
      how.grid = {draw.one_of<std::int64_t>({1, 3, 7, 10}), draw.one_of<std::int64_t>({1, 5, 13})};
      n.L = n.S = how.grid.rows * how.grid.columns;
      how.neighborhood = {.kernel = {2 * draw.between(0, 2) + 1, 2 * draw.between(0, 3) + 1},
                          .dilation = {draw.between(1, 2), 1}};
    }
    how.layout = draw.one_of({layout::bhld, layout::blhd});
    how.threads = static_cast<int>(draw.between(0, 4));
    if (draw.coin(0.3)) how.scale = draw.normal();
    how.causal = draw.coin(0.4);
    if (draw.coin(0.4)) how.window = {draw.between(0, n.S), draw.between(0, n.S / 2)};
    tensor<std::int64_t> offset({n.B}), prefix({n.B}), lengths({n.B});
    for (std::int64_t b = 0; b < n.B; ++b)
      offset(b) = draw.between(-n.L - 3, n.S + 3), prefix(b) = draw.between(0, n.S / 3 + 2), lengths(b) = draw.between(0, n.S);
    how.query_offset = draw.one_of<query_position>({upper_left, lower_right, query_position(offset)});
    if ((how.causal || how.window) && draw.coin(0.3)) how.prefix = prefix;
    if (draw.coin(0.3)) how.key_lengths = lengths;
    const auto mask = coins(any_broadcast(n, draw), seed + 1000, 0.8);
    auto bias = normal<TypeParam>(any_broadcast(n, draw), seed + 2000, 2),
         row = normal<TypeParam>(any_broadcast(n, draw), seed + 2500);
    for (TypeParam& value : bias)
      if (draw.coin(0.1)) value = static_cast<TypeParam>(-infinity);
    if (draw.coin(0.3)) how.mask = mask;
    if (draw.coin(0.5)) how.bias = bias;
    const std::int64_t reach = draw.one_of<std::int64_t>({0, 1, 4, 30});
    const auto table =
        normal<TypeParam>(how.grid ? extents{draw.coin() ? 1 : n.H, 2 * draw.between(0, 3) + 1, 2 * draw.between(0, 5) + 1}
                                   : extents{draw.coin() ? 1 : n.H, 2 * reach + 1},
                          seed + 3000);
    if (draw.coin(0.3)) how.relative = table;
    const auto of_q = random_ids({n.B, n.L}, seed + 1, -1, 2), of_k = random_ids({n.S}, seed + 2, -1, 2);
    if (draw.coin(0.2)) how.query_segments = of_q, how.key_segments = of_k;
    if (draw.coin(0.3)) how.softcap = std::exp(2 * draw.normal());
    const auto slopes = normal<TypeParam>({n.H}, seed + 4000, 0.2), sinks = normal<TypeParam>({n.H}, seed + 5000, 2);
    if (draw.coin(0.3)) how.sinks = sinks;
    if (draw.coin(0.2)) how.dropout = {.p = draw.one_of({0.1, 0.5, 0.9, 1.0}), .seed = draw.bits()};
    bool sloped = false;
    for (auto steps = draw.coin(0.6) ? 0 : draw.between(1, 4); steps > 0; --steps) {
      const auto what = draw.between(0, 2);
      if (what == 0) how.score.push_back(soft_cap(std::exp(2 * draw.normal())));
      if (what == 1) how.score.push_back(attend::bias(row));
      if (what == 2 && !sloped) how.score.push_back(alibi(slopes)), sloped = true;
    }
    if (!sloped && draw.coin(0.3)) how.alibi = slopes;
    const auto w = normal<TypeParam>({n.E}, seed + 6000);
    if (draw.coin(0.5)) how.normalizer = normalizers[draw.between(0, 5)];
    if (draw.coin(0.5)) how.compatibility = compatibilities(w)[static_cast<std::size_t>(draw.between(0, 5))];
    if (how.normalizer != normalizer::softmax) how.sinks = {};
    std::ostringstream text;
    text << "seed " << seed << ": " << form_of(how) << ", " << n.to_string() << ", causal " << how.causal << ", window "
         << bool(how.window) << ", lengths " << how.key_lengths.given() << ", mask " << bool(how.mask) << ", bias "
         << bool(how.bias) << ", relative " << bool(how.relative) << ", segments " << bool(how.query_segments) << ", soft cap "
         << how.softcap.value_or(0) << ", ALiBi " << bool(how.alibi) << ", sinks " << bool(how.sinks) << ", dropout "
         << how.dropout.p << ", list of " << how.score.size() << ", neighborhood " << bool(how.neighborhood);
    const backward_call_of<TypeParam> call(n, how, seed);
    EXPECT_TRUE(gradients_right(call.run(how), call.truth(how), call.cancelled_size(how))) << text.str();
    if (testing::Test::HasFailure()) return;  // one failing seed says enough
  }
}

}  // namespace
}  // namespace attend::test

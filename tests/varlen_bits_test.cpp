// A packed sequence has the bits that it has alone, whatever it is packed with, on any number of threads; and leaks nothing.
#include <gtest/gtest.h>

#include <vector>

#include "support/varlen.hpp"

namespace attend::test {
namespace {

template <class T>
struct packed_bits : testing::Test {};
TYPED_TEST_SUITE(packed_bits, stored_types);

const sizes heads{.H = 4, .Hk = 2, .E = 5, .Ev = 3};

/// Few and many queries, empty ones, one of thousands of keys: sequences of both kernels, with and without split keys.
sequence_lengths mixed() {
  sequence_lengths lengths = {{0, 0}, {1, 40}, {90, 90}, {5, 3}, {0, 7}, {3, 0}, {2, 1100}, {30, 30}, {1, 1}};
  lengths.emplace_back(20, quick() ? 1600 : 5000);
  lengths.emplace_back(200, 130);
  return lengths;
}

/// Options that mean the same for a sequence alone: nothing in them is given per sequence, and weights are not dropped.
template <class T>
struct shared_options {
  tensor<T> slopes = normal<T>({4}, 5, 0.2), sinks = normal<T>({4}, 6, 2), table = normal<T>({4, 31}, 7);
  std::vector<named_options> all = {{"plain", {}},
                                    {"causal", {.causal = true}},
                                    {"window", {.window = {40, 3}, .query_offset = upper_left}},
                                    {"lower right", {.causal = true, .window = {300, {}}, .query_offset = lower_right}},
                                    {"prefix", {.causal = true, .prefix = 2}},
                                    {"table", {.relative = table}},
                                    {"soft cap", {.softcap = 2}},
                                    {"ALiBi", {.alibi = slopes}},
                                    {"ALiBi of the paper", {.causal = true, .alibi = true}},
                                    {"sinks", {.sinks = sinks}},
                                    {"list", {.score = {alibi(slopes), soft_cap(1.5)}}},
                                    {"l1, sigmoid", {.compatibility = compatibility::l1, .normalizer = normalizer::sigmoid}},
                                    {"relu2", {.alibi = true, .normalizer = normalizer::relu2}},
                                    {"mean", {.softcap = 1, .normalizer = normalizer::mean}}};
};

TYPED_TEST(packed_bits, are_those_of_each_sequence_alone) {
  const auto x = make_packed<TypeParam>(mixed(), heads);
  const shared_options<TypeParam> options_of;
  for (const auto& [name, base] : options_of.all) {
    for (const bool reproducible : {false, true}) {
      options how = base;
      how.reproducible = reproducible;
      const auto whole = compute(x, how);
      for (std::int64_t s = 0; s < x.count(); ++s) {
        if (x.lengths[std::size_t(s)].second < 2 && how.prefix.given()) continue;  // alone, the prefix would be too long
        EXPECT_TRUE(is_sequence(compute_alone(x, s, how), whole, x, s)) << name << (reproducible ? ", reproducible" : "");
      }
    }
  }
}

TYPED_TEST(packed_bits, follow_what_is_given_for_each_sequence) {
  const auto x = make_packed<TypeParam>(mixed(), heads);
  const auto of_q = random_ids({x.queries()}, 3, -1, 1), of_k = documents(x.keys(), {20, 700, 1300, 2000});
  tensor<std::int64_t> offset({x.count()}), prefix({x.count()}), keys({x.count()});
  for (std::int64_t s = 0; s < x.count(); ++s) {
    const std::int64_t S = x.lengths[std::size_t(s)].second;
    offset(s) = 7 * s - 10, prefix(s) = s % 4, keys(s) = S - S * (s % 3) / 4;
  }
  for (const bool reproducible : {false, true}) {
    const options how{.causal = true,
                      .query_offset = offset,
                      .prefix = prefix,
                      .query_segments = of_q,
                      .key_segments = of_k,
                      .key_lengths = keys,
                      .reproducible = reproducible};
    const auto whole = compute(x, how);
    EXPECT_TRUE(as_reference(whole, x, how));
    for (std::int64_t s = 0; s < x.count(); ++s) {
      options one = how;
      one.query_offset = offset(s), one.prefix = prefix(s), one.key_lengths = keys(s);
      const auto [L, S] = x.lengths[std::size_t(s)];
      one.query_segments = tensor_view<const std::int64_t>(of_q.data() + x.at_q(s), {L});
      one.key_segments = tensor_view<const std::int64_t>(of_k.data() + x.at_k(s), {S});
      EXPECT_TRUE(is_sequence(compute_alone(x, s, one), whole, x, s)) << (reproducible ? "reproducible" : "");
    }
  }
}

TYPED_TEST(packed_bits, of_dropout_count_sequences_as_batches) {
  const auto x = make_packed<TypeParam>({{20, 300}, {20, 300}, {20, 300}}, heads);
  const options how{.dropout = {.p = 0.5, .seed = 12}};
  const auto packed_whole = compute(x, how);
  const extents q{3, 20, 4, 5}, k{3, 300, 2, 5}, v{3, 300, 2, 3};
  options batches = how;
  batches.layout = layout::blhd;
  const auto batched =
      compute<TypeParam>(tensor_view<const TypeParam>(x.q.data(), q), tensor_view<const TypeParam>(x.k.data(), k),
                         tensor_view<const TypeParam>(x.v.data(), v), batches);
  for (std::int64_t at = 0; at < batched.out.size(); ++at) ASSERT_EQ(packed_whole.out.data()[at], batched.out.data()[at]);
}

TYPED_TEST(packed_bits, do_not_depend_on_threads) {
  const auto x = make_packed<TypeParam>(mixed(), heads);
  const shared_options<TypeParam> options_of;
  for (const auto& [name, base] : options_of.all) {
    options how = base;
    how.threads = 1;
    const auto one = compute(x, how);
    for (const int threads : {2, 3, 7, 33}) {
      how.threads = threads;
      EXPECT_TRUE(same_bits(compute(x, how), one)) << name << ", " << threads << " threads";
    }
  }
}

TYPED_TEST(packed_bits, do_not_depend_on_the_order_of_sequences) {
  sequence_lengths lengths = mixed();
  const auto x = make_packed<TypeParam>(lengths, heads);
  const auto whole = compute(x, {.causal = true});
  std::vector<std::size_t> order;
  for (std::size_t s = 0; s < lengths.size(); ++s) order.push_back((s * 7 + 3) % lengths.size());
  sequence_lengths turned;
  for (const std::size_t s : order) turned.push_back(lengths[s]);
  auto y = make_packed<TypeParam>(turned, heads);
  for (std::size_t at = 0; at < order.size(); ++at) {
    const auto from = std::int64_t(order[at]), to = std::int64_t(at);
    const auto take = [&](const tensor<TypeParam>& source, tensor<TypeParam>& target, const auto& starts,
                          const auto& new_starts) {
      const std::int64_t row = source.shape()[1] * source.shape()[2];
      std::copy_n(source.data() + starts(from) * row, (starts(from + 1) - starts(from)) * row,
                  target.data() + new_starts(to) * row);
    };
    take(x.q, y.q, x.at_q, y.at_q), take(x.k, y.k, x.at_k, y.at_k), take(x.v, y.v, x.at_k, y.at_k);
  }
  const auto again = compute(y, {.causal = true});
  for (std::size_t at = 0; at < order.size(); ++at) {
    const std::int64_t from = x.at_q(std::int64_t(order[at])), to = y.at_q(std::int64_t(at));
    for (std::int64_t n = 0; n < lengths[order[at]].first * 4 * 3; ++n)
      ASSERT_EQ(again.out.data()[to * 12 + n], whole.out.data()[from * 12 + n]) << "sequence " << order[at];
  }
}

TYPED_TEST(packed_bits, of_a_sequence_do_not_change_with_nan_in_the_others) {
  const auto x = make_packed<TypeParam>(mixed(), heads);
  const auto clean = compute(x, {.causal = true});
  constexpr TypeParam nan = std::numeric_limits<TypeParam>::quiet_NaN();
  for (std::int64_t bad = 0; bad < x.count(); ++bad) {
    packed<TypeParam> y = make_packed<TypeParam>(mixed(), heads);
    std::fill(y.q.begin() + y.at_q(bad) * 20, y.q.begin() + y.at_q(bad + 1) * 20, nan);
    std::fill(y.k.begin() + y.at_k(bad) * 10, y.k.begin() + y.at_k(bad + 1) * 10, nan);
    std::fill(y.v.begin() + y.at_k(bad) * 6, y.v.begin() + y.at_k(bad + 1) * 6, nan);
    const auto dirty = compute(y, {.causal = true});
    EXPECT_TRUE(as_reference(dirty, y, {.causal = true})) << bad;
    for (std::int64_t row = 0; row < x.queries(); ++row) {
      if (row >= x.at_q(bad) && row < x.at_q(bad + 1)) continue;
      for (std::int64_t c = 0; c < 3; ++c) ASSERT_EQ(dirty.out(row, 3, c), clean.out(row, 3, c)) << bad << ", row " << row;
    }
  }
}

}  // namespace
}  // namespace attend::test

// Quantised caches: each number is as near as the header promises, and queries over them give the bits of a cache that holds these numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "support/cache.hpp"
#include "support/refusal.hpp"

namespace attend::test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

template <class T>
struct quantized_caches : testing::Test {};
using quantized_types = testing::Types<float, float16, bfloat16>;
TYPED_TEST_SUITE(quantized_caches, quantized_types);

struct sides {
  quantization keys, values;
};
const sides all_sides[] = {{quantization::int8, quantization::int8},
                           {quantization::int4, quantization::int4},
                           {quantization::int8, quantization::int4},
                           {quantization::int8, quantization::none},
                           {quantization::none, quantization::int4}};
std::string name_of(sides s) {
  const char* const names[] = {"none", "int8", "int4"};
  return std::string(names[int(s.keys)]) + " and " + names[int(s.values)];
}

template <class T>
kv_cache_sizes sizes_of(const tensor<T>& k, const tensor<T>& v, sides how) {
  return {.batch = k.shape()[0],
          .kv_heads = k.shape()[1],
          .capacity = k.shape()[2],
          .dim = k.shape()[3],
          .value_dim = v.shape()[3],
          .type = dtype_of<T>,
          .quantized_keys = how.keys,
          .quantized_values = how.values};
}

template <class T>
kv_cache filled(const tensor<T>& k, const tensor<T>& v, sides how) {
  kv_cache cache(sizes_of(k, v, how));
  const std::int64_t half = k.shape()[2] / 3;
  cache.append(tokens(k, 0, half), tokens(v, 0, half));
  cache.append(tokens(k, half, k.shape()[2]), tokens(v, half, k.shape()[2]));
  return cache;
}

template <class T>
tensor<float> in_float(const tensor<T>& x) {
  tensor<float> y(x.shape());
  std::transform(x.begin(), x.end(), y.begin(), [](T number) { return float(number); });
  return y;
}

/// What a cache holds: keys as scores of unit queries, values as results of queries that see one key each, whose weight is 1.
struct held_numbers {
  tensor<float> k, v;
};
template <class T>
held_numbers held_by(kv_cache& cache) {
  const kv_cache_sizes& n = cache.sizes();
  const std::int64_t B = n.batch, H = n.kv_heads, S = cache.lengths()[0], E = n.dim, Ev = *n.value_dim;
  held_numbers held{tensor<float>({B, H, S, E}), tensor<float>({B, H, S, Ev})};
  tensor<T> unit({B, H, E, E}), any({B, H, S, E}), scores({B, H, E, S}), y({B, H, S, Ev});
  tensor<bool> one({S, S});
  std::fill(one.begin(), one.end(), false);
  for (std::int64_t i = 0; i < S; ++i) one(i, i) = true;
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int64_t h = 0; h < H; ++h) {
      for (std::int64_t i = 0; i < E; ++i) unit(b, h, i, i) = T(1.0f);
    }
  }
  if (E > 0) decode(unit, cache, outputs{.scores = scores, .stage = score_stage::scaled}, {.scale = 1.0, .reproducible = true});
  decode(any, cache, outputs{.out = y}, {.mask = one, .compatibility = compatibility_kind::none, .reproducible = true});
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int64_t h = 0; h < H; ++h) {
      for (std::int64_t j = 0; j < S; ++j) {
        for (std::int64_t d = 0; d < E; ++d) held.k(b, h, j, d) = float(scores(b, h, d, j));
        for (std::int64_t d = 0; d < Ev; ++d) held.v(b, h, j, d) = float(y(b, h, j, d));
      }
    }
  }
  return held;
}

/// Every number within what the header says; returns whether one is off at all.
testing::AssertionResult within_bounds(const tensor<float>& held, const tensor<float>& given, quantization codes) {
  const std::int64_t width = given.shape()[3];
  bool inexact = false;
  for (std::int64_t row = 0; row < given.size(); row += width) {
    for (std::int64_t first = 0; first < width; first += 32) {
      double low = infinity, high = -infinity;
      const std::int64_t end = std::min(first + 32, width);
      for (std::int64_t d = first; d < end; ++d) {
        low = std::min(low, double(given.data()[row + d]));
        high = std::max(high, double(given.data()[row + d]));
      }
      const double bound = codes == quantization::none   ? 0
                           : codes == quantization::int8 ? 0.004 * std::max(-low, high)
                                                         : 0.034 * (high - low + std::abs(low) / 128);
      for (std::int64_t d = first; d < end; ++d) {
        const double off = std::abs(double(held.data()[row + d]) - given.data()[row + d]);
        if (!(off <= bound))
          return testing::AssertionFailure() << held.data()[row + d] << " for " << given.data()[row + d] << ", column " << d;
        inexact = inexact || off > 0;
      }
    }
  }
  if (codes != quantization::none && !inexact) return testing::AssertionFailure() << "nothing was quantised";
  return testing::AssertionSuccess();
}

TEST(quantized_caches, hold_numbers_within_the_bounds) {
  for (const std::int64_t E : {1, 2, 15, 16, 17, 31, 32, 33, 64, 80, 129}) {
    const auto k = normal<float>({2, 2, 9, E}, 1), v = normal<float>({2, 2, 9, E + 3}, 2);
    for (const sides how : all_sides) {
      kv_cache cache = filled(k, v, how);
      const held_numbers held = held_by<float>(cache);
      // One column alone has its own scale, and is exact but for the scale's rounding.
      if (E > 1) {
        EXPECT_TRUE(within_bounds(held.k, k, how.keys)) << name_of(how) << ", E " << E;
      }
      EXPECT_TRUE(within_bounds(held.v, v, how.values)) << name_of(how) << ", E " << E;
    }
  }
}

/// One row of 32 columns in an int8 or int4 cache, as it comes back.
std::vector<float> stored(const std::vector<float>& row, quantization codes) {
  tensor<float> k({1, 1, 1, 1}), v({1, 1, 1, std::int64_t(row.size())});
  std::copy(row.begin(), row.end(), v.begin());
  kv_cache cache(sizes_of(k, v, {quantization::none, codes}));
  cache.append(k, v);
  const held_numbers held = held_by<float>(cache);
  return {held.v.begin(), held.v.end()};
}

TEST(quantized_caches, hold_every_code_exactly) {
  for (int first = -127; first <= 127; first += 31) {
    std::vector<float> row{127};
    for (int code = first; code < first + 31; ++code) row.push_back(float(std::min(code, 127)));
    EXPECT_EQ(stored(row, quantization::int8), row) << first;
    row[0] = -127;
    EXPECT_EQ(stored(row, quantization::int8), row) << first;
  }
  std::vector<float> row;
  for (int code = 0; code < 32; ++code) row.push_back(float(code % 16 - 5));
  EXPECT_EQ(stored(row, quantization::int4), row);
  std::reverse(row.begin(), row.end());
  EXPECT_EQ(stored(row, quantization::int4), row);
}

TEST(quantized_caches, hold_what_is_hard) {
  for (const quantization codes : {quantization::int8, quantization::int4}) {
    const std::vector<float> zeros(40, 0.0f), constant(40, 0.15625f), large(40, 3.4e38f), tiny(40, 1e-41f);
    EXPECT_EQ(stored(zeros, codes), zeros);
    for (const float x : stored(constant, codes)) EXPECT_NEAR(x, 0.15625f, 0.001f);
    for (const float x : stored(large, codes)) EXPECT_NEAR(x, 3.4e38f, 0.008 * 3.4e38);
    for (const float x : stored(tiny, codes)) EXPECT_NEAR(x, 0, 1e-35f);
    std::vector<float> both(32, 0.0f);
    both[3] = 3.4e38f, both[17] = -3.4e38f;
    const std::vector<float> back = stored(both, codes);
    if (codes == quantization::int8) {
      EXPECT_NEAR(back[3], 3.4e38f, 0.004 * 3.4e38);
      EXPECT_NEAR(back[17], -3.4e38f, 0.004 * 3.4e38);
    } else {  // the range is infinite
      EXPECT_TRUE(std::isnan(back[3]) && std::isnan(back[17]) && std::isnan(back[0]));
    }
    for (const float odd : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
      std::vector<float> row(70, 1.0f);
      row[40] = odd;
      const std::vector<float> kept = stored(row, codes);
      for (std::size_t d = 0; d < row.size(); ++d) EXPECT_EQ(std::isnan(kept[d]), d >= 32 && d < 64) << d;
    }
  }
}

/// The same problem over a cache of codes and over one that holds their numbers.
TYPED_TEST(quantized_caches, give_the_bits_of_what_they_hold) {
  using T = TypeParam;
  for (const sizes& n : {sizes{.B = 2, .H = 4, .Hk = 2, .L = 1, .S = 300, .E = 64, .Ev = 64},
                         sizes{.B = 1, .H = 3, .Hk = 3, .L = 1, .S = 37, .E = 33, .Ev = 7},
                         sizes{.B = 1, .H = 6, .Hk = 2, .L = 4, .S = 1100, .E = 40, .Ev = 100},
                         sizes{.B = 2, .H = 2, .Hk = 1, .L = 70, .S = 333, .E = 16, .Ev = 33}}) {
    const auto x = make_inputs<T>(n);
    const auto slopes = normal<float>({n.H}, 7);
    const auto mask = coins({n.L, n.S}, 9, 0.7);
    for (const sides how : all_sides) {
      kv_cache cache = filled(x.k, x.v, how);
      // Codes times scales are float32: what is held is compared in float32, rounded once to the results' type.
      kv_cache wide(sizes_of(x.k, x.v, how));
      wide.append(x.k, x.v);
      const held_numbers held = [&] {
        kv_cache_sizes same = sizes_of(x.k, x.v, how);
        same.type = dtype::f32;
        kv_cache twin(same);
        twin.append(in_float(x.k), in_float(x.v));
        return held_by<float>(twin);
      }();
      kv_cache plain(sizes_of(held.k, held.v, {quantization::none, quantization::none}));
      plain.append(held.k, held.v);
      const auto q = in_float(x.q);
      for (const options& call :
           {options{}, options{.reproducible = true}, options{.window = {20, {}}, .softcap = 2.0}, options{.alibi = slopes},
            options{.mask = mask}, options{.compatibility = compatibility_kind::cosine},
            options{.compatibility = compatibility_kind::l1}, options{.threads = 3}}) {
        const auto expected = decoded(q, plain, call);
        const auto got = decoded(x.q, cache, call);
        ASSERT_EQ(got.out.size(), expected.out.size());
        for (std::int64_t i = 0; i < got.out.size(); ++i)
          ASSERT_EQ(float(got.out.data()[i]), float(T(expected.out.data()[i]))) << name_of(how) << ", " << n.to_string();
        EXPECT_TRUE(same_bits(decoded(x.q, wide, call), got)) << "appended at once: " << name_of(how) << ", " << n.to_string();
      }
    }
  }
}

TYPED_TEST(quantized_caches, are_the_same_in_pages_and_rings) {
  using T = TypeParam;
  const auto x = make_inputs<T>({.B = 2, .H = 4, .Hk = 2, .L = 3, .S = 150, .E = 48, .Ev = 24});
  for (const sides how : all_sides) {
    kv_cache cache = filled(x.k, x.v, how);
    for (const std::int64_t page_size : {1, 7, 64}) {
      paged_kv_cache pages({.pages = 2 * (150 + page_size - 1) / page_size + 3,
                            .page_size = page_size,
                            .kv_heads = 2,
                            .dim = 48,
                            .value_dim = 24,
                            .type = dtype_of<T>,
                            .quantized_keys = how.keys,
                            .quantized_values = how.values});
      std::vector<sequence_id> forks;
      for (std::int64_t b = 0; b < 2; ++b) {
        const sequence_id one = pages.new_sequence();
        pages.append(one, sequence_of(tokens(x.k, 0, 100), b), sequence_of(tokens(x.v, 0, 100), b));
        forks.push_back(pages.fork(one));  // the page that both have is copied, codes and scales
        pages.append(one, sequence_of(tokens(x.k, 0, 1), b), sequence_of(tokens(x.v, 0, 1), b));
        pages.append(forks.back(), sequence_of(tokens(x.k, 100, 150), b), sequence_of(tokens(x.v, 100, 150), b));
      }
      EXPECT_TRUE(same_bits(decoded(x.q, pages, forks), decoded(x.q, cache))) << name_of(how) << page_size;
    }
    kv_cache_sizes small = sizes_of(x.k, x.v, how);
    small.capacity = 40, small.window = 30;
    kv_cache ring(small);
    for (std::int64_t at = 0; at < 150; at += 10) {
      ring.append(tokens(x.k, at, at + 10), tokens(x.v, at, at + 10));
      decode(x.q, ring, outputs{});
    }
    EXPECT_TRUE(same_bits(decoded(x.q, ring), decoded(x.q, cache, {.window = {29, {}}}))) << name_of(how);
  }
}

TEST(quantized_caches, do_not_let_nan_out_of_excluded_keys) {
  for (const quantization codes : {quantization::int8, quantization::int4}) {
    const auto q = normal<float>({1, 2, 1, 40}, 1);
    auto k = normal<float>({1, 1, 50, 40}, 2), v = normal<float>({1, 1, 50, 40}, 3);
    kv_cache clean = filled(k, v, {codes, codes});
    k(0, 0, 3, 5) = v(0, 0, 7, 39) = std::numeric_limits<float>::quiet_NaN();
    kv_cache dirty = filled(k, v, {codes, codes});
    EXPECT_TRUE(same_bits(decoded(q, dirty, {.window = {30, {}}}), decoded(q, clean, {.window = {30, {}}})));
    const auto y = decoded(q, dirty);
    EXPECT_TRUE(std::isnan(y.out(0, 0, 0, 0)));
  }
}

TEST(quantized_caches, are_refused_where_they_make_no_sense) {
  const auto refused = [](const char* name, const kv_cache_sizes& sizes) {
    expect_argument_error(name, {}, argument_error::kind::value, [&] { kv_cache cache(sizes); });
  };
  refused("quantized_keys", {.capacity = 4, .dim = 8, .type = dtype::f64, .quantized_keys = quantization::int8});
  refused("quantized_values", {.capacity = 4, .dim = 8, .type = dtype::f64, .quantized_values = quantization::int4});
  refused("quantized_keys", {.capacity = 4, .dim = 8, .quantized_keys = static_cast<quantization>(3)});
  expect_argument_error("quantized_values", {}, argument_error::kind::value, [] {
    paged_kv_cache({.pages = 1, .kv_heads = 1, .dim = 8, .type = dtype::f64, .quantized_values = quantization::int8});
  });
  refused("dim", {.capacity = 0, .dim = std::int64_t{1} << 41});
}

}  // namespace
}  // namespace attend::test

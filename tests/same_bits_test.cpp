// Nothing but a row's own query, keys and options decides its bits: not threads, batches, other rows, later keys or old memory.
#include <gtest/gtest.h>

#include <vector>

#include "support/compute.hpp"
#include "support/parts.hpp"

namespace attend::test {
namespace {

template <class T>
struct same_bits_of : testing::Test {};
TYPED_TEST_SUITE(same_bits_of, stored_types);

const std::vector<sizes> problems = {{.B = 3, .H = 4, .Hk = 2, .L = 1, .S = 3500, .E = 16, .Ev = 24},
                                     {.B = 2, .H = 2, .Hk = 2, .L = 5, .S = 1700, .E = 9, .Ev = 8},
                                     {.B = 2, .H = 2, .Hk = 1, .L = 150, .S = 130, .E = 33, .Ev = 17},
                                     {.B = 1, .H = 1, .Hk = 1, .L = 70, .S = 3300, .E = 8, .Ev = 8}};

TYPED_TEST(same_bits_of, any_number_of_threads) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    for (const options& base :
         {options{}, options{.causal = true, .query_offset = lower_right}, options{.reproducible = true}}) {
      options how = base;
      how.threads = 1;
      const auto one = compute(x, how, true);
      for (const int threads : {2, 3, 4, 7, 16, 33, 0}) {
        how.threads = threads;
        EXPECT_TRUE(same_bits(compute(x, how, true), one)) << threads << " threads, " << n.to_string();
      }
    }
  }
}

TYPED_TEST(same_bits_of, a_batch_whole_or_one_by_one) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    tensor<std::int64_t> lengths({n.B});
    for (std::int64_t b = 0; b < n.B; ++b) lengths(b) = n.S - 40 * b;
    const auto whole = compute(x, {.key_lengths = lengths}, true);
    for (std::int64_t b = 0; b < n.B; ++b) {
      const auto one =
          compute<TypeParam>(part(x.q, 0, b, 1), part(x.k, 0, b, 1), part(x.v, 0, b, 1), {.key_lengths = lengths(b)}, true);
      EXPECT_TRUE(is_part(one.out, whole.out, 0, b)) << n.to_string();
      EXPECT_TRUE(is_part(one.lse, whole.lse, 0, b)) << n.to_string();
      EXPECT_TRUE(is_part(one.weights, whole.weights, 0, b)) << n.to_string();
    }
  }
}

TYPED_TEST(same_bits_of, a_key_value_head_with_or_without_the_others) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const auto whole = compute(x);
    const std::int64_t group = n.H / n.Hk;
    for (std::int64_t h = 0; h < n.Hk; ++h) {
      const auto one = compute<TypeParam>(part(x.q, 1, h * group, group), part(x.k, 1, h, 1), part(x.v, 1, h, 1));
      EXPECT_TRUE(is_part(one.out, whole.out, 1, h * group)) << n.to_string();
    }
  }
}

TYPED_TEST(same_bits_of, prefill_at_once_or_in_pieces) {
  for (const sizes& n : {sizes{.B = 2, .H = 4, .Hk = 2, .L = 200, .S = 200, .E = 16, .Ev = 12},
                         sizes{.B = 1, .H = 1, .Hk = 1, .L = 1700, .S = 1700, .E = 8, .Ev = 8}}) {
    const auto x = make_inputs<TypeParam>(n);
    for (const options& base :
         {options{.causal = true}, options{.causal = true, .window = {37, {}}}, options{.causal = true, .prefix = 5}}) {
      options how = base;
      how.reproducible = true;
      const auto whole = compute(x, how);
      std::int64_t first = 0;
      for (const std::int64_t piece : {1, 3, 64, 1, 100, 31, 1500}) {
        const std::int64_t rows = std::min(piece, n.L - first);
        if (rows <= 0) break;
        how.query_offset = first;
        const std::int64_t keys = std::max<std::int64_t>(first + rows, 5);  // those so far, the prefix at least
        const auto now = compute<TypeParam>(part(x.q, 2, first, rows), part(x.k, 2, 0, keys), part(x.v, 2, 0, keys), how);
        EXPECT_TRUE(is_part(now.out, whole.out, 2, first)) << "rows from " << first << ", " << n.to_string();
        EXPECT_TRUE(is_part(now.lse, whole.lse, 2, first)) << "rows from " << first << ", " << n.to_string();
        first += rows;
      }
    }
  }
}

TYPED_TEST(same_bits_of, keys_that_a_causal_mask_hides) {
  for (const std::int64_t L : {1, 4, 70}) {
    const std::int64_t most = 3400;
    const auto x = make_inputs<TypeParam>({.B = 1, .H = 2, .Hk = 1, .L = L, .S = most, .E = 8, .Ev = 8});
    for (const std::int64_t seen : {70, 96, 500, 1535, 1536, 1537, 3300}) {
      const options how{.causal = true, .query_offset = seen - L};
      const auto first = compute<TypeParam>(x.q, part(x.k, 2, 0, seen), part(x.v, 2, 0, seen), how);
      for (const std::int64_t S : {seen + 1, seen + 97, most}) {
        EXPECT_TRUE(same_bits(compute<TypeParam>(x.q, part(x.k, 2, 0, S), part(x.v, 2, 0, S), how), first))
            << S << " keys, " << seen << " seen";
      }
    }
  }
}

TYPED_TEST(same_bits_of, a_length_or_a_shorter_tensor) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    for (const std::int64_t length : {std::int64_t{1}, n.S / 2, n.S - 1}) {
      EXPECT_TRUE(same_bits(compute(x, {.key_lengths = length}),
                            compute<TypeParam>(x.q, part(x.k, 2, 0, length), part(x.v, 2, 0, length))))
          << length << ", " << n.to_string();
    }
  }
}

TYPED_TEST(same_bits_of, the_forms_of_one_mask) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    for (const bool windowed : {false, true}) {
      for (const bool reproducible : {false, true}) {
        options how{.causal = true, .query_offset = lower_right, .reproducible = reproducible};
        if (windowed) how.window = {20, {}};
        tensor<bool> mask({n.L, n.S});
        tensor<TypeParam> bias({n.L, n.S}, static_cast<TypeParam>(-infinity));
        for (std::int64_t i = 0; i < n.L; ++i) {
          for (std::int64_t j = 0; j < n.S; ++j) {
            const std::int64_t at = i + n.S - n.L;
            mask(i, j) = j <= at && (!windowed || j >= at - 20);
            if (mask(i, j)) bias(i, j) = TypeParam(0);
          }
        }
        const auto structured = compute(x, how, true);
        EXPECT_TRUE(same_bits(compute(x, {.mask = mask, .reproducible = reproducible}, true), structured))
            << "boolean, " << n.to_string();
        EXPECT_TRUE(same_bits(compute(x, {.bias = bias, .reproducible = reproducible}, true), structured))
            << "-inf, " << n.to_string();
      }
    }
  }
}

TYPED_TEST(same_bits_of, a_mask_that_excludes_nothing) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const auto want = compute(x, {}, true);
    const tensor<bool> mask({n.L, n.S}, true);
    EXPECT_TRUE(same_bits(compute(x, {.mask = mask}, true), want)) << n.to_string();
    EXPECT_TRUE(same_bits(compute(x, {.key_lengths = n.S}, true), want)) << n.to_string();
    EXPECT_TRUE(same_bits(compute(x, {.window = {n.S + n.L, n.S + n.L}, .query_offset = upper_left}, true), want))
        << n.to_string();
    EXPECT_TRUE(same_bits(compute(x, {.causal = true, .query_offset = n.S}, true), want)) << n.to_string();
    EXPECT_TRUE(same_bits(compute(x, {.causal = true, .query_offset = -n.L, .prefix = n.S}, true), want)) << n.to_string();
  }
}

TYPED_TEST(same_bits_of, every_run_whatever_memory_held) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const auto first = compute(x, {}, true);
    auto dirty = make_inputs<TypeParam>(n, 9);
    std::fill(dirty.k.begin(), dirty.k.end(), std::numeric_limits<TypeParam>::quiet_NaN());
    std::fill(dirty.v.begin(), dirty.v.end(), std::numeric_limits<TypeParam>::infinity());
    constexpr TypeParam nan = std::numeric_limits<TypeParam>::quiet_NaN();
    for (int round = 0; round < 5; ++round) {
      compute(dirty, {.threads = round});  // the scratch now holds NaN
      const sizes other{.B = 1, .H = 1, .Hk = 1, .L = 40 + round, .S = 200, .E = 40, .Ev = 50};
      auto x_other = make_inputs<TypeParam>(other);
      std::fill(x_other.q.begin(), x_other.q.end(), std::numeric_limits<TypeParam>::quiet_NaN());
      compute(x_other);
      computed<TypeParam> again{tensor<TypeParam>(first.out.shape(), nan),
                                tensor<accumulator<TypeParam>>(first.lse.shape(), nan),
                                tensor<TypeParam>(first.weights.shape(), nan)};
      attention(x.q, x.k, x.v, outputs{.out = again.out, .lse = again.lse, .weights = again.weights});
      EXPECT_TRUE(same_bits(again, first)) << n.to_string();
    }
  }
}

}  // namespace
}  // namespace attend::test

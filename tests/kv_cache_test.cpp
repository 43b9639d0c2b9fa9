// Caches: what they hold is what was appended, and queries over them see what attention over the same keys sees, to the last bit.
#include <gtest/gtest.h>

#include <vector>

#include "support/cache.hpp"

namespace attend::test {
namespace {

template <class T>
struct caches : testing::Test {};
TYPED_TEST_SUITE(caches, stored_types);

/// Few and many queries, which different kernels serve; ends of tiles, chunks and pages.
const std::vector<sizes> problems = {{.B = 2, .H = 4, .Hk = 2, .L = 1, .S = 37, .E = 16, .Ev = 8},
                                     {.B = 1, .H = 1, .Hk = 1, .L = 1, .S = 1, .E = 1, .Ev = 1},
                                     {.B = 3, .H = 6, .Hk = 2, .L = 5, .S = 200, .E = 32, .Ev = 33},
                                     {.B = 1, .H = 8, .Hk = 2, .L = 40, .S = 1700, .E = 64, .Ev = 64},
                                     {.B = 2, .H = 2, .Hk = 1, .L = 130, .S = 130, .E = 33, .Ev = 17}};

const options causal_at_the_end{.causal = true, .query_offset = lower_right};

options with(const options& how, const auto& change) {
  options changed = how;
  change(changed);
  return changed;
}

/// Everything of `x` in a cache, in pieces of odd sizes.
template <class T>
kv_cache filled(const inputs<T>& x, std::int64_t spare = 3) {
  const extents &k = x.k.shape(), &v = x.v.shape();
  kv_cache cache(
      {.batch = k[0], .kv_heads = k[1], .capacity = k[2] + spare, .dim = k[3], .value_dim = v[3], .type = dtype_of<T>});
  std::int64_t step = 1;
  for (std::int64_t at = 0; at < k[2]; at += step, step = step * 3 % 64) {
    const std::int64_t end = std::min(at + step, k[2]);
    cache.append(tokens(x.k, at, end), tokens(x.v, at, end));
  }
  return cache;
}

template <class T>
struct filled_pages {
  paged_kv_cache cache;
  std::vector<sequence_id> sequences;
};

/// The same in pages, sequences in turns, so that their pages alternate.
template <class T>
filled_pages<T> in_pages(const inputs<T>& x, std::int64_t page_size) {
  const extents &k = x.k.shape(), &v = x.v.shape();
  const std::int64_t pages = k[0] * ((k[2] + page_size - 1) / page_size);
  filled_pages<T> made{
      paged_kv_cache(
          {.pages = pages, .page_size = page_size, .kv_heads = k[1], .dim = k[3], .value_dim = v[3], .type = dtype_of<T>}),
      {}};
  for (std::int64_t b = 0; b < k[0]; ++b) made.sequences.push_back(made.cache.new_sequence());
  std::int64_t step = 1;
  for (std::int64_t at = 0; at < k[2]; at += step, step = step * 3 % 64) {
    const std::int64_t end = std::min(at + step, k[2]);
    for (std::int64_t b = 0; b < k[0]; ++b)
      made.cache.append(made.sequences[std::size_t(b)], sequence_of(tokens(x.k, at, end), b),
                        sequence_of(tokens(x.v, at, end), b));
  }
  EXPECT_EQ(made.cache.free_pages(), 0);
  return made;
}

TYPED_TEST(caches, of_every_kind_give_the_bits_of_attention) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    kv_cache cache = filled(x);
    const auto slopes = normal<float>({n.H}, 7), sinks = normal<float>({n.H}, 8);
    const auto mask = coins({n.B, 1, n.L, n.S}, 9, 0.7);
    const auto bias = normal<TypeParam>({n.H, 1, n.S}, 10), table = normal<TypeParam>({n.H, 11}, 11);
    for (const std::int64_t page_size : {1, 3, 16, 100, 4096}) {
      const auto paged = in_pages(x, page_size);
      const auto check = [&](const char* what, const auto& change) {
        const options how = with(options{}, change), dense = with(causal_at_the_end, change);
        const auto expected = compute<TypeParam>(x.q, x.k, x.v, dense);
        const std::string about = std::string(what) + ", pages of " + std::to_string(page_size) + ", " + n.to_string();
        EXPECT_TRUE(same_bits(decoded(x.q, paged.cache, paged.sequences, how), expected)) << about;
        EXPECT_TRUE(same_bits(decoded(x.q, cache, how), expected)) << about;
      };
      check("nothing", [](options&) {});
      check("reproducible", [](options& o) { o.reproducible = true; });
      check("window", [](options& o) { o.window = {20, {}}; });
      check("prefix", [](options& o) { o.window = {5, {}}, o.prefix = 3; });
      check("sinks and soft cap", [&](options& o) { o.sinks = sinks, o.softcap = 3; });
      check("ALiBi", [&](options& o) { o.alibi = slopes; });
      check("mask", [&](options& o) { o.mask = mask; });
      check("bias and table", [&](options& o) { o.bias = bias, o.relative = table; });
      check("threads", [](options& o) { o.threads = 3; });
    }
  }
}

TYPED_TEST(caches, of_unequal_lengths_are_right) {
  const auto x = make_inputs<TypeParam>({.B = 4, .H = 4, .Hk = 2, .L = 3, .S = 300, .E = 20, .Ev = 12});
  tensor<std::int64_t> lengths({4});
  lengths(0) = 300, lengths(1) = 0, lengths(2) = 1, lengths(3) = 129;
  kv_cache cache({.batch = 4, .kv_heads = 2, .capacity = 300, .dim = 20, .value_dim = 12, .type = dtype_of<TypeParam>});
  cache.append(x.k, x.v, lengths);
  paged_kv_cache pages({.pages = 64, .page_size = 7, .kv_heads = 2, .dim = 20, .value_dim = 12, .type = dtype_of<TypeParam>});
  std::vector<sequence_id> sequences;
  for (std::int64_t b = 0; b < 4; ++b) {
    sequences.push_back(pages.new_sequence());
    pages.append(sequences.back(), sequence_of(tokens(x.k, 0, lengths(b)), b), sequence_of(tokens(x.v, 0, lengths(b)), b));
    EXPECT_EQ(pages.length(sequences.back()), lengths(b));
    EXPECT_EQ(cache.lengths()[std::size_t(b)], lengths(b));
  }
  const options dense = with(causal_at_the_end, [&](options& o) { o.key_lengths = lengths; });
  EXPECT_TRUE(as_reference(decoded(x.q, cache), x.q, x.k, x.v, dense));
  EXPECT_TRUE(same_bits(decoded(x.q, pages, sequences), decoded(x.q, cache)));
  // A sequence has the same bits alone and in company, and may come twice.
  const sequence_id twice[] = {sequences[3], sequences[3]};
  tensor<TypeParam> q({2, 4, 3, 20});
  std::copy_n(x.q.begin() + 3 * 240, 240, q.begin());
  std::copy_n(x.q.begin() + 3 * 240, 240, q.begin() + 240);
  const auto all = decoded(x.q, pages, sequences), alone = decoded(q, pages, twice);
  for (std::int64_t i = 0; i < 4 * 3 * 12; ++i) {
    EXPECT_EQ(static_cast<double>(alone.out.data()[i]), static_cast<double>(all.out.data()[3 * 144 + i]));
    EXPECT_EQ(static_cast<double>(alone.out.data()[144 + i]), static_cast<double>(alone.out.data()[i]));
  }
}

TYPED_TEST(caches, keep_a_window_in_a_ring) {
  constexpr std::int64_t W = 8;
  for (const std::vector<std::int64_t>& chunks :
       {std::vector<std::int64_t>(60, 1), {20, 20, 20}, {2, 40, 18}, {7, 1, 12, 7, 1, 12}, {0, 5, 9, 6}}) {
    std::int64_t tokens_in_all = 0, largest = 0;
    for (const std::int64_t n : chunks) tokens_in_all += n, largest = std::max(largest, n);
    const auto x = make_inputs<TypeParam>({.B = 2, .H = 4, .Hk = 2, .L = tokens_in_all, .S = tokens_in_all, .E = 9, .Ev = 5});
    kv_cache cache({.batch = 2,
                    .kv_heads = 2,
                    .capacity = W - 1 + largest,
                    .dim = 9,
                    .value_dim = 5,
                    .type = dtype_of<TypeParam>,
                    .window = W});
    std::int64_t at = 0;
    for (const std::int64_t n : chunks) {
      cache.append(tokens(x.k, at, at + n), tokens(x.v, at, at + n));
      at += n;
      if (n == 0) continue;
      EXPECT_EQ(cache.lengths()[1], at);
      const auto keys = tokens(x.k, 0, at), values = tokens(x.v, 0, at);
      options dense = causal_at_the_end;
      dense.window = {W - 1, {}};
      EXPECT_TRUE(as_reference(decoded(tokens(x.q, at - n, at), cache), tokens(x.q, at - n, at), keys, values, dense)) << at;
      dense.window = {2, {}};
      const options narrow{.window = {2, {}}};
      EXPECT_TRUE(as_reference(decoded(tokens(x.q, at - n, at), cache, narrow), tokens(x.q, at - n, at), keys, values, dense))
          << at;
    }
  }
}

TYPED_TEST(caches, in_a_ring_give_the_bits_of_all_tokens_in_one_array) {
  constexpr std::int64_t W = 100, capacity = 190, T = 13'000;  // beyond what kernels divide keys by
  const auto x = make_inputs<TypeParam>({.B = 1, .H = 2, .Hk = 1, .L = T, .S = T, .E = 4, .Ev = 3});
  kv_cache cache({.capacity = capacity, .dim = 4, .value_dim = 3, .type = dtype_of<TypeParam>, .window = W});
  const options dense{.causal = true, .window = {W - 1, {}}, .query_offset = lower_right, .reproducible = true};
  std::int64_t at = 0;
  for (std::int64_t n = 1; at < T; n = n * 7 % 91) {
    const std::int64_t end = std::min(at + n, T);
    cache.append(tokens(x.k, at, end), tokens(x.v, at, end));
    const auto q = tokens(x.q, at, end);
    const auto got = decoded(q, cache, {.reproducible = true});
    at = end;
    if (at % 5 > 1 && at < T - 300) continue;
    const auto k = tokens(x.k, 0, at), v = tokens(x.v, 0, at);
    ASSERT_TRUE(same_bits(got, compute<TypeParam>(q, k, v, dense))) << at;
  }
}

TYPED_TEST(caches, see_the_newest_keys_as_a_tree_does) {
  for (const std::int64_t L : {4, 20}) {
    const auto x = make_inputs<TypeParam>({.B = 2, .H = 4, .Hk = 2, .L = L, .S = 210, .E = 16, .Ev = 8});
    tensor<std::int64_t> lengths({2});
    lengths(0) = 210, lengths(1) = 95;
    kv_cache cache({.batch = 2, .kv_heads = 2, .capacity = 210, .dim = 16, .value_dim = 8, .type = dtype_of<TypeParam>});
    cache.append(x.k, x.v, lengths);
    // Every token's parent is drawn among those before it: it sees itself and its ancestors.
    random_source source(5);
    tensor<bool> tree({L, L}), whole({2, 1, L, 210}, true);
    for (std::int64_t i = 0; i < L; ++i) {
      if (i > 0) std::copy_n(&tree(source.between(0, i - 1), 0), L, &tree(i, 0));
      tree(i, i) = true;
      for (std::int64_t b = 0; b < 2; ++b) {
        for (std::int64_t j = 0; j < L; ++j) whole(b, 0, i, lengths(b) - L + j) = tree(i, j);
      }
    }
    const options how{.mask = tree}, reproducible{.mask = tree, .reproducible = true};
    options dense = causal_at_the_end;
    dense.mask = whole;
    dense.key_lengths = lengths;
    EXPECT_TRUE(as_reference(decoded(x.q, cache, how), x.q, x.k, x.v, dense)) << L;
    EXPECT_TRUE(as_reference(decoded(x.q, cache, reproducible), x.q, x.k, x.v, dense)) << L;
  }
}

TYPED_TEST(caches, filled_in_pieces_give_the_bits_of_prefill_at_once) {
  const auto x = make_inputs<TypeParam>({.B = 1, .H = 4, .Hk = 2, .L = 400, .S = 400, .E = 24, .Ev = 16});
  const auto whole = compute<TypeParam>(x.q, x.k, x.v, {.causal = true, .reproducible = true});
  for (const std::int64_t page_size : {0, 16, 50}) {
    kv_cache cache({.kv_heads = 2, .capacity = 400, .dim = 24, .value_dim = 16, .type = dtype_of<TypeParam>});
    paged_kv_cache pages({.pages = 25,
                          .page_size = std::max<std::int64_t>(page_size, 1),
                          .kv_heads = 2,
                          .dim = 24,
                          .value_dim = 16,
                          .type = dtype_of<TypeParam>});
    const sequence_id one[] = {pages.new_sequence()};
    std::int64_t at = 0;
    for (const std::int64_t n : {1, 63, 64, 2, 170, 100}) {
      const auto k = tokens(x.k, at, at + n), v = tokens(x.v, at, at + n), q = tokens(x.q, at, at + n);
      computed<TypeParam> part;
      if (page_size == 0) {
        cache.append(k, v);
        part = decoded(q, cache, {.reproducible = true});
      } else {
        pages.append(one[0], sequence_of(k, 0), sequence_of(v, 0));
        part = decoded(q, pages, one, {.reproducible = true});
      }
      for (std::int64_t h = 0; h < 4; ++h) {
        for (std::int64_t i = 0; i < n; ++i) {
          ASSERT_EQ(part.lse(0, h, i), whole.lse(0, h, at + i)) << page_size << ", token " << at + i;
          for (std::int64_t c = 0; c < 16; ++c)
            ASSERT_EQ(static_cast<double>(part.out(0, h, i, c)), static_cast<double>(whole.out(0, h, at + i, c)))
                << page_size << ", token " << at + i;
        }
      }
      at += n;
    }
  }
}

TYPED_TEST(caches, do_not_show_what_was_forgotten) {
  const auto nan = static_cast<TypeParam>(std::numeric_limits<double>::quiet_NaN());
  const tensor<TypeParam> bad({1, 2, 40, 16}, nan);
  const auto x = make_inputs<TypeParam>({.B = 1, .H = 4, .Hk = 2, .L = 20, .S = 30, .E = 16, .Ev = 16});
  const auto expected = compute<TypeParam>(x.q, x.k, x.v, causal_at_the_end);
  kv_cache cache({.kv_heads = 2, .capacity = 40, .dim = 16, .type = dtype_of<TypeParam>});
  cache.append(bad, bad);
  cache.truncate(0);
  cache.append(x.k, x.v);
  EXPECT_TRUE(same_bits(decoded(x.q, cache), expected));
  paged_kv_cache pages({.pages = 6, .page_size = 8, .kv_heads = 2, .dim = 16, .type = dtype_of<TypeParam>});
  const sequence_id dirt = pages.new_sequence();
  pages.append(dirt, sequence_of(bad, 0), sequence_of(bad, 0));
  pages.free(dirt);
  const sequence_id one[] = {pages.new_sequence()};
  pages.append(one[0], sequence_of(x.k, 0), sequence_of(x.v, 0));
  EXPECT_TRUE(same_bits(decoded(x.q, pages, one), expected));
  // A ring's older tokens are behind every window.
  kv_cache ring({.kv_heads = 2, .capacity = 27, .dim = 16, .type = dtype_of<TypeParam>, .window = 8});
  ring.append(tokens(bad, 0, 20), tokens(bad, 0, 20));
  decoded(tokens(x.q, 0, 1), ring);
  ring.append(tokens(x.k, 0, 10), tokens(x.v, 0, 10));
  decoded(tokens(x.q, 9, 10), ring);
  ring.append(tokens(x.k, 10, 30), tokens(x.v, 10, 30));
  const options dense{.causal = true, .window = {7, {}}, .query_offset = lower_right};
  EXPECT_TRUE(as_reference(decoded(x.q, ring), x.q, x.k, x.v, dense));
}

TYPED_TEST(caches, turn_keys_and_queries_by_their_positions) {
  const auto x = make_inputs<TypeParam>({.B = 2, .H = 4, .Hk = 2, .L = 3, .S = 30, .E = 12, .Ev = 8});
  for (const rotary& how : {rotary{}, rotary{.interleaved = true, .dimensions = 8, .base = 500}}) {
    const kv_cache_sizes sizes{
        .batch = 2, .kv_heads = 2, .capacity = 30, .dim = 12, .value_dim = 8, .type = dtype_of<TypeParam>};
    kv_cache_sizes turning = sizes;
    turning.rotary = how;
    kv_cache plain(sizes), turned(turning);
    paged_kv_cache pages(
        {.pages = 20, .page_size = 4, .kv_heads = 2, .dim = 12, .value_dim = 8, .type = dtype_of<TypeParam>, .rotary = how});
    const sequence_id sequences[] = {pages.new_sequence(), pages.new_sequence()};
    plain.append(rotary_embedding(x.k, 0, how), x.v);
    for (const auto& [begin, end] : {std::pair{0, 1}, std::pair{1, 14}, std::pair{14, 30}}) {
      turned.append(tokens(x.k, begin, end), tokens(x.v, begin, end));
      for (std::int64_t b = 0; b < 2; ++b)
        pages.append(sequences[b], sequence_of(tokens(x.k, begin, end), b), sequence_of(tokens(x.v, begin, end), b));
    }
    const auto expected = decoded(rotary_embedding(x.q, 27, how), plain);
    EXPECT_TRUE(same_bits(decoded(x.q, turned), expected));
    EXPECT_TRUE(same_bits(decoded(x.q, pages, sequences), expected));
    tensor<TypeParam> heads_last({2, 3, 4, 12});
    for (std::int64_t b = 0; b < 2; ++b) {
      for (std::int64_t h = 0; h < 4; ++h) {
        for (std::int64_t i = 0; i < 3; ++i) std::copy_n(&x.q(b, h, i, 0), 12, &heads_last(b, i, h, 0));
      }
    }
    const tensor<TypeParam> y = decode(heads_last, turned, {.layout = layout::blhd});
    for (std::int64_t b = 0; b < 2; ++b) {
      for (std::int64_t h = 0; h < 4; ++h) {
        for (std::int64_t i = 0; i < 3; ++i)
          EXPECT_EQ(static_cast<double>(y(b, i, h, 5)), static_cast<double>(expected.out(b, h, i, 5)));
      }
    }
    // Sequences of unequal lengths, one shorter than its queries: those before its first key see nothing.
    tensor<std::int64_t> lengths({2});
    lengths(0) = 2, lengths(1) = 30;
    turned.truncate(lengths), plain.truncate(lengths);
    tensor<std::int64_t> positions({2, 3});
    for (std::int64_t i = 0; i < 3; ++i) positions(0, i) = std::max<std::int64_t>(0, i - 1), positions(1, i) = 27 + i;
    EXPECT_TRUE(same_bits(decoded(x.q, turned), decoded(rotary_embedding(x.q, positions, how), plain)));
  }
  // Tables by position: rows that a sequence does not take have none.
  const tensor<float> cos({4, 6}, 0.6f), sin({4, 6}, 0.8f);
  kv_cache tables({.batch = 2,
                   .kv_heads = 2,
                   .capacity = 4,
                   .dim = 12,
                   .type = dtype_of<TypeParam>,
                   .rotary = rotary{.cos = cos, .sin = sin}});
  tensor<std::int64_t> first({2}), second({2});
  first(0) = second(1) = 3, first(1) = second(0) = 1;
  const auto three = tokens(x.k, 0, 3);
  tables.append(three, three, first);
  tables.append(three, three, second);
  EXPECT_TRUE(tables.lengths()[0] == 4 && tables.lengths()[1] == 4);
  EXPECT_THROW(kv_cache({.dim = 5, .rotary = rotary{}}), argument_error);
  EXPECT_THROW(paged_kv_cache({.dim = 4, .rotary = rotary{.dimensions = 6}}), argument_error);
}

TYPED_TEST(caches, of_strided_tokens_hold_the_same) {
  const auto x = make_inputs<TypeParam>({.B = 2, .H = 2, .Hk = 2, .L = 2, .S = 20, .E = 6, .Ev = 6});
  kv_cache plain = filled(x), strided({.batch = 2, .kv_heads = 2, .capacity = 20, .dim = 6, .type = dtype_of<TypeParam>});
  // (batch, n, heads, width) and columns backwards, twice.
  tensor<TypeParam> turned({2, 20, 2, 6}), mirrored({2, 2, 20, 6});
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t n = 0; n < 20; ++n) {
        for (std::int64_t d = 0; d < 6; ++d) turned(b, n, h, d) = x.k(b, h, n, d), mirrored(b, h, n, 5 - d) = x.v(b, h, n, d);
      }
    }
  }
  const tensor_view<const TypeParam> k(turned.data(), {2, 2, 20, 6}, {240, 6, 12, 1});
  const tensor_view<const TypeParam> v(mirrored.data() + 5, {2, 2, 20, 6}, {240, 120, 6, -1});
  strided.append(k, v);
  EXPECT_TRUE(same_bits(decoded(x.q, strided), decoded(x.q, plain)));
}

}  // namespace
}  // namespace attend::test

// What caches refuse leaves them as they were.
#include <gtest/gtest.h>

#include <functional>

#include "support/cache.hpp"
#include "support/refusal.hpp"

namespace attend::test {
namespace {

/// A contiguous cache, a ring and two sequences in pages, each with a few tokens.
struct some_caches {
  tensor<float> k = normal<float>({2, 2, 5, 4}, 1), v = normal<float>({2, 2, 5, 3}, 2), q = normal<float>({2, 4, 1, 4}, 3);
  kv_cache cache{{.batch = 2, .kv_heads = 2, .capacity = 8, .dim = 4, .value_dim = 3}};
  kv_cache ring{{.batch = 2, .kv_heads = 2, .capacity = 8, .dim = 4, .value_dim = 3, .window = 4}};
  paged_kv_cache pages{{.pages = 6, .page_size = 2, .kv_heads = 2, .dim = 4, .value_dim = 3}};
  sequence_id sequences[2] = {pages.new_sequence(), pages.new_sequence()};

  some_caches() {
    cache.append(k, v);
    ring.append(k, v);
    decode(q, ring, outputs{});
    for (std::int64_t b = 0; b < 2; ++b)
      pages.append(sequences[b], sequence_of(tokens(k, 0, 3), b), sequence_of(tokens(v, 0, 3), b));
  }

  /// What every cache gives now.
  std::vector<computed<float>> state() {
    std::vector<computed<float>> all;
    all.push_back(decoded(q, cache));
    all.push_back(decoded(q, ring));
    all.push_back(decoded(q, pages, sequences));
    return all;
  }
};

void expect_refused(const std::string& argument, const std::vector<std::string>& words,
                    const std::function<void(some_caches&)>& call, argument_error::kind fault = argument_error::kind::value) {
  some_caches c;
  const auto before = c.state();
  const std::int64_t free = c.pages.free_pages();
  expect_argument_error(argument, words, fault, [&] { call(c); });
  const auto after = c.state();
  for (std::size_t n = 0; n < before.size(); ++n) EXPECT_TRUE(same_bits(after[n], before[n])) << argument << ", cache " << n;
  EXPECT_EQ(c.pages.free_pages(), free);
  EXPECT_EQ(c.cache.lengths()[0], 5);
  EXPECT_EQ(c.ring.lengths()[1], 5);
}

TEST(cache_errors, sizes_are_checked) {
  EXPECT_THROW(kv_cache({.batch = -1}), argument_error);
  EXPECT_THROW(kv_cache({.kv_heads = -1}), argument_error);
  EXPECT_THROW(kv_cache({.capacity = -1}), argument_error);
  EXPECT_THROW(kv_cache({.dim = -1}), argument_error);
  EXPECT_THROW(kv_cache({.value_dim = -1}), argument_error);
  EXPECT_THROW(kv_cache({.type = dtype::i64}), argument_error);
  EXPECT_THROW(kv_cache({.capacity = 4, .window = 0}), argument_error);
  EXPECT_THROW(kv_cache({.capacity = 4, .window = 5}), argument_error);
  EXPECT_THROW(kv_cache({.batch = 1 << 20, .kv_heads = 1 << 20, .capacity = 1 << 20, .dim = 1 << 20}), argument_error);
  EXPECT_THROW(kv_cache({.batch = std::int64_t{1} << 60, .kv_heads = 0}), argument_error);
  EXPECT_THROW(paged_kv_cache({.pages = std::int64_t{1} << 60, .kv_heads = 0}), argument_error);
  EXPECT_THROW(paged_kv_cache({.pages = -1}), argument_error);
  EXPECT_THROW(paged_kv_cache({.page_size = 0}), argument_error);
  EXPECT_NO_THROW(kv_cache({.batch = 0}));
  EXPECT_NO_THROW(paged_kv_cache({}));
}

TEST(cache_errors, tokens_that_do_not_fit_change_nothing) {
  expect_refused("k", {"capacity, 8", "4 after 5"}, [](some_caches& c) {
    const tensor<float> more({2, 2, 4, 4}), values({2, 2, 4, 3});
    c.cache.append(more, values);
  });
  expect_refused("k", {"in sequence 1"}, [](some_caches& c) {  // the first would fit
    tensor<std::int64_t> lengths({2});
    lengths(0) = 1, lengths(1) = 4;
    const tensor<float> more({2, 2, 4, 4}), values({2, 2, 4, 3});
    c.cache.append(more, values, lengths);
  });
  expect_refused("k", {"at most 5 tokens", "window"}, [](some_caches& c) {
    const tensor<float> more({2, 2, 6, 4}), values({2, 2, 6, 3});
    c.ring.append(more, values);
  });
  expect_refused("k", {"2 free pages", "take 3"}, [](some_caches& c) {
    const tensor<float> more({2, 6, 4}), values({2, 6, 3});
    c.pages.append(c.sequences[0], more, values);
  });
  expect_refused("k", {"(2, 2, n, 4)", "(2, 2, 5, 3)"}, [](some_caches& c) { c.cache.append(c.v, c.v); });
  expect_refused("v", {"(2, 2, n, 3)"}, [](some_caches& c) { c.cache.append(c.k, c.k); });
  expect_refused("v", {"as many tokens as k, 5", "4"}, [](some_caches& c) { c.cache.append(c.k, tokens(c.v, 0, 4)); });
  expect_refused("k", {"(2, n, 4)"}, [](some_caches& c) { c.pages.append(c.sequences[0], c.k, c.v); });
  expect_refused(
      "k", {"float32", "float64"}, [](some_caches& c) { c.cache.append(tensor<double>({2, 2, 1, 4}), c.v); }, type_fault);
  expect_refused("v", {"bfloat16"}, [](some_caches& c) { c.cache.append(c.k, tensor<bfloat16>({2, 2, 5, 3})); }, type_fault);
  expect_refused("k", {"none"}, [](some_caches& c) { c.cache.append({}, c.v); });
  expect_refused("lengths", {"from 0 to 5", "6"}, [](some_caches& c) { c.cache.append(c.k, c.v, 6); });
  expect_refused("lengths", {"-1"}, [](some_caches& c) { c.cache.append(c.k, c.v, -1); });
  expect_refused("lengths", {"shape (2,)", "(3,)"},
                 [](some_caches& c) { c.cache.append(c.k, c.v, tensor<std::int64_t>({3})); });
}

TEST(cache_errors, what_is_not_there_cannot_be_cut) {
  expect_refused("lengths", {"from 0 to 5", "6"}, [](some_caches& c) { c.cache.truncate(6); });
  expect_refused("lengths", {"-1"}, [](some_caches& c) { c.cache.truncate(-1); });
  expect_refused("lengths", {"none"}, [](some_caches& c) { c.cache.truncate({}); });
  expect_refused("length", {"from 0 to 3", "4"}, [](some_caches& c) { c.pages.truncate(c.sequences[0], 4); });
  some_caches c;
  const tensor<float> more({2, 2, 5, 4}), values({2, 2, 5, 3});
  c.ring.append(more, values);  // the ring holds tokens 2 to 9
  EXPECT_THROW(c.ring.truncate(4), argument_error);
  EXPECT_NO_THROW(c.ring.truncate(5));
  EXPECT_NO_THROW(c.ring.truncate(0));
}

TEST(cache_errors, sequences_that_are_not_there_are_refused) {
  for (const auto& use : std::vector<std::function<void(some_caches&, sequence_id)>>{
           [](some_caches& c, sequence_id s) { c.pages.free(s); }, [](some_caches& c, sequence_id s) { c.pages.fork(s); },
           [](some_caches& c, sequence_id s) { c.pages.length(s); }, [](some_caches& c, sequence_id s) { c.pages.pages(s); },
           [](some_caches& c, sequence_id s) { c.pages.truncate(s, 0); },
           [](some_caches& c, sequence_id s) { c.pages.append(s, sequence_of(c.k, 0), sequence_of(c.v, 0)); },
           [](some_caches& c, sequence_id s) { decode(c.q, c.pages, std::vector{s, c.sequences[0]}, outputs{}); }}) {
    for (const std::int64_t unknown : {std::int64_t{-1}, std::int64_t{2}, std::int64_t{1} << 40})
      expect_refused("sequence", {std::to_string(unknown)}, [&](some_caches& c) { use(c, sequence_id{unknown}); });
    some_caches c;
    c.pages.free(c.sequences[1]);
    EXPECT_THROW(use(c, c.sequences[1]), argument_error);
  }
}

TEST(cache_errors, queries_have_to_fit) {
  const auto decode_with = [](const auto& change) {
    return [change](some_caches& c) {
      options how;
      change(how, c);
      decode(c.q, c.cache, outputs{.out = tensor<float>({2, 4, 1, 3})}, how);
    };
  };
  expect_refused("q", {"(2, heads, queries, width)"},
                 [](some_caches& c) { decode(tensor<float>({3, 4, 1, 4}), c.cache, outputs{}); });
  expect_refused("q", {"width", "4", "5"}, [](some_caches& c) { decode(tensor<float>({2, 4, 1, 5}), c.cache, outputs{}); });
  expect_refused("q", {"multiple", "2", "3"}, [](some_caches& c) { decode(tensor<float>({2, 3, 1, 4}), c.cache, outputs{}); });
  expect_refused(
      "q", {"float32", "float16"}, [](some_caches& c) { decode(tensor<float16>({2, 4, 1, 4}), c.cache, outputs{}); },
      type_fault);
  expect_refused("q", {"2 sequences"},
                 [](some_caches& c) { decode(tensor<float>({4, 1, 4}), c.pages, c.sequences, outputs{}); });
  expect_refused("query_offset", {}, decode_with([](options& o, some_caches&) { o.query_offset = 3; }));
  expect_refused("key_lengths", {}, decode_with([](options& o, some_caches&) { o.key_lengths = 3; }));
  expect_refused("dropout", {}, decode_with([](options& o, some_caches&) { o.dropout.p = 0.5; }));
  expect_refused("grid", {}, decode_with([](options& o, some_caches&) { o.grid = 3; }));
  expect_refused("mask", {"booleans"}, decode_with([](options& o, some_caches& c) { o.mask = c.k; }), type_fault);
  expect_refused("mask", {"broadcasts"}, decode_with([](options& o, some_caches&) {
                   static const tensor<bool> six({6});
                   o.mask = six;
                 }));
  expect_refused("window", {"below the ring's window, 4"},
                 [](some_caches& c) { decode(c.q, c.ring, outputs{}, {.window = {4, {}}}); });
  expect_refused("prefix", {"ring"}, [](some_caches& c) { decode(c.q, c.ring, outputs{}, {.prefix = 1}); });
  expect_refused("q", {"ring still holds"}, [](some_caches& c) {
    const tensor<float> more({2, 2, 5, 4}), values({2, 2, 5, 3});
    some_caches other;
    other.ring.append(more, values);
    decode(tensor<float>({2, 4, 6, 4}), other.ring, outputs{});
    (void)c;
  });
  expect_refused("out", {"overlaps q"}, [](some_caches& c) {
    decode(c.q, c.cache, outputs{.out = mutable_array_view(c.q.data(), dtype::f32, {2, 4, 1, 3}, {12, 3, 3, 1})});
  });
}

}  // namespace
}  // namespace attend::test

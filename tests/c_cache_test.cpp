// Caches through the C ABI: the bits of C++, statuses and texts of what is refused.
#include <gtest/gtest.h>

#include <string>

#include "support/c_call.hpp"
#include "support/cache.hpp"

namespace attend::test {
namespace {

struct c_caches : testing::Test {
  inputs<float> x = make_inputs<float>({.B = 2, .H = 4, .Hk = 2, .L = 1, .S = 20, .E = 8, .Ev = 6});
  tensor<float> out{{2, 4, 1, 6}, 7.0f};
  c_array q{x.q}, k{x.k}, v{x.v}, to{array_view(out)};
  attend_results results = ATTEND_INIT(attend_results);
  const std::int64_t value_dim = 6;

  c_caches() { results.out = to.get(); }
};

TEST_F(c_caches, quantise_each_side_by_its_own_setting) {
  attend_cache_sizes sizes = ATTEND_INIT(attend_cache_sizes);
  sizes.batch = 2, sizes.kv_heads = 2, sizes.capacity = 24, sizes.dim = 8, sizes.value_dim = &value_dim,
  sizes.dtype = ATTEND_FLOAT32, sizes.quantized_keys = ATTEND_INT8, sizes.quantized_values = ATTEND_INT4;
  attend_cache* cache = nullptr;
  ASSERT_EQ(attend_cache_create(&sizes, &cache), ATTEND_OK) << attend_last_error();
  EXPECT_EQ(attend_cache_append(cache, k.get(), v.get(), nullptr), ATTEND_OK) << attend_last_error();
  EXPECT_EQ(attend_decode(q.get(), cache, &results, nullptr), ATTEND_OK) << attend_last_error();
  kv_cache same({.batch = 2,
                 .kv_heads = 2,
                 .capacity = 24,
                 .dim = 8,
                 .value_dim = 6,
                 .quantized_keys = quantization::int8,
                 .quantized_values = quantization::int4});
  same.append(x.k, x.v);
  EXPECT_TRUE(same_bits(out, decode(x.q, same)));
  attend_cache_destroy(cache);
  attend_paged_cache_sizes pages = ATTEND_INIT(attend_paged_cache_sizes);
  pages.pages = 4, pages.page_size = 2, pages.kv_heads = 2, pages.dim = 8, pages.dtype = ATTEND_FLOAT16;
  pages.quantized_values = ATTEND_INT8;
  attend_paged_cache* paged = nullptr;
  ASSERT_EQ(attend_paged_cache_create(&pages, &paged), ATTEND_OK) << attend_last_error();
  attend_paged_cache_destroy(paged);
  for (std::int32_t* member : {&sizes.quantized_keys, &sizes.quantized_values, &sizes.reserved}) {
    *member = 3;
    EXPECT_EQ(attend_cache_create(&sizes, &cache), ATTEND_ERROR_ARGUMENT);
    *member = 0;
  }
  pages.reserved = 1;
  EXPECT_EQ(attend_paged_cache_create(&pages, &paged), ATTEND_ERROR_ARGUMENT);
}

TEST_F(c_caches, contiguous_ones_give_the_bits_of_cpp) {
  attend_cache_sizes sizes = ATTEND_INIT(attend_cache_sizes);
  sizes.batch = 2, sizes.kv_heads = 2, sizes.capacity = 24, sizes.dim = 8, sizes.value_dim = &value_dim,
  sizes.dtype = ATTEND_FLOAT32;
  attend_cache* cache = nullptr;
  ASSERT_EQ(attend_cache_create(&sizes, &cache), ATTEND_OK) << attend_last_error();
  EXPECT_EQ(attend_cache_append(cache, k.get(), v.get(), nullptr), ATTEND_OK) << attend_last_error();
  attend_options how = ATTEND_INIT(attend_options);
  const double cap = 2;
  how.softcap = &cap;
  EXPECT_EQ(attend_decode(q.get(), cache, &results, &how), ATTEND_OK) << attend_last_error();
  EXPECT_TRUE(same_bits(out, attention(x.q, x.k, x.v, {.softcap = 2})));
  const std::int64_t kept = 7;
  const attend_integers lengths = {&kept, nullptr};
  EXPECT_EQ(attend_cache_truncate(cache, &lengths), ATTEND_OK);
  std::int64_t now[2] = {};
  EXPECT_EQ(attend_cache_lengths(cache, now), ATTEND_OK);
  EXPECT_TRUE(now[0] == 7 && now[1] == 7);
  EXPECT_EQ(attend_cache_append(cache, k.get(), v.get(), nullptr), ATTEND_ERROR_ARGUMENT);
  EXPECT_EQ(std::string(attend_last_error()).rfind("k: expected tokens within the capacity, 24", 0), 0u) << attend_last_error();
  EXPECT_EQ(attend_cache_append(cache, k.get(), v.get(), &lengths), ATTEND_OK);
  EXPECT_EQ(attend_cache_reset(cache), ATTEND_OK);
  EXPECT_EQ(attend_cache_lengths(cache, now), ATTEND_OK);
  EXPECT_TRUE(now[0] == 0 && now[1] == 0);
  EXPECT_EQ(attend_decode(q.get(), nullptr, &results, nullptr), ATTEND_ERROR_ARGUMENT);
  EXPECT_EQ(attend_decode(q.get(), cache, nullptr, nullptr), ATTEND_ERROR_ARGUMENT);
  EXPECT_EQ(attend_cache_lengths(cache, nullptr), ATTEND_ERROR_ARGUMENT);
  attend_cache_destroy(cache);
  attend_cache_destroy(nullptr);
  attend_rotary turning = ATTEND_INIT(attend_rotary);
  turning.interleaved = 1;
  sizes.rotary = &turning;
  ASSERT_EQ(attend_cache_create(&sizes, &cache), ATTEND_OK) << attend_last_error();
  EXPECT_EQ(attend_cache_append(cache, k.get(), v.get(), nullptr), ATTEND_OK);
  EXPECT_EQ(attend_decode(q.get(), cache, &results, nullptr), ATTEND_OK) << attend_last_error();
  const rotary same{.interleaved = true};
  EXPECT_TRUE(same_bits(out, attention(rotary_embedding(x.q, 19, same), rotary_embedding(x.k, 0, same), x.v)));
  attend_cache_destroy(cache);
  sizes.rotary = nullptr;
  const std::int64_t window = 30;
  sizes.window = &window;
  EXPECT_EQ(attend_cache_create(&sizes, &cache), ATTEND_ERROR_ARGUMENT);
  sizes.window = nullptr, sizes.dtype = ATTEND_INT64;
  EXPECT_EQ(attend_cache_create(&sizes, &cache), ATTEND_ERROR_TYPE);
  sizes.dtype = 99;
  EXPECT_EQ(attend_cache_create(&sizes, &cache), ATTEND_ERROR_TYPE);
  EXPECT_EQ(attend_cache_create(nullptr, &cache), ATTEND_ERROR_ARGUMENT);
}

TEST_F(c_caches, pages_give_the_bits_of_cpp) {
  attend_paged_cache_sizes sizes = ATTEND_INIT(attend_paged_cache_sizes);
  sizes.pages = 12, sizes.page_size = 4, sizes.kv_heads = 2, sizes.dim = 8, sizes.value_dim = &value_dim,
  sizes.dtype = ATTEND_FLOAT32;
  attend_paged_cache* cache = nullptr;
  ASSERT_EQ(attend_paged_cache_create(&sizes, &cache), ATTEND_OK) << attend_last_error();
  std::int64_t sequences[2] = {}, fork = -1, length = 0, free = 0;
  for (std::int64_t b = 0; b < 2; ++b) {
    const c_array keys(sequence_of(x.k, b)), values(sequence_of(x.v, b));
    EXPECT_EQ(attend_paged_cache_new_sequence(cache, &sequences[b]), ATTEND_OK);
    EXPECT_EQ(attend_paged_cache_append(cache, sequences[b], keys.get(), values.get()), ATTEND_OK) << attend_last_error();
  }
  EXPECT_EQ(attend_decode_paged(q.get(), cache, sequences, 2, &results, nullptr), ATTEND_OK) << attend_last_error();
  EXPECT_TRUE(same_bits(out, attention(x.q, x.k, x.v)));
  EXPECT_EQ(attend_paged_cache_fork(cache, sequences[0], &fork), ATTEND_OK);
  EXPECT_EQ(attend_paged_cache_free(cache, sequences[0]), ATTEND_OK);
  EXPECT_EQ(attend_paged_cache_free_pages(cache, &free), ATTEND_OK);
  EXPECT_EQ(free, 2);
  EXPECT_EQ(attend_paged_cache_truncate(cache, fork, 4), ATTEND_OK);
  EXPECT_EQ(attend_paged_cache_length(cache, fork, &length), ATTEND_OK);
  EXPECT_EQ(length, 4);
  EXPECT_EQ(attend_paged_cache_length(cache, sequences[0], &length), ATTEND_ERROR_ARGUMENT);
  EXPECT_EQ(std::string(attend_last_error()).rfind("sequence: expected", 0), 0u) << attend_last_error();
  EXPECT_EQ(attend_decode_paged(q.get(), cache, nullptr, 2, &results, nullptr), ATTEND_ERROR_ARGUMENT);
  attend_paged_cache_destroy(cache);
  sizes.page_size = 0;
  EXPECT_EQ(attend_paged_cache_create(&sizes, &cache), ATTEND_ERROR_ARGUMENT);
}

TEST_F(c_caches, pages_of_the_callers_are_read_in_place) {
  const auto q3 = normal<float>({3, 4, 8}, 1), k4 = normal<float>({4, 2, 2, 8}, 2), v4 = normal<float>({4, 2, 2, 6}, 3);
  tensor<std::int64_t> starts({3}), table({2, 2}), lengths({2});
  starts(1) = 1, starts(2) = 3, table(0, 0) = 3, table(1, 0) = 0, table(1, 1) = 2, lengths(0) = 2, lengths(1) = 3;
  tensor<float> y({3, 4, 6}, 7.0f);
  const c_array cq(q3), ck(k4), cv(v4), cs(starts), ct(table), cl(lengths), cy{array_view(y)};
  attend_options how = ATTEND_INIT(attend_options);
  how.causal = 1, how.key_lengths.values = cl.get();
  results.out = cy.get();
  EXPECT_EQ(attend_attention_pages(cq.get(), ck.get(), cv.get(), cs.get(), ct.get(), &results, &how), ATTEND_OK)
      << attend_last_error();
  EXPECT_TRUE(same_bits(y, attention_varlen(q3, k4, v4, starts, block_table{table}, {.causal = true, .key_lengths = lengths})));
  EXPECT_EQ(attend_attention_pages(cq.get(), ck.get(), cv.get(), cs.get(), nullptr, &results, &how), ATTEND_ERROR_TYPE);
}

}  // namespace
}  // namespace attend::test

// Packed queries over pages of the caller's: the bits of the same keys packed, whatever page they lie in; what is wrong with a table is said.
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <vector>

#include "support/refusal.hpp"
#include "support/varlen.hpp"

namespace attend::test {
namespace {

/// Keys and values of packed sequences in pages that are handed out in disorder, NaN where no key lies.
template <class T>
struct paged_keys {
  tensor<T> k, v;
  tensor<std::int64_t> table, lengths;
};

template <class T>
paged_keys<T> in_pages(const packed<T>& x, std::int64_t page_size, std::int64_t spare_pages = 3) {
  const std::int64_t Hk = x.k.shape()[1], E = x.k.shape()[2], Ev = x.v.shape()[2];
  const auto pages_for = [&](std::int64_t keys) { return (keys + page_size - 1) / page_size; };
  std::int64_t pages = spare_pages, most = 0;
  for (const auto& [L, S] : x.lengths) pages += pages_for(S), most = std::max(most, pages_for(S));
  std::vector<std::int64_t> order(static_cast<std::size_t>(pages));
  std::iota(order.begin(), order.end(), 0);
  random_source source(21);
  for (std::size_t n = order.size(); n > 1; --n)
    std::swap(order[n - 1], order[std::size_t(source.between(0, std::int64_t(n) - 1))]);
  const auto nan = static_cast<T>(std::numeric_limits<double>::quiet_NaN());
  // Entries that no key needs name no page at all.
  paged_keys<T> made{tensor<T>({pages, page_size, Hk, E}, nan), tensor<T>({pages, page_size, Hk, Ev}, nan),
                     tensor<std::int64_t>({x.count(), most}, -7), tensor<std::int64_t>({x.count()})};
  for (std::int64_t s = 0; s < x.count(); ++s) {
    made.lengths(s) = x.lengths[std::size_t(s)].second;
    for (std::int64_t j = 0; j < made.lengths(s); ++j) {
      if (j % page_size == 0) {
        made.table(s, j / page_size) = order.back();
        order.pop_back();
      }
      const std::int64_t page = made.table(s, j / page_size), row = x.at_k(s) + j;
      std::copy_n(x.k.data() + row * Hk * E, Hk * E, &made.k(page, j % page_size, 0, 0));
      std::copy_n(x.v.data() + row * Hk * Ev, Hk * Ev, &made.v(page, j % page_size, 0, 0));
    }
  }
  return made;
}

template <class T>
computed<T> compute(const packed<T>& x, const paged_keys<T>& keys, const array_view& table, options how) {
  computed<T> all{tensor<T>({x.queries(), x.q.shape()[1], x.v.shape()[2]}, T(77)),
                  tensor<accumulator<T>>({x.queries(), x.q.shape()[1]}, 78),
                  {}};
  how.key_lengths = keys.lengths;
  attention_varlen(x.q, keys.k, keys.v, x.at_q, block_table{table}, outputs{.out = all.out, .lse = all.lse}, how);
  return all;
}

template <class T>
struct varlen_pages : testing::Test {};
TYPED_TEST_SUITE(varlen_pages, stored_types);

TYPED_TEST(varlen_pages, give_the_bits_of_packed_keys) {
  for (const sequence_lengths& lengths : {sequence_lengths{{1, 9}, {1, 40}, {1, 7}, {1, 300}, {1, 0}, {1, 33}},
                                          sequence_lengths{{0, 0}, {5, 5}, {4, 0}, {1, 130}, {70, 70}, {130, 1700}, {0, 3}}}) {
    for (const sizes& n : {sizes{.H = 4, .Hk = 2, .E = 16, .Ev = 8}, sizes{.H = 1, .Hk = 1, .E = 33, .Ev = 17}}) {
      const auto x = make_packed<TypeParam>(lengths, n);
      for (const std::int64_t page_size : {1, 5, 16, 256}) {
        const auto keys = in_pages(x, page_size);
        for (const options& how :
             {options{}, options{.causal = true}, options{.causal = true, .window = {20, {}}, .softcap = 2},
              options{.causal = true, .reproducible = true, .threads = 3}})
          EXPECT_TRUE(same_bits(compute(x, keys, keys.table, how), compute(x, how))) << page_size << ", " << n.to_string();
      }
    }
  }
}

TYPED_TEST(varlen_pages, may_be_listed_with_any_strides) {
  const auto x = make_packed<TypeParam>({{2, 9}, {3, 40}, {1, 7}}, {.H = 4, .Hk = 2, .E = 16, .Ev = 8});
  const auto keys = in_pages(x, 4);
  const std::int64_t most = keys.table.shape()[1];
  tensor<std::int64_t> turned({most, 3});
  for (std::int64_t s = 0; s < 3; ++s) {
    for (std::int64_t n = 0; n < most; ++n) turned(most - 1 - n, s) = keys.table(s, n);
  }
  const tensor_view<const std::int64_t> table(&turned(most - 1, 0), {3, most}, {1, -3});
  EXPECT_TRUE(same_bits(compute(x, keys, table, {.causal = true}), compute(x, {.causal = true})));
}

/// A right call that a test makes wrong in one place.
struct paged_call {
  packed<float> x = make_packed<float>({{3, 5}, {4, 2}}, {.H = 4, .Hk = 2, .E = 8, .Ev = 6});
  paged_keys<float> keys = in_pages(x, 2, 1);
  tensor<float> out{{7, 4, 6}, 7.0f}, lse{{7, 4}, 7.0f};
  array_view k = keys.k, v = keys.v, table = keys.table;
  outputs results{.out = out, .lse = lse};
  options how{.key_lengths = keys.lengths};
};

void expect_paged_refusal(const std::string& argument, const std::vector<std::string>& words,
                          const std::function<void(paged_call&)>& spoil,
                          argument_error::kind fault = argument_error::kind::value) {
  paged_call c;
  spoil(c);
  expect_argument_error(argument, words, fault,
                        [&] { attention_varlen(c.x.q, c.k, c.v, c.x.at_q, block_table{c.table}, c.results, c.how); });
  EXPECT_TRUE(untouched(c.out) && untouched(c.lse)) << argument << ": something was written";
}

TEST(refused_of_pages, is_what_names_no_page) {
  paged_call right;
  EXPECT_NO_THROW(
      attention_varlen(right.x.q, right.k, right.v, right.x.at_q, block_table{right.table}, right.results, right.how));
  for (const std::int64_t page : {std::int64_t{-1}, std::int64_t{5}, std::int64_t{1} << 40}) {
    expect_paged_refusal("block_table", {"from 0 to 4", std::to_string(page), "page 2 of sequence 0"},
                         [page](paged_call& c) { c.keys.table(0, 2) = page; });
  }
  expect_paged_refusal("block_table", {"int64", "float32"}, [](paged_call& c) { c.table = c.out; }, type_fault);
  expect_paged_refusal("block_table", {"(2, pages", "(2,)"}, [](paged_call& c) { c.table = c.keys.lengths; });
  expect_paged_refusal("block_table", {"(2, pages", "(1, 3)"},
                       [](paged_call& c) { c.table = tensor_view<const std::int64_t>(c.keys.table.data(), {1, 3}); });
  expect_paged_refusal("key_lengths", {"none"}, [](paged_call& c) { c.how.key_lengths = {}; });
  expect_paged_refusal("key_lengths", {"from 0 to 6", "7"}, [](paged_call& c) { c.keys.lengths(0) = 7; });
  expect_paged_refusal("k", {"(pages, page size, heads, width)"}, [](paged_call& c) { c.k = c.x.k; });
  expect_paged_refusal("v", {"as many pages as k, 5", "4"},
                       [](paged_call& c) { c.v = tensor_view<const float>(c.keys.v.data(), {4, 2, 2, 6}); });
  expect_paged_refusal("v", {"as many keys"},
                       [](paged_call& c) { c.v = tensor_view<const float>(c.keys.v.data(), {5, 1, 2, 6}); });
  expect_paged_refusal("key_segments", {}, [](paged_call& c) { c.how.key_segments = c.keys.lengths; });
  expect_paged_refusal("grid", {}, [](paged_call& c) { c.how.grid = 2; });
  expect_paged_refusal("out", {"overlaps k"}, [](paged_call& c) {
    c.results.out = mutable_array_view(c.keys.k.data(), dtype::f32, {7, 4, 6}, {24, 6, 1});
    c.results.lse = {};
  });
}

}  // namespace
}  // namespace attend::test

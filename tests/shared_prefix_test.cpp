// Sequences that fork from a prefix: its keys are read once for all of them, and every sequence has the bits that it has alone.
#include "shared_keys.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <vector>

#include "support/cache.hpp"

namespace attend::test {
namespace {

/// A tree of sequences: five that fork within or at the end of a long prefix, one that forks from one of them, a short one, an empty one, and one
/// with the prefix's tokens in pages of its own.
template <class T>
struct family {
  static constexpr std::int64_t prefix = 2500, tail = 700, heads = 2, E = 24, Ev = 20;
  paged_kv_cache cache;
  std::vector<sequence_id> members;
  std::int64_t seed = 100;

  explicit family(std::int64_t page_size, quantization codes)
      : cache({.pages = (12 * prefix + 8 * tail) / page_size + 40,
               .page_size = page_size,
               .kv_heads = heads,
               .dim = E,
               .value_dim = Ev,
               .type = dtype_of<T>,
               .quantized_keys = codes,
               .quantized_values = codes}) {
    const sequence_id root = started(prefix, 1);
    for (const std::int64_t kept : {prefix, prefix, prefix - 1, std::int64_t{2048}, std::int64_t{2047}}) {
      members.push_back(cache.fork(root));
      cache.truncate(members.back(), kept);
      grow(members.back(), tail);
    }
    members.push_back(cache.fork(members[1]));
    grow(members.back(), 1);
    members.push_back(started(3, 2));
    members.push_back(cache.new_sequence());
    members.push_back(started(prefix, 1));
    members.push_back(root);
  }

  sequence_id started(std::int64_t n, std::uint64_t salt) {
    const sequence_id s = cache.new_sequence();
    cache.append(s, normal<T>({heads, n, E}, salt), normal<T>({heads, n, Ev}, salt + 50));
    return s;
  }
  void grow(sequence_id s, std::int64_t n) {
    cache.append(s, normal<T>({heads, n, E}, std::uint64_t(seed)), normal<T>({heads, n, Ev}, std::uint64_t(seed + 1)));
    seed += 2;
  }
};

template <class T>
struct shared_prefixes : testing::Test {};
TYPED_TEST_SUITE(shared_prefixes, stored_types);

/// Rows of sequence n of the results for all of them.
template <class T>
tensor<T> row_of(const tensor<T>& all, std::size_t n) {
  extents shape = all.shape();
  shape[0] = 1;
  tensor<T> one(shape);
  std::copy_n(all.begin() + std::int64_t(n) * one.size(), one.size(), one.begin());
  return one;
}

template <class T>
void expect_bits_of_each_alone(std::int64_t page_size, quantization codes) {
  using wide = accumulator<T>;
  family<T> f(page_size, codes);
  const std::int64_t n = std::int64_t(f.members.size());
  for (const auto& [H, L] : {std::pair<std::int64_t, std::int64_t>{2, 1}, {2, 3}, {6, 1}, {16, 1}, {18, 1}}) {
    const auto q = normal<T>({n, H, L, family<T>::E}, 3);
    const auto slopes = normal<float>({H}, 7), sinks = normal<float>({H}, 8);
    const auto bias = normal<T>({n, H, 1, 3201}, 9);
    const auto mask = coins({n, 1, L, 3201}, 10, 0.8);
    const auto expect = [&](const options& how, const std::function<options(std::size_t)>& of_one) {
      const auto all = decoded(q, f.cache, f.members, how);
      for (std::size_t b = 0; b < f.members.size(); ++b) {
        const sequence_id one[] = {f.members[b]};
        const auto alone = decoded(row_of(q, b), f.cache, one, of_one(b));
        EXPECT_TRUE(same_bits(row_of(all.out, b), alone.out)) << "sequence " << b << ", H " << H << ", L " << L;
        EXPECT_TRUE(same_bits(row_of<wide>(all.lse, b), alone.lse)) << "sequence " << b << ", H " << H << ", L " << L;
      }
    };
    for (const options& how :
         {options{}, options{.threads = 3}, options{.window = {1100, {}}, .prefix = 40}, options{.alibi = slopes},
          options{.softcap = 2.0, .sinks = sinks}, options{.reproducible = true}})
      expect(how, [&](std::size_t) { return how; });
    // What has a column per key: alone, a sequence has its own number of them.
    tensor<T> own_bias;
    tensor<bool> own_mask;
    const auto columns = [&](const auto& x, std::size_t b) {
      const sequence_id one = f.members[b];
      const extents from = x.shape();
      std::decay_t<decltype(x)> y({1, from[1], from[2], f.cache.length(one)});
      for (std::int64_t h = 0; h < from[1]; ++h) {
        for (std::int64_t i = 0; i < from[2]; ++i) {
          for (std::int64_t j = 0; j < y.shape()[3]; ++j) y(0, h, i, j) = x(std::int64_t(b), h, i, j);
        }
      }
      return y;
    };
    expect({.bias = bias}, [&](std::size_t b) {
      own_bias = columns(bias, b);
      return options{.bias = own_bias};
    });
    expect({.mask = mask}, [&](std::size_t b) {
      own_mask = columns(mask, b);
      return options{.mask = own_mask};
    });
  }
}

TYPED_TEST(shared_prefixes, leave_the_bits_of_each_alone) {
  for (const std::int64_t page_size : {1, 16, 1000}) expect_bits_of_each_alone<TypeParam>(page_size, quantization::none);
}
TEST(shared_prefixes, leave_the_bits_of_quantised_ones) {
  expect_bits_of_each_alone<bfloat16>(16, quantization::int8);
  expect_bits_of_each_alone<float>(7, quantization::int4);
}

/// Who shares chunks of four keys in pages of two.
std::map<std::int64_t, std::vector<std::vector<std::int64_t>>> sharers(const std::vector<std::vector<std::int64_t>>& pages,
                                                                       const std::vector<std::int64_t>& lengths,
                                                                       std::int64_t most) {
  std::vector<const std::int64_t*> tables;
  for (const auto& list : pages) tables.push_back(list.data());
  detail::problem p;
  p.batch.axes = 1;
  p.batch.sizes[0] = p.batch.count = std::int64_t(pages.size());
  p.page_keys = 2;
  p.page_tables = tables.data();
  p.has_lengths = true;
  p.lengths.data = lengths.data();
  p.lengths.strides[0] = 1;
  detail::shared_keys found(p, 4, 3, most);
  found.find(0, 3);
  std::map<std::int64_t, std::vector<std::vector<std::int64_t>>> all;
  for (std::int64_t i = 0; i < found.count(); ++i)
    all[found[i].chunk].emplace_back(found[i].sequences, found[i].sequences + found[i].count);
  return all;
}

TEST(shared_prefixes, are_found_chunk_by_chunk) {
  using groups = std::vector<std::vector<std::int64_t>>;
  const std::vector<std::vector<std::int64_t>> pages = {{1, 2, 3, 4}, {1, 2, 3, 5}, {1, 2, 3, 4, 6}, {9}, {1, 2}};
  const auto found = sharers(pages, {8, 8, 9, 2, 4}, 16);
  EXPECT_EQ(found.at(0), (groups{{0, 1, 2, 4}, {3}}));  // the fourth ends within the chunk
  EXPECT_EQ(found.at(1), (groups{{0, 2}, {1}}));
  EXPECT_EQ(found.at(2), (groups{{2}}));
  EXPECT_EQ(sharers(pages, {8, 8, 9, 2, 4}, 3).at(0), (groups{{0, 1, 2}, {4}, {3}}));
  EXPECT_EQ(sharers(pages, {8, 3, 9, 2, 4}, 16).at(0), (groups{{0, 2, 4}, {1}, {3}}));
}

}  // namespace
}  // namespace attend::test

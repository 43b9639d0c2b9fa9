// Random operations on caches beside a plain model of them: lists of tokens, per sequence. Every refusal is foreseen, every page is counted, and
// what queries see is what attention over the model's tokens gives, to the last bit.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "support/cache.hpp"

namespace attend::test {
namespace {

constexpr std::int64_t heads = 2, width = 3, value_width = 2;
using token_list = std::vector<std::int64_t>;

/// Rows of tokens, which their numbers decide: (heads, n, width).
tensor<float> rows_of(const token_list& list, std::int64_t columns, std::uint64_t salt) {
  tensor<float> rows({heads, static_cast<std::int64_t>(list.size()), columns});
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::size_t n = 0; n < list.size(); ++n) {
      random_source source(static_cast<std::uint64_t>(list[n] * heads + h) * 2 + salt);
      for (std::int64_t d = 0; d < columns; ++d) rows(h, n, d) = static_cast<float>(source.uniform() - 0.5);
    }
  }
  return rows;
}
tensor<float> keys_of_tokens(const token_list& list) { return rows_of(list, width, 0); }
tensor<float> values_of_tokens(const token_list& list) { return rows_of(list, value_width, 1); }

template <class T>
tensor_view<const T> as_batch(const tensor<T>& x) {
  return {x.data(), {1, x.shape()[0], x.shape()[1], x.shape()[2]}};
}

/// What one query sees of these tokens.
computed<float> over(const tensor<float>& q, const token_list& list, const options& how = {}) {
  const tensor<float> k = keys_of_tokens(list), v = values_of_tokens(list);
  options dense = how;
  dense.causal = true, dense.query_offset = lower_right;
  return compute<float>(q, as_batch(k), as_batch(v), dense);
}

std::int64_t operations() { return quick() ? 20'000 : 100'000; }

TEST(caches_under_stress, pages_are_those_of_the_model) {
  constexpr std::int64_t page_size = 3, pages = 40;
  paged_kv_cache cache({.pages = pages, .page_size = page_size, .kv_heads = heads, .dim = width, .value_dim = value_width});
  std::map<sequence_id, token_list> model;
  std::vector<sequence_id> freed;
  random_source source(11);
  const auto q = normal<float>({1, 4, 1, width}, 12);
  std::int64_t next_token = 0;
  std::map<std::string, std::int64_t> done;
  const auto any = [&] { return std::next(model.begin(), source.between(0, static_cast<std::int64_t>(model.size()) - 1)); };
  const auto pages_of = [](const token_list& list) {
    return (static_cast<std::int64_t>(list.size()) + page_size - 1) / page_size;
  };
  for (std::int64_t n = 0; n < operations(); ++n) {
    const double what = source.uniform();
    if (model.empty() || (what < 0.05 && model.size() < 12)) {
      model.emplace(cache.new_sequence(), token_list{});
      ++done["new"];
    } else if (what < 0.5) {
      const auto at = any();
      token_list more(static_cast<std::size_t>(source.between(0, 7)));
      for (std::int64_t& token : more) token = next_token++;
      // A page of its own is needed for every page begun, and for the last one where others have it.
      const std::int64_t length = static_cast<std::int64_t>(at->second.size());
      bool shared = false;
      for (const auto& [id, list] : model) {
        if (length % page_size != 0 && id != at->first &&
            static_cast<std::int64_t>(cache.pages(id).size()) > length / page_size)
          shared = shared || cache.pages(id)[std::size_t(length / page_size)] == cache.pages(at->first).back();
      }
      token_list longer = at->second;
      longer.insert(longer.end(), more.begin(), more.end());
      const std::int64_t needed = pages_of(longer) - pages_of(at->second) + (shared && !more.empty() ? 1 : 0);
      const bool fits = needed <= cache.free_pages();
      try {
        cache.append(at->first, keys_of_tokens(more), values_of_tokens(more));
        ASSERT_TRUE(fits) << n;
        at->second = longer;
        ++done["append"];
      } catch (const argument_error& error) {
        ASSERT_FALSE(fits) << n << ": " << error.what();
        ++done["refused"];
      }
    } else if (what < 0.6 && model.size() < 12) {
      const auto at = any();
      const token_list same = at->second;
      model.emplace(cache.fork(at->first), same);
      ++done["fork"];
    } else if (what < 0.68) {
      const auto at = any();
      cache.free(at->first);
      freed.push_back(at->first);
      model.erase(at);
      ++done["free"];
    } else if (what < 0.75) {
      const auto at = any();
      const std::int64_t kept = source.between(0, static_cast<std::int64_t>(at->second.size()));
      cache.truncate(at->first, kept);
      at->second.resize(static_cast<std::size_t>(kept));
      ++done["truncate"];
    } else if (what < 0.77 && !freed.empty()) {
      EXPECT_THROW(cache.append(freed[std::size_t(source.between(0, static_cast<std::int64_t>(freed.size()) - 1))],
                                keys_of_tokens({}), values_of_tokens({})),
                   argument_error);
      ++done["of a freed one"];
    } else {
      const auto at = any();
      const sequence_id one[] = {at->first};
      ASSERT_EQ(cache.length(at->first), static_cast<std::int64_t>(at->second.size()));
      ASSERT_TRUE(same_bits(decoded(q, cache, one), over(q, at->second))) << n;
      ++done["decode"];
    }
    // Every page is free or in a sequence.
    std::set<std::int64_t> used;
    for (const auto& [id, list] : model) {
      ASSERT_EQ(static_cast<std::int64_t>(cache.pages(id).size()), pages_of(list)) << n;
      used.insert(cache.pages(id).begin(), cache.pages(id).end());
    }
    ASSERT_EQ(cache.free_pages() + static_cast<std::int64_t>(used.size()), pages) << n;
  }
  for (const char* what : {"new", "append", "refused", "fork", "free", "truncate", "of a freed one", "decode"})
    EXPECT_GT(done[what], operations() / 200) << what;
  for (const auto& [id, list] : model) cache.free(id);
  EXPECT_EQ(cache.free_pages(), pages);
}

TEST(caches_under_stress, contiguous_ones_and_rings_are_those_of_the_model) {
  constexpr std::int64_t capacity = 17, window = 5;
  for (const bool ring : {false, true}) {
    kv_cache cache({.batch = 1,
                    .kv_heads = heads,
                    .capacity = capacity,
                    .dim = width,
                    .value_dim = value_width,
                    .window = ring ? std::optional<std::int64_t>(window) : std::nullopt});
    token_list model;
    std::int64_t seen = 0, oldest = 0, next_token = 0;
    random_source source(13);
    const auto q = normal<float>({1, 4, 1, width}, 14);
    std::map<std::string, std::int64_t> done;
    for (std::int64_t n = 0; n < operations(); ++n) {
      const double what = source.uniform();
      const std::int64_t length = static_cast<std::int64_t>(model.size());
      if (what < 0.5) {
        token_list more(static_cast<std::size_t>(source.between(0, 6)));
        for (std::int64_t& token : more) token = next_token++;
        const std::int64_t longer = length + static_cast<std::int64_t>(more.size());
        const bool fits = longer - capacity <= (ring ? std::max<std::int64_t>(0, seen - window + 1) : 0);
        const tensor<float> k = keys_of_tokens(more), v = values_of_tokens(more);
        try {
          cache.append(as_batch(k), as_batch(v));
          ASSERT_TRUE(fits) << n;
          model.insert(model.end(), more.begin(), more.end());
          oldest = std::max(oldest, longer - capacity);
          ++done["append"];
        } catch (const argument_error& error) {
          ASSERT_FALSE(fits) << n << ": " << error.what();
          ++done["refused"];
        }
      } else if (what < 0.6) {
        const std::int64_t kept = source.between(std::max<std::int64_t>(0, length - 12), length);
        const bool held = !ring || kept == 0 || oldest <= std::max<std::int64_t>(0, kept - window + 1);
        try {
          cache.truncate(kept);
          ASSERT_TRUE(held) << n;
          model.resize(static_cast<std::size_t>(kept));
          seen = std::min(seen, kept);
          if (kept == 0) oldest = 0;
          ++done["truncate"];
        } catch (const argument_error& error) {
          ASSERT_FALSE(held) << n << ": " << error.what();
        }
      } else if (what < 0.6 + (ring ? 0.002 : 0.02)) {
        cache.reset();
        model.clear();
        seen = oldest = 0;
        ++done["reset"];
      } else if (length > 0) {
        ASSERT_EQ(cache.lengths()[0], length);
        if (ring && oldest > std::max<std::int64_t>(
                                 0, length - window)) {  // cut short: the newest query's window begins before what is held
          ASSERT_THROW(decoded(q, cache), argument_error) << n;
          ++done["cut"];
          continue;
        }
        options how;
        if (ring) how.window = {window - 1, {}};
        ASSERT_TRUE(same_bits(decoded(q, cache), over(q, model, how))) << n;
        seen = length;
        ++done["decode"];
      }
    }
    for (const char* what : {"append", "refused", "truncate", "reset", "decode"})
      EXPECT_GT(done[what], operations() / 2000) << what << ring;
    EXPECT_EQ(done["cut"] > 0, ring);
  }
}

}  // namespace
}  // namespace attend::test

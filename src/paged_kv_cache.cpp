#include <algorithm>
#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

#include "attend/kv_cache.hpp"
#include "cache_rows.hpp"
#include "checks.hpp"
#include "route.hpp"
#include "run.hpp"

namespace attend {

using std::to_string;
constexpr std::int64_t most_pages = std::int64_t{1} << 40;

namespace detail {

struct paged_sequence {
  std::vector<std::int64_t> pages;
  std::int64_t length = 0;
};

struct paged_kv_cache_state {
  paged_kv_cache_sizes sizes;
  cache_rows k, v;
  std::unordered_map<std::int64_t, paged_sequence> sequences;
  std::int64_t next_sequence = 0;
  std::vector<std::int64_t> free;     // pages; the last one is next
  std::vector<std::int64_t> holders;  // sequences that have a page

  std::int64_t value_dim() const noexcept { return sizes.value_dim.value_or(sizes.dim); }
  std::int64_t pages_for(std::int64_t tokens) const noexcept { return (tokens + sizes.page_size - 1) / sizes.page_size; }
  std::int64_t& holders_of(std::int64_t page) noexcept { return holders[static_cast<std::size_t>(page)]; }

  paged_sequence& at(sequence_id id) {
    const auto found = sequences.find(static_cast<std::int64_t>(id));
    if (found == sequences.end())
      refuse("sequence", "one that this cache has",
             to_string(static_cast<std::int64_t>(id)) + ", which was freed or never was one");
    return found->second;
  }

  void let_go(std::int64_t page) noexcept {
    if (--holders_of(page) == 0) free.push_back(page);  // it has room for every page
  }
  std::int64_t take() noexcept {
    const std::int64_t page = free.back();
    free.pop_back();
    holders_of(page) = 1;
    return page;
  }
};

}  // namespace detail

paged_kv_cache::paged_kv_cache(const paged_kv_cache_sizes& sizes) : state_(std::make_unique<detail::paged_kv_cache_state>()) {
  if (sizes.pages < 0) detail::refuse("pages", "a number of at least 0", to_string(sizes.pages));
  if (sizes.pages > most_pages) detail::refuse("pages", "a number of at most 2^40", to_string(sizes.pages));
  if (sizes.page_size < 1) detail::refuse("page_size", "a number of at least 1", to_string(sizes.page_size));
  detail::check_cache_sizes(sizes);
  detail::paged_kv_cache_state& s = *state_;
  s.sizes = sizes;
  s.k = detail::cache_rows(sizes.type, sizes.quantized_keys, {sizes.pages, sizes.kv_heads, sizes.page_size, sizes.dim});
  s.v = detail::cache_rows(sizes.type, sizes.quantized_values, {sizes.pages, sizes.kv_heads, sizes.page_size, s.value_dim()});
  s.holders.assign(static_cast<std::size_t>(sizes.pages), 0);
  s.free.reserve(static_cast<std::size_t>(sizes.pages));
  for (std::int64_t page = sizes.pages; page-- > 0;) s.free.push_back(page);  // the first page is taken first
}

paged_kv_cache::~paged_kv_cache() = default;
paged_kv_cache::paged_kv_cache(paged_kv_cache&&) noexcept = default;
paged_kv_cache& paged_kv_cache::operator=(paged_kv_cache&&) noexcept = default;

sequence_id paged_kv_cache::new_sequence() {
  state_->sequences.try_emplace(state_->next_sequence);
  return sequence_id{state_->next_sequence++};
}

sequence_id paged_kv_cache::fork(sequence_id sequence) {
  detail::paged_kv_cache_state& s = *state_;
  detail::paged_sequence same = s.at(sequence);
  const auto [fork, is_new] = s.sequences.try_emplace(s.next_sequence, std::move(same));
  for (const std::int64_t page : fork->second.pages) ++s.holders_of(page);
  return sequence_id{s.next_sequence++};
}

void paged_kv_cache::free(sequence_id sequence) {
  detail::paged_kv_cache_state& s = *state_;
  for (const std::int64_t page : s.at(sequence).pages) s.let_go(page);
  s.sequences.erase(static_cast<std::int64_t>(sequence));
}

void paged_kv_cache::append(sequence_id sequence, const array_view& k, const array_view& v) {
  detail::paged_kv_cache_state& s = *state_;
  detail::paged_sequence& to = s.at(sequence);
  const std::int64_t tokens = detail::check_tokens(k, v, s.sizes.type, -1, s.sizes.kv_heads, s.sizes.dim, s.value_dim());
  if (tokens == 0) return;
  if (tokens > std::numeric_limits<std::int64_t>::max() - to.length - s.sizes.page_size)
    detail::refuse("k", "fewer than 2^63 tokens", to_string(tokens) + " after " + to_string(to.length));
  const std::int64_t size = s.sizes.page_size, filled = to.length % size;
  const bool copies = filled > 0 && s.holders_of(to.pages.back()) > 1;  // others read the page whose end is written
  const std::int64_t needed = s.pages_for(to.length + tokens) - s.pages_for(to.length) + (copies ? 1 : 0);
  if (needed > static_cast<std::int64_t>(s.free.size()))
    detail::refuse("k", "tokens for which " + to_string(s.free.size()) + " free pages suffice",
                   to_string(tokens) + ", which take " + to_string(needed));
  const detail::turned_rows keys(k, s.sizes.rotary, {{&to.length, 1}, {}}, layout::bhld);
  const std::size_t pages_then = to.pages.size() + static_cast<std::size_t>(needed);  // from the next line on, nothing fails
  if (pages_then > to.pages.capacity()) to.pages.reserve(std::max(pages_then, 2 * to.pages.capacity()));
  if (copies) {
    const std::int64_t old = to.pages.back(), own = s.take();
    s.k.copy(own, filled, old);
    s.v.copy(own, filled, old);
    s.let_go(old);
    to.pages.back() = own;
  }
  for (std::int64_t done = 0; done < tokens;) {
    const std::int64_t row = (to.length + done) % size, count = std::min(tokens - done, size - row);
    if (row == 0) to.pages.push_back(s.take());
    s.k.write(to.pages.back(), row, count, keys.view(), 0, done);
    s.v.write(to.pages.back(), row, count, v, 0, done);
    done += count;
  }
  to.length += tokens;
}

void paged_kv_cache::truncate(sequence_id sequence, std::int64_t length) {
  detail::paged_kv_cache_state& s = *state_;
  detail::paged_sequence& from = s.at(sequence);
  if (length < 0 || length > from.length)
    detail::refuse("length", "a number from 0 to " + to_string(from.length), to_string(length));
  for (const std::size_t kept = static_cast<std::size_t>(s.pages_for(length)); from.pages.size() > kept; from.pages.pop_back())
    s.let_go(from.pages.back());
  from.length = length;
}

std::int64_t paged_kv_cache::length(sequence_id sequence) const { return state_->at(sequence).length; }

std::int64_t paged_kv_cache::free_pages() const noexcept { return static_cast<std::int64_t>(state_->free.size()); }

std::span<const std::int64_t> paged_kv_cache::pages(sequence_id sequence) const { return state_->at(sequence).pages; }

const paged_kv_cache_sizes& paged_kv_cache::sizes() const noexcept { return state_->sizes; }

namespace detail {
namespace {

struct seen_pages {
  held_keys held;
  std::vector<std::int64_t> counts;
  std::vector<const std::int64_t*> tables;
};

void see(paged_kv_cache_state& s, std::span<const sequence_id> sequences, seen_pages& to) {
  for (const sequence_id id : sequences) {
    const paged_sequence& one = s.at(id);
    to.counts.push_back(one.length);
    to.tables.push_back(one.pages.data());
    // Who shares a page shares those before it.
    to.held.pages_shared = to.held.pages_shared || (!one.pages.empty() && s.holders_of(one.pages.front()) > 1);
  }
  to.held.type = s.sizes.type;
  to.held.k = s.k.held();
  to.held.v = s.v.held();
  to.held.counts = to.counts.data();
  to.held.sequences = static_cast<std::int64_t>(sequences.size());
  to.held.page_keys = s.sizes.page_size;
  to.held.page_tables = to.tables.data();
}

}  // namespace
}  // namespace detail

void decode(const array_view& q, const paged_kv_cache& cache, std::span<const sequence_id> sequences, const outputs& results,
            const options& how) {
  detail::seen_pages seen;
  detail::see(*cache.state_, sequences, seen);
  detail::problem p = detail::validate_decode(q, seen.held, results, how);
  const detail::turned_queries turned(p, q, cache.state_->sizes.rotary, seen.counts, how);
  const detail::route r(p);
  detail::run(p, r, how);
}

extents decoded_shape(const array_view& q, const paged_kv_cache& cache, std::span<const sequence_id> sequences,
                      const options& how) {
  detail::seen_pages seen;
  detail::see(*cache.state_, sequences, seen);
  return detail::out_shape(detail::validate_decode(q, seen.held, {}, how), how.layout, false);
}

}  // namespace attend

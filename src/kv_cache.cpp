#include "attend/kv_cache.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "cache_rows.hpp"
#include "checks.hpp"
#include "kernels/kernel_table.hpp"
#include "route.hpp"
#include "run.hpp"

namespace attend {

using std::to_string;
constexpr std::int64_t most_sequences = std::int64_t{1} << 40;

namespace detail {

struct kv_cache_state {
  kv_cache_sizes sizes;
  cache_rows k, v;
  std::vector<std::int64_t> lengths;
  // Of a ring: the oldest token that a sequence still holds, and its length when it was last decoded, truncated or empty.
  std::vector<std::int64_t> oldest, seen;

  std::int64_t value_dim() const noexcept { return sizes.value_dim.value_or(sizes.dim); }

  /// What a query at `position` sees first.
  std::int64_t first_seen(std::int64_t position) const noexcept {
    return sizes.window ? std::max<std::int64_t>(0, position - *sizes.window + 1) : 0;
  }
};

namespace {

/// One integer per sequence, from 0 to `most(b)`.
template <class Most>
std::vector<std::int64_t> per_sequence(const batch_integers& given, std::int64_t batch, const Most& most) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(batch), given.given() && !given.is_array() ? given.value() : 0);
  if (given.is_array()) {
    const tensor_view<const std::int64_t>& view = given.values();
    if (view.shape != extents{batch})
      refuse("lengths", "one integer, or shape " + extents{batch}.to_string(), "shape " + view.shape.to_string());
    check_memory("lengths", array_view(view));
    for (std::int64_t b = 0; b < batch; ++b) values[static_cast<std::size_t>(b)] = view(b);
  }
  for (std::int64_t b = 0; b < batch; ++b) {
    std::int64_t& value = values[static_cast<std::size_t>(b)];
    if (!given.given()) value = most(b);
    if (value < 0 || value > most(b))
      refuse("lengths", "values from 0 to " + to_string(most(b)), to_string(value) + " for sequence " + to_string(b));
  }
  return values;
}

}  // namespace
}  // namespace detail

kv_cache::kv_cache(const kv_cache_sizes& sizes) : state_(std::make_unique<detail::kv_cache_state>()) {
  const auto at_least = [](const char* name, std::int64_t least, std::int64_t value) {
    if (value < least) detail::refuse(name, "a number of at least " + to_string(least), to_string(value));
  };
  at_least("batch", 0, sizes.batch);
  if (sizes.batch > most_sequences) detail::refuse("batch", "a number of at most 2^40", to_string(sizes.batch));
  at_least("capacity", 0, sizes.capacity);
  detail::check_cache_sizes(sizes);
  if (sizes.window) {
    at_least("window", 1, *sizes.window);
    if (sizes.capacity < *sizes.window)
      detail::refuse("capacity", "at least the window, " + to_string(*sizes.window), to_string(sizes.capacity));
  }
  state_->sizes = sizes;
  state_->k = detail::cache_rows(sizes.type, sizes.quantized_keys, {sizes.batch, sizes.kv_heads, sizes.capacity, sizes.dim});
  state_->v = detail::cache_rows(sizes.type, sizes.quantized_values,
                                 {sizes.batch, sizes.kv_heads, sizes.capacity, state_->value_dim()});
  for (auto* list : {&state_->lengths, &state_->oldest, &state_->seen}) list->assign(static_cast<std::size_t>(sizes.batch), 0);
}

kv_cache::~kv_cache() = default;
kv_cache::kv_cache(kv_cache&&) noexcept = default;
kv_cache& kv_cache::operator=(kv_cache&&) noexcept = default;

void kv_cache::append(const array_view& k, const array_view& v, const batch_integers& lengths) {
  detail::kv_cache_state& s = *state_;
  const kv_cache_sizes& sizes = s.sizes;
  const std::int64_t tokens = detail::check_tokens(k, v, sizes.type, sizes.batch, sizes.kv_heads, sizes.dim, s.value_dim());
  const auto taken = detail::per_sequence(lengths, sizes.batch, [&](std::int64_t) { return tokens; });
  for (std::size_t b = 0; b < taken.size(); ++b) {
    const std::int64_t length = s.lengths[b] + taken[b];
    const std::string received = to_string(taken[b]) + " after " + to_string(s.lengths[b]) + " in sequence " + to_string(b);
    if (!sizes.window && length > sizes.capacity)
      detail::refuse("k", "tokens within the capacity, " + to_string(sizes.capacity), received);
    if (sizes.window && length - sizes.capacity > s.first_seen(s.seen[b]))
      detail::refuse("k",
                     "at most " + to_string(sizes.capacity - *sizes.window + 1) +
                         " tokens before their queries are decoded (capacity - window + 1), as older queries still see what "
                         "they would replace",
                     received + ", decoded up to " + to_string(s.seen[b]));
  }
  const detail::turned_rows keys(k, sizes.rotary, {s.lengths, taken}, layout::bhld);
  for (std::size_t b = 0; b < taken.size(); ++b) {
    const std::int64_t sequence = static_cast<std::int64_t>(b), length = s.lengths[b];
    for (std::int64_t done = 0; done < taken[b];) {
      const std::int64_t row = (length + done) % sizes.capacity, count = std::min(taken[b] - done, sizes.capacity - row);
      s.k.write(sequence, row, count, keys.view(), sequence, done);
      s.v.write(sequence, row, count, v, sequence, done);
      done += count;
    }
    s.lengths[b] += taken[b];
    s.oldest[b] = std::max(s.oldest[b], s.lengths[b] - sizes.capacity);
  }
}

std::span<const std::int64_t> kv_cache::lengths() const noexcept { return state_->lengths; }

void kv_cache::truncate(const batch_integers& lengths) {
  detail::kv_cache_state& s = *state_;
  if (!lengths.given()) detail::refuse("lengths", "one integer, or one per sequence", "none");
  const auto kept =
      detail::per_sequence(lengths, s.sizes.batch, [&](std::int64_t b) { return s.lengths[static_cast<std::size_t>(b)]; });
  for (std::size_t b = 0; b < kept.size(); ++b) {
    if (kept[b] > 0 && s.oldest[b] > s.first_seen(kept[b]))
      detail::refuse("lengths", "lengths whose next query's window the ring still holds, from token " + to_string(s.oldest[b]),
                     to_string(kept[b]) + " for sequence " + to_string(b));
  }
  for (std::size_t b = 0; b < kept.size(); ++b) {
    s.lengths[b] = kept[b];
    s.seen[b] = std::min(s.seen[b], kept[b]);
    if (kept[b] == 0) s.oldest[b] = 0;
  }
}

void kv_cache::reset() noexcept {
  for (auto* list : {&state_->lengths, &state_->oldest, &state_->seen}) std::fill(list->begin(), list->end(), 0);
}

const kv_cache_sizes& kv_cache::sizes() const noexcept { return state_->sizes; }

namespace detail {
namespace {

/// What a call sees of a cache. Keys of a ring are counted from a multiple of what kernels divide them by, so that a call's work does not grow
/// with the tokens that went through it, and bits are those of all of these tokens in one array.
struct seen_cache {
  held_keys held;
  std::vector<std::int64_t> counts, shifts;
};

void see(const kv_cache_state& s, seen_cache& to) {
  to.counts = s.lengths;
  to.held.type = s.sizes.type;
  to.held.k = s.k.held();
  to.held.v = s.v.held();
  to.held.window = s.sizes.window;
  if (s.sizes.window) {
    to.held.page_keys = s.sizes.capacity;
    for (std::size_t b = 0; b < to.counts.size(); ++b) {
      const std::int64_t before = s.oldest[b] / common_chunk_keys * common_chunk_keys;
      to.counts[b] -= before;
      to.shifts.push_back(before % s.sizes.capacity);
    }
    to.held.ring_shifts = to.shifts.data();
  }
  to.held.counts = to.counts.data();
  to.held.sequences = s.sizes.batch;
}

/// A ring's queries must not look back to what it has forgotten.
void check_ring(const kv_cache_state& s, const array_view& q, layout order) {
  if (!s.sizes.window || q.shape.rank() != 4) return;
  const std::int64_t queries = q.shape[order == layout::blhd ? 1 : 2];
  for (std::size_t b = 0; b < s.lengths.size() && queries > 0; ++b) {
    if (s.first_seen(s.lengths[b] - queries) < s.oldest[b])
      refuse(
          "q",
          "queries whose windows the ring still holds, from token " + to_string(s.oldest[b]) + " of sequence " + to_string(b),
          to_string(queries) + " at length " + to_string(s.lengths[b]));
  }
}

}  // namespace
}  // namespace detail

void decode(const array_view& q, kv_cache& cache, const outputs& results, const options& how) {
  detail::kv_cache_state& s = *cache.state_;
  detail::seen_cache seen;
  detail::see(s, seen);
  detail::problem p = detail::validate_decode(q, seen.held, results, how);
  detail::check_ring(s, q, how.layout);
  const detail::turned_queries turned(p, q, s.sizes.rotary, s.lengths, how);
  const detail::route r(p);
  detail::run(p, r, how);
  if (p.queries > 0) s.seen = s.lengths;
}

extents decoded_shape(const array_view& q, const kv_cache& cache, const options& how) {
  detail::seen_cache seen;
  detail::see(*cache.state_, seen);
  return detail::out_shape(detail::validate_decode(q, seen.held, {}, how), how.layout, false);
}

}  // namespace attend

#include "shared_keys.hpp"

#include <algorithm>

namespace attend::detail {

bool can_share_keys(const problem& p) noexcept { return p.pages_shared && !p.mask && p.normalizer != normalizer::mean; }

shared_keys::shared_keys(const problem& p, std::int64_t chunk_keys, std::int64_t chunks, std::int64_t most_sequences)
    : p_(p),
      chunk_keys_(chunk_keys),
      most_(most_sequences),
      memory_(chunks * p.batch.count * static_cast<std::int64_t>(sizeof(key_sharers) + sizeof(std::int64_t))),
      sharers_(reinterpret_cast<key_sharers*>(memory_.data())),
      orders_(reinterpret_cast<std::int64_t*>(sharers_ + chunks * p.batch.count)) {}

void shared_keys::find(std::int64_t first, std::int64_t chunks) noexcept {
  count_ = 0;
  for (std::int64_t n = 0; n < chunks; ++n) find_in(first + n, orders_ + n * p_.batch.count);
}

/// Sequences in the order of their pages of a chunk stand beside those with which they share it. One that ends within the chunk stands alone.
void shared_keys::find_in(std::int64_t chunk, std::int64_t* order) noexcept {
  const std::int64_t begin = chunk * chunk_keys_, end = begin + chunk_keys_, first = begin / p_.page_keys,
                     last = (end - 1) / p_.page_keys;
  const auto whole = [&](std::int64_t b) { return key_length(p_, b) >= end; };
  std::int64_t sequences = 0;
  for (std::int64_t b = 0; b < p_.batch.count; ++b) {
    if (key_length(p_, b) > begin) order[sequences++] = b;
  }
  const auto pages = [&](std::int64_t b) { return p_.page_tables[b] + first; };
  const std::int64_t length = last - first + 1;
  std::sort(order, order + sequences, [&](std::int64_t a, std::int64_t b) {
    if (whole(a) != whole(b)) return whole(a);
    if (!whole(a)) return a < b;
    const auto [x, y] = std::mismatch(pages(a), pages(a) + length, pages(b));
    return x == pages(a) + length ? a < b : *x < *y;
  });
  for (std::int64_t at = 0; at < sequences;) {
    std::int64_t next = at + 1;
    while (next < sequences && next - at < most_ && whole(order[next]) &&
           std::equal(pages(order[at]), pages(order[at]) + length, pages(order[next])))
      ++next;
    sharers_[count_++] = {chunk, next - at, order + at};
    at = next;
  }
}

}  // namespace attend::detail

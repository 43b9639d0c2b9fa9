// validate() for queries over a cache: keys of every sequence lie in it, and the queries are the newest tokens.
#include <algorithm>
#include <string>
#include <utility>

#include "checks.hpp"

namespace attend::detail {
namespace {

using std::to_string;

/// Refuses what a cache decides, or what has no meaning over one.
void check_options(const held_keys& held, const outputs& results, const options& how) {
  const auto refuse_given = [](const char* name, bool given, const char* why) {
    if (given) refuse(name, why, "one");
  };
  constexpr const char* decided = "none: queries over a cache are its newest tokens";
  refuse_given("query_offset", how.query_offset.given(), decided);
  refuse_given("key_lengths", how.key_lengths.given(), "none: the cache knows its lengths");
  refuse_given("query_segments", static_cast<bool>(how.query_segments), "none over a cache");
  refuse_given("key_segments", static_cast<bool>(how.key_segments), "none over a cache");
  refuse_given("grid", static_cast<bool>(how.grid), "none over a cache");
  refuse_given("dropout", how.dropout.p > 0, "none over a cache");
  if (!held.window) return;
  constexpr const char* forgotten = "none over a ring, which forgets keys";
  refuse_given("prefix", how.prefix.given(), forgotten);
  refuse_given("mask", static_cast<bool>(how.mask), forgotten);
  refuse_given("bias", static_cast<bool>(how.bias), forgotten);
  for (const score_step& step : how.score) refuse_given("score", static_cast<bool>(step.numbers), forgotten);
  refuse_given("weights", static_cast<bool>(results.weights), forgotten);
  refuse_given("scores", static_cast<bool>(results.scores), forgotten);
  if (how.window.left && *how.window.left >= *held.window)
    refuse("window", "a left side below the ring's window, " + to_string(*held.window), to_string(*how.window.left));
}

axes axes_of(const held_rows& held) {
  axes a = heads_first(held.rows, layout::bhld);
  a.shape[3] = held.width;
  return a;
}

/// A mask of the newest keys has as many columns as there are queries, and fewer than there are keys.
void check_cache_mask(problem& p, const options& how) {
  const int rank = how.mask.shape.rank();
  p.mask_of_newest = how.mask && rank > 0 && how.mask.shape[rank - 1] == p.queries && p.queries > 1 && p.queries < p.keys;
  if (!p.mask_of_newest) return check_mask(p, how);
  for (std::int64_t b = 0; b < p.batch.count; ++b) {
    if (key_length(p, b) < p.queries)
      refuse("mask", "at least as many keys as queries under a mask of the newest keys, " + to_string(p.queries),
             to_string(key_length(p, b)) + " in sequence " + to_string(b));
  }
  problem newest = p;
  newest.keys = p.queries;
  check_mask(newest, how);
  p.mask = newest.mask;
}

}  // namespace

problem validate_decode(const array_view& q, const held_keys& held, const outputs& results, const options& how) {
  check_input("q", q, q.type, inputs::data);
  if (q.type != held.type) refuse_type("q", std::string(name_of(held.type)) + ", the dtype of the cache", q.type);
  if (q.shape.rank() != 4 || q.shape[0] != held.sequences)
    refuse("q",
           "shape (" + to_string(held.sequences) + ", heads, queries, width) for " + to_string(held.sequences) + " sequences",
           "shape " + q.shape.to_string());
  check_options(held, results, how);
  const axes qa = heads_first(q, how.layout), ka = axes_of(held.k), va = axes_of(held.v);
  if (qa.width() != ka.width()) refuse("q", "the width of the cache's keys, " + to_string(ka.width()), to_string(qa.width()));
  if (qa.heads() > 0 && (ka.heads() == 0 || qa.heads() % ka.heads() != 0))
    refuse("q", "a multiple of the cache's " + to_string(ka.heads()) + " heads", to_string(qa.heads()));
  problem p;
  p.type = q.type;
  check_sizes(p, qa, ka, va);
  p.keys = 0;
  for (std::int64_t b = 0; b < held.sequences; ++b) p.keys = std::max(p.keys, held.counts[b]);
  p.batch.axes = 1;
  p.batch.sizes[0] = p.batch.count = held.sequences;
  p.q = place(q, qa, p.batch);
  p.k = place(held.k.rows, ka, p.batch);
  p.v = place(held.v.rows, va, p.batch);
  p.k.codes = held.k.codes;
  p.v.codes = held.v.codes;
  p.page_keys = held.page_keys;
  p.page_tables = held.page_tables;
  p.ring_shifts = held.ring_shifts;
  p.pages_shared = held.pages_shared;
  if (p.page_tables) {
    p.k.page = ka.strides[0];
    p.v.page = va.strides[0];
    p.k.batch[0] = p.v.batch[0] = 0;
  }
  lse_shape(p, false).count();  // the number of rows fits 64 bits

  options own = how;
  own.causal = true;
  own.query_offset = lower_right;
  own.key_lengths = tensor_view<const std::int64_t>(held.counts, {held.sequences});
  if (held.window && !own.window.left) own.window.left = *held.window - 1;
  check_functions(p, own);
  check_region(p, own);
  check_positions(p, own, false);
  check_cache_mask(p, own);
  check_scores(p, own);
  p.reproducible = own.reproducible;
  if (own.threads < 0) refuse("threads", "a positive number, or 0 for the default", to_string(own.threads));
  check_results(p, q, held.k.rows, held.v.rows, results, own, false, nullptr);
  return p;
}

}  // namespace attend::detail

// The part of validate() that says which keys a query may see by its position, its segment and its sequence's length.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "checks.hpp"

namespace attend::detail {
namespace {

using std::to_string;

batch_values per_batch(const char* name, const batch_integers& given, const problem& p, std::int64_t low, std::int64_t high) {
  batch_values values;
  if (!given.is_array()) {
    values.value = given.given() ? given.value() : 0;
    if (values.value < low || values.value > high)
      refuse(name, "values from " + to_string(low) + " to " + to_string(high), to_string(values.value));
    return values;
  }
  const auto& view = given.values();
  check_memory(name, view);
  const extents shape = batch_extents(p.batch);
  if (view.shape.rank() != 0 && view.shape != shape)
    refuse(name,
           (p.batch.axes > 0 ? "one integer, or one per batch: shape " + shape.to_string()
                             : std::string("one integer, because arrays of rank 2 and 3 have no batch axis")),
           "shape " + view.shape.to_string());
  values.data = view.data;
  for (int axis = 0; axis < view.shape.rank(); ++axis) values.strides[axis] = view.strides[axis];
  for (std::int64_t b = 0; b < p.batch.count; ++b) {
    const std::int64_t value = batch_value(p.batch, b, values);
    if (value < low || value > high)
      refuse(name, "values from " + to_string(low) + " to " + to_string(high), to_string(value) + " for batch " + to_string(b));
  }
  return values;
}

/// Ids (L) or (batch axes..., L) as (batch..., row).
operand place_segments(const char* name, const array_view& ids, const problem& p, std::int64_t rows) {
  if (!ids) refuse(name, "ids beside those of the other side", "none");
  if (ids.type != dtype::i64) refuse_type(name, "int64", ids.type);
  extents alone{rows}, each = p.query_starts ? extents{} : batch_extents(p.batch);
  each.push_back(rows);
  const bool per_batch = !p.query_starts && ids.shape == each;
  if (!per_batch && ids.shape != alone) {
    std::string expected = "shape " + alone.to_string();
    if (!p.query_starts && p.batch.axes > 0) expected += " or " + each.to_string();
    refuse(name, expected, ids.shape.to_string());
  }
  check_memory(name, ids);
  operand o;
  o.data = const_cast<void*>(ids.data);
  o.type = ids.type;
  const int last = ids.shape.rank() - 1;
  o.row = ids.strides[last];
  for (int axis = 0; axis < last; ++axis) o.batch[axis] = ids.shape[axis] == 1 ? 0 : ids.strides[axis];
  return o;
}

}  // namespace

void check_positions(problem& p, const options& how, bool packed) {
  for (const auto& [side, word] : {std::pair{how.window.left, "left"}, std::pair{how.window.right, "right"}}) {
    if (side && *side < 0)
      refuse("window", std::string("a ") + word + " side of at least 0, or none for unbounded", to_string(*side));
  }
  p.causal = how.causal;
  if (how.window.left && *how.window.left < unbounded_side) p.left = how.window.left;
  if (how.window.right && *how.window.right < unbounded_side) p.right = how.window.right;

  p.lengths = per_batch("key_lengths", how.key_lengths, p, 0, p.keys);
  if (how.key_lengths.given()) {
    for (std::int64_t b = 0; packed && b < p.batch.count; ++b) {
      if (batch_value(p.batch, b, p.lengths) > keys_of(p, b))
        refuse("key_lengths", "values from 0 to the keys of their sequence, " + to_string(keys_of(p, b)),
               to_string(batch_value(p.batch, b, p.lengths)) + " for sequence " + to_string(b));
    }
    p.has_lengths = true;
  }
  p.longest = 0;
  for (std::int64_t b = 0; b < (packed || p.lengths.data ? p.batch.count : 1); ++b)
    p.longest = std::max(p.longest, key_length(p, b));
  p.has_prefix = how.prefix.given();
  if (p.has_prefix && !how.causal && !how.window) refuse("prefix", "causal or window beside it", "neither");
  p.prefix = per_batch("prefix", how.prefix, p, 0, std::numeric_limits<std::int64_t>::max());

  bool compares = how.causal || how.window || (how.relative && !how.grid) || how.alibi;
  for (const score_step& step : how.score) compares |= step.what == score_step::kind::alibi;
  if (how.query_offset.word()) {
    p.lower_right = *how.query_offset.word() == lower_right;
  } else if (how.query_offset.given()) {
    p.offset = per_batch("query_offset", how.query_offset, p, -farthest_position, farthest_position);
  } else if (packed) {
    p.lower_right = true;
  } else if (compares && p.queries != p.keys) {
    refuse("query_offset",
           "an integer, one per batch, \"upper_left\" (query 0 at key 0) or \"lower_right\" (last query at the last key) where "
           "positions are compared and L != S",
           "none for " + to_string(p.queries) + " queries and " + to_string(p.keys) + " keys");
  }
}

void check_segments(problem& p, const options& how) {
  if (!how.query_segments && !how.key_segments) return;
  const std::int64_t queries = p.query_starts ? first_row(p.query_starts, p.batch.count) : p.queries;
  const std::int64_t keys = p.key_starts ? first_row(p.key_starts, p.batch.count) : p.keys;
  p.query_segments = place_segments("query_segments", how.query_segments, p, queries);
  p.key_segments = place_segments("key_segments", how.key_segments, p, keys);
}

key_intervals allowed_intervals(const problem& p, std::int64_t position, std::int64_t length, std::int64_t prefix) noexcept {
  key_intervals allowed{0, length, std::min(prefix, length)};
  if (p.causal) allowed.end = std::min(allowed.end, position + 1);
  if (p.right) allowed.end = std::min(allowed.end, position + *p.right + 1);
  if (p.left) allowed.begin = std::max<std::int64_t>(0, position - *p.left);
  if (allowed.begin >= allowed.end) allowed.begin = allowed.end = 0;
  return allowed;
}

}  // namespace attend::detail

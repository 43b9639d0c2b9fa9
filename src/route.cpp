#include "route.hpp"

#include <algorithm>
#include <cstdint>

#include "shared_keys.hpp"

namespace attend::detail {
namespace {

// A block with more than this share of a call's work has its chunks of keys as work items of their own: enough items for the widest
// machines.
constexpr std::int64_t enough_items = 64;

// Columns that products of pairs read at once.
constexpr std::int64_t pair_row_columns = 32;

// Partial results of one wave: as many chunks as fit, so that a wave rarely ends, and memory stays bounded whatever the keys.
constexpr std::int64_t wave_bytes = 4 << 20;

kernel_choice choose(const problem& p, operation op) { return choose_kernel({op, p.type, p.type, accumulator_of(p.type)}); }

/// The kernel of many rows. Products of pairs serve dot products of some columns whose scale leaves nothing over for the scores.
operation many_rows_operation(const problem& p, const factors& scales) {
  const bool plain = p.k.codes == quantization::none && p.v.codes == quantization::none;
  const bool fits = plain && p.compatibility == compatibility_kind::dot && p.width > 0 && scales.score == 1;
  return fits && choose(p, operation::forward_pairs).entry ? operation::forward_pairs : operation::forward;
}

// Sums across the lanes of a vector of columns cost most where there are few columns: from so many rows on, lanes are better used as queries.
constexpr std::int64_t narrow_width = 24, many_narrow_rows = 8;

/// Which kernel runs depends on a sequence's own queries and options alone, so that its bits do not depend on its company.
operation operation_for(const problem& p, std::int64_t queries, operation many_rows) noexcept {
  const std::int64_t rows = queries * p.group;
  const bool narrow = std::max(p.width, p.value_width) <= narrow_width && rows >= many_narrow_rows;
  return rows <= few_queries_rows && !narrow && !p.reproducible ? operation::few_queries : many_rows;
}

/// What a kernel's scratch has to hold. Rows of halves and of codes become numbers of the accumulator tile by tile, but where few_queries reads
/// them once: values, and the keys of dot products.
scratch_shape shape_for(const problem& p, operation op, const factors& scales) noexcept {
  const bool forward = op == operation::forward, pairs = op == operation::forward_pairs;
  const auto converts = [&p](const operand& x) { return x.type != accumulator_of(p.type); };
  const bool dot = p.compatibility == compatibility_kind::dot, reads_keys = p.compatibility != compatibility_kind::none;
  scratch_shape shape{};
  shape.width = p.width;
  shape.value_width = p.value_width;
  shape.pack_k = p.compatibility == compatibility_kind::cosine || scales.key != 1 ||
                 (reads_keys && (!readable_in_place(p.k, p.width) || (converts(p.k) && (forward || !dot)))) ||
                 (pairs && p.width % pair_row_columns != 0);
  shape.pack_v = !pairs && (!readable_in_place(p.v, p.value_width) || (converts(p.v) && forward));
  shape.has_relative = static_cast<bool>(p.relative);
  shape.additive = p.compatibility == compatibility_kind::additive;
  shape.dropout = p.dropout_p > 0;
  for (int i = 0; i < p.score_count; ++i) shape.biases += p.score[i].what == score_function::kind::bias;
  return shape;
}

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) noexcept { return (a + b - 1) / b; }

std::int64_t lane_blocks_of(const problem& p, const kernel& k, std::int64_t queries) noexcept {
  return ceil_divide(queries * p.group, k.lanes);
}

}  // namespace

bool readable_in_place(const operand& x, std::int64_t columns) noexcept {
  return (x.column == 1 || columns <= 1) &&
         reinterpret_cast<std::uintptr_t>(x.data) % static_cast<std::uintptr_t>(size_of(x.type)) == 0;
}

double pairs_of(const problem& p) noexcept {
  const double all = static_cast<double>(p.batch.count) * static_cast<double>(p.queries) * static_cast<double>(p.keys);
  double pairs = p.query_starts ? 0 : all;
  for (std::int64_t b = 0; p.query_starts && b < p.batch.count; ++b)
    pairs += static_cast<double>(queries_of(p, b)) * static_cast<double>(key_length(p, b));
  return pairs * static_cast<double>(p.heads);
}

const char* reason_for(const problem& p, operation op) noexcept {
  if (op == operation::forward_pairs)
    return "many rows share a key/value head: lanes are queries, products are those of pairs of bfloat16";
  if (op == operation::few_queries)
    return "at most 16 rows share a key/value head: lanes are columns, keys and values are read once";
  return p.reproducible ? "reproducible: one kernel for every number of queries, lanes are queries"
                        : "many rows share a key/value head: lanes are queries";
}

route::route(const problem& p)
    : scales(factors_of(p)),
      lists_(p.query_starts ? (2 * p.batch.count + most_parts) * static_cast<std::int64_t>(sizeof(std::int64_t)) : 0) {
  if (p.query_starts) {
    pack(p);
    return;
  }
  part& all = parts_[count_++];
  all.op = operation_for(p, p.queries, many_rows_operation(p, scales));
  all.choice = choose(p, all.op);
  const kernel& k = *all.choice.entry;
  all.lane_blocks = lane_blocks_of(p, k, p.queries);
  all.blocks = p.heads == 0 ? 0 : p.batch.count * p.kv_heads * all.lane_blocks;
  all.chunks = ceil_divide(p.longest, k.chunk_keys);
  if (all.op == operation::few_queries && all.chunks > 1 && can_share_keys(p) && p.queries > 0)
    all.sharers = std::max<std::int64_t>(1, k.lanes / (p.queries * p.group));
  add(p, all.op, all.blocks > 0 && (all.blocks < enough_items || all.sharers > 1) && all.chunks > 1, all);
}

/// Memory of a part whose blocks and chunks are counted.
void route::add(const problem& p, operation op, bool split, part& made) {
  made.op = op;
  made.choice = choose(p, op);
  const kernel& k = *made.choice.entry;
  made.shape = shape_for(p, op, scales);
  made.scratch_bytes = k.scratch_bytes(made.shape);
  made.partial_bytes = k.partial_bytes(made.shape);
  made.total_bytes = k.total_bytes(made.shape);
  made.packed_bytes = k.pack ? k.packed_bytes(made.shape) : 0;
  made.run = k.pack ? most_rows_in_run / k.lanes : most_in_run;
  if (k.pack && (p.weights || p.scores)) made.run = 1;  // these read the scratch again at the end
  if (!split) return;
  const std::int64_t fit = wave_bytes / (made.blocks * made.partial_bytes), needed = ceil_divide(enough_items, made.blocks);
  made.wave = std::min(made.chunks, std::max(fit, needed));
}

/// Packed sequences by kernel, and apart those of which one block is a large share of the whole work.
void route::pack(const problem& p) {
  if (p.heads == 0) return;
  const auto keys = [&p](std::int64_t b) { return key_length(p, b); };
  const auto block_work = [&](std::int64_t b) {
    const std::int64_t rows = std::min<std::int64_t>(queries_of(p, b) * p.group, max_lanes);
    return static_cast<double>(rows) * static_cast<double>(keys(b));
  };
  const double work = pairs_of(p);
  std::int64_t* list = reinterpret_cast<std::int64_t*>(lists_.data());
  const operation many_rows = many_rows_operation(p, scales);
  for (const operation op : {many_rows, operation::few_queries}) {
    const kernel& k = *choose(p, op).entry;
    for (const bool split : {true, false}) {
      std::int64_t* const first = list;
      part made;
      for (std::int64_t b = 0; b < p.batch.count; ++b) {
        const std::int64_t queries = queries_of(p, b);
        if (queries == 0 || operation_for(p, queries, many_rows) != op) continue;
        const bool large = keys(b) > k.chunk_keys && block_work(b) * enough_items > work;
        if (large == split) *list++ = b;
      }
      made.count = list - first;
      if (made.count == 0) continue;
      std::sort(first, list, [&](std::int64_t a, std::int64_t b) {
        const double x = block_work(a), y = block_work(b);
        return x > y || (x == y && a < b);
      });
      made.sequences = first;
      made.starts = list;
      for (std::int64_t n = 0; n < made.count; ++n) {
        *list++ = made.blocks;
        made.blocks += p.kv_heads * lane_blocks_of(p, k, queries_of(p, first[n]));
        made.chunks = std::max(made.chunks, ceil_divide(keys(first[n]), k.chunk_keys));
      }
      *list++ = made.blocks;
      add(p, op, split, made);
      parts_[count_++] = made;
    }
  }
}

block_place place_of(const problem& p, const part& work, std::int64_t block) noexcept {
  std::int64_t lane_blocks = work.lane_blocks, sequence = 0;
  if (work.sequences) {
    const std::int64_t n = std::upper_bound(work.starts, work.starts + work.count, block) - work.starts - 1;
    sequence = work.sequences[n];
    lane_blocks = (work.starts[n + 1] - work.starts[n]) / p.kv_heads;
    block -= work.starts[n];
  } else {
    sequence = block / (p.kv_heads * lane_blocks);
    block %= p.kv_heads * lane_blocks;
  }
  // Under a causal mask later blocks have more keys: they go first, so that no long one is left for the end.
  const std::int64_t along = block % lane_blocks, lanes = work.choice.entry->lanes;
  const std::int64_t first = (p.causal ? lane_blocks - 1 - along : along) * lanes;
  return {sequence, block / lane_blocks, first, std::min<std::int64_t>(lanes, queries_of(p, sequence) * p.group - first)};
}

}  // namespace attend::detail

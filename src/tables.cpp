#include "tables.hpp"

#include <algorithm>

namespace attend::detail {
namespace {

/// Calls visit(id, first, last) for every run of keys of one segment; negative ids belong to none.
template <class Visit>
void for_each_run(const problem& p, std::int64_t b, const Visit& visit) {
  const std::int64_t keys = keys_of(p, b);
  for (std::int64_t j = 0; j < keys;) {
    const std::int64_t id = key_segment(p, b, j), first = j;
    while (++j < keys && key_segment(p, b, j) == id) continue;
    if (id >= 0) visit(id, first, j - 1);
  }
}

}  // namespace

mask_tables::distinct::distinct(const batch_shape& batch, const operand& x) noexcept {
  for (int axis = batch.axes - 1; axis >= 0; --axis) {
    if (x.batch[axis] == 0) continue;
    steps[axis] = count;
    count *= batch.sizes[axis];
  }
}

std::int64_t mask_tables::distinct::first_batch(const batch_shape& batch, std::int64_t number) const noexcept {
  std::int64_t b = 0, step = 1;
  for (int axis = batch.axes - 1; axis >= 0; --axis) {
    if (steps[axis] != 0) {
      b += number % batch.sizes[axis] * step;
      number /= batch.sizes[axis];
    }
    step *= batch.sizes[axis];
  }
  return b;
}

namespace {

/// No mask beside packed sequences, so there is one part.
mask_cut cut_of(const part& work) noexcept {
  const kernel& k = *work.choice.entry;
  return {k.lanes, k.tile_keys, work.lane_blocks, k.mask_class};
}

}  // namespace

mask_tables::mask_tables(const problem& p, const route& r, const for_each& run)
    : mask_tables(p, p.mask ? cut_of(*r.begin()) : mask_cut{}, run) {}

mask_tables::mask_tables(const problem& p, const mask_cut& cut, const for_each& run) : p_(p) {
  if (p.batch.count == 0 || p.heads == 0 || p.queries == 0) return;
  if (p.key_segments) place_segments();
  if (p.mask) class_tiles(cut, run);
}

void mask_tables::place_segments() {
  // Packed sequences have keys of their own each.
  operand moves = p_.key_segments;
  if (p_.key_starts) moves.batch[0] = 1;
  of_segments_ = distinct(p_.batch, moves);
  const auto for_each_distinct = [&](const auto& visit) {
    for (std::int64_t n = 0; n < of_segments_.count; ++n) visit(n, of_segments_.first_batch(p_.batch, n));
  };
  std::int64_t runs = 0;
  for_each_distinct(
      [&](std::int64_t, std::int64_t b) { for_each_run(p_, b, [&](std::int64_t, std::int64_t, std::int64_t) { ++runs; }); });
  const std::int64_t starts_bytes = (of_segments_.count + 1) * static_cast<std::int64_t>(sizeof(std::int64_t));
  segment_memory_.emplace(starts_bytes + runs * static_cast<std::int64_t>(sizeof(segment_place)));
  std::int64_t* const starts = reinterpret_cast<std::int64_t*>(segment_memory_->data());
  segment_place* const places = reinterpret_cast<segment_place*>(segment_memory_->data() + starts_bytes);
  std::int64_t used = 0;
  for_each_distinct([&](std::int64_t n, std::int64_t b) {
    starts[n] = used;
    segment_place* const first = places + used;
    segment_place* last = first;
    bool sorted = true;
    for_each_run(p_, b, [&](std::int64_t id, std::int64_t from, std::int64_t to) {
      sorted &= last == first || last[-1].id < id;
      *last++ = {id, from, to, true};
    });
    if (!sorted) {
      std::sort(first, last, [](const segment_place& x, const segment_place& y) {
        return x.id < y.id || (x.id == y.id && x.first < y.first);
      });
      segment_place* kept = first;  // runs of one segment become one place with gaps
      for (segment_place* run = first + 1; run < last; ++run) {
        if (run->id == kept->id) {
          kept->last = run->last;
          kept->whole = false;
        } else {
          *++kept = *run;
        }
      }
      last = kept + 1;
    }
    used += last - first;
  });
  starts[of_segments_.count] = used;
  starts_ = starts;
  segments_ = places;
}

const segment_place* mask_tables::find_segment(std::int64_t sequence, std::int64_t id) const noexcept {
  if (id < 0) return nullptr;
  const std::int64_t n = batch_offset(p_.batch, sequence, of_segments_.steps);
  const segment_place* const last = segments_ + starts_[n + 1];
  const segment_place* const at = std::lower_bound(segments_ + starts_[n], last, id,
                                                   [](const segment_place& x, std::int64_t wanted) { return x.id < wanted; });
  return at != last && at->id == id ? at : nullptr;
}

std::int64_t mask_tables::block_number(const block_place& at) const noexcept {
  const std::int64_t batch = batch_offset(p_.batch, at.sequence, of_mask_.steps);
  const std::int64_t head = mask_heads_ > 1 ? at.kv_head : 0, along = mask_blocks_ > 1 ? at.first_row / lanes_ : 0;
  return (batch * mask_heads_ + head) * mask_blocks_ + along;
}

void mask_tables::class_tiles(const mask_cut& cut, const for_each& run) {
  lanes_ = cut.lanes;
  tiles_ = (p_.keys + cut.tile_keys - 1) / cut.tile_keys;
  operand moves = p_.mask;
  if (p_.mask_of_newest) moves.batch[0] = 1;  // where its columns lie depends on the sequence's length
  of_mask_ = distinct(p_.batch, moves);
  // A mask that is the same for all heads, or for all queries, is looked at once for all of them.
  const bool by_head = p_.mask.head != 0, by_query = p_.mask.row != 0;
  mask_heads_ = by_head ? p_.kv_heads : 1;
  mask_blocks_ = by_query || (by_head && p_.group > 1) ? cut.lane_blocks : 1;
  const std::int64_t blocks = of_mask_.count * mask_heads_ * mask_blocks_;
  class_memory_.emplace(blocks * tiles_);
  classes_ = reinterpret_cast<tile_class*>(class_memory_->data());
  run(blocks, [&](std::int64_t n) {
    const std::int64_t along = n % mask_blocks_, head = n / mask_blocks_ % mask_heads_;
    const std::int64_t sequence = of_mask_.first_batch(p_.batch, n / mask_blocks_ / mask_heads_);
    const std::int64_t first_row = along * lanes_, rows = std::min<std::int64_t>(lanes_, p_.queries * p_.group - first_row);
    lane_map lanes;
    lanes.count = static_cast<int>(rows);
    fill_mask_rows(p_, {sequence, head, first_row, rows}, lanes);
    const std::int64_t keys = p_.mask_of_newest ? key_length(p_, sequence) : p_.keys;
    for (std::int64_t tile = 0; tile < tiles_; ++tile) {
      const std::int64_t first = tile * cut.tile_keys, count = std::min<std::int64_t>(cut.tile_keys, keys - first);
      classes_[n * tiles_ + tile] =
          count > 0 ? cut.mask_class(lanes, p_.mask.column, first, static_cast<int>(count)) : tile_class::skip;
    }
  });
}

const tile_class* mask_tables::mask_classes(const block_place& at) const noexcept {
  return classes_ ? classes_ + block_number(at) * tiles_ : nullptr;
}

void fill_mask_rows(const problem& p, const block_place& place, lane_map& lanes) noexcept {
  const char* const mask = static_cast<char*>(row_pointer(p.batch, p.mask, place.sequence, place.kv_head * p.group, 0));
  lanes.mask_first = p.mask_of_newest ? key_length(p, place.sequence) - p.queries : 0;
  for (int lane = 0; lane < lanes.count; ++lane) {
    const std::int64_t row = place.first_row + lane;
    lanes.mask[lane] = reinterpret_cast<const unsigned char*>(mask) + row % p.group * p.mask.head + row / p.group * p.mask.row;
  }
}

namespace {

/// Keys of a lane's segment narrow its intervals. Ids have to be compared where keys of other segments lie between, or where the
/// prefix and the window of a lane are apart, of which the intervals can bound the prefix on one side only.
void fill_segments(const problem& p, const mask_tables& tables, const block_place& place, lane_map& lanes) noexcept {
  const segment_place* at = nullptr;
  std::int64_t last_query = -1;
  for (int lane = 0; lane < lanes.count; ++lane) {
    const std::int64_t query = (place.first_row + lane) / p.group;
    if (query != last_query) {
      lanes.segment[lane] = query_segment(p, place.sequence, query);
      if (!at || at->id != lanes.segment[lane]) at = tables.find_segment(place.sequence, lanes.segment[lane]);
      last_query = query;
    } else {
      lanes.segment[lane] = lanes.segment[lane - 1];
    }
    std::int64_t &begin = lanes.begin[lane], &end = lanes.end[lane], &prefix = lanes.prefix_end[lane];
    if (!at) {
      begin = end = prefix = 0;
      continue;
    }
    begin = std::max(begin, at->first);
    end = std::min(end, at->last + 1);
    if (begin >= end) begin = end = 0;
    prefix = std::min(prefix, at->last + 1);
    if (prefix <= at->first) {
      prefix = 0;
    } else if (at->first > 0 && begin <= prefix) {  // the two join, or only the prefix is left
      begin = at->first;
      end = std::max(end, prefix);
      prefix = 0;
    }
    lanes.scattered |= !at->whole || (prefix > 0 && at->first > 0);
  }
}

/// Where the queries of a block's rows stand on a grid, and which cells are their neighbours. These narrow the intervals, too.
void fill_grid(const problem& p, const block_place& place, std::int64_t start, lane_map& lanes) noexcept {
  grid_map& grid = lanes.grid;
  grid.columns = p.grid && p.grid.columns > 0 ? p.grid.columns : grid_map::one_row;
  grid.neighborhood = static_cast<bool>(p.neighborhood);
  // A step beyond the grid leads nowhere, however far: sums of it must not overflow.
  grid.row_step = std::min(p.neighborhood.dilation.rows, std::max<std::int64_t>(p.grid.rows, 1));
  grid.column_step = std::min(p.neighborhood.dilation.columns, std::max<std::int64_t>(p.grid.columns, 1));
  grid.restricted = lanes.scattered;
  grid.hull_count = 0;
  if (!p.relative && !grid.neighborhood) return;
  std::int64_t query = place.first_row / p.group, head = place.first_row % p.group;
  std::int64_t row = p.grid ? query / grid.columns : 0, column = p.grid ? query % grid.columns : start + query;
  for (int lane = 0; lane < lanes.count; ++lane) {
    grid.row[lane] = row;
    grid.column[lane] = column;
    if (++head == p.group) {
      head = 0;
      if (++column == grid.columns) column = 0, ++row;
    }
    if (!grid.neighborhood) continue;
    const neighborhood& near = p.neighborhood;
    const cell_run rows = neighbors(grid.row[lane], p.grid.rows, near.kernel.rows, near.dilation.rows, near.border);
    const cell_run columns =
        neighbors(grid.column[lane], p.grid.columns, near.kernel.columns, near.dilation.columns, near.border);
    grid.neighbors[lane] = {rows.first, rows.last, columns.first, columns.last};
    grid_cells* const hull = grid.hull_count > 0 ? &grid.hulls[grid.hull_count - 1] : nullptr;
    if (hull && hull->first_row == rows.first && hull->last_row == rows.last && columns.last >= hull->last_column) {
      hull->first_column = std::min(hull->first_column, columns.first);  // dilated, the next lane's may lie further left
      hull->last_column = columns.last;
    } else {
      grid.hulls[grid.hull_count++] = grid.neighbors[lane];
    }
    grid.hull_end[grid.hull_count - 1] = lane + 1;
    const std::int64_t first = rows.first * grid.columns + columns.first, last = rows.last * grid.columns + columns.last;
    grid.restricted |= lanes.begin[lane] > first || lanes.end[lane] <= last;
    lanes.begin[lane] = std::max(lanes.begin[lane], first);
    lanes.end[lane] = std::min(lanes.end[lane], last + 1);
    if (lanes.begin[lane] >= lanes.end[lane]) lanes.begin[lane] = lanes.end[lane] = 0;
    lanes.prefix_end[lane] = std::min(lanes.prefix_end[lane], last + 1);
  }
}

}  // namespace

void fill_masks(const problem& p, const mask_tables& tables, const block_place& place, lane_map& lanes) noexcept {
  const std::int64_t start = first_position(p, place.sequence), length = key_length(p, place.sequence);
  const std::int64_t prefix = p.has_prefix ? batch_value(p.batch, place.sequence, p.prefix) : 0;
  lanes.count = static_cast<int>(place.rows);
  lanes.scattered = false;
  // Counted along: two divisions a row are what short sequences spend their time with.
  std::int64_t query = place.first_row / p.group, head = place.first_row % p.group;
  for (int lane = 0; lane < lanes.count; ++lane) {
    lanes.position[lane] = start + query;
    if (++head == p.group) head = 0, ++query;
    const key_intervals allowed = allowed_intervals(p, lanes.position[lane], length, prefix);
    lanes.begin[lane] = allowed.begin;
    lanes.end[lane] = allowed.end;
    lanes.prefix_end[lane] = allowed.prefix_end;
  }
  if (p.key_segments) fill_segments(p, tables, place, lanes);
  fill_grid(p, place, start, lanes);
  lanes.mask_classes = tables.mask_classes(place);
}

}  // namespace attend::detail

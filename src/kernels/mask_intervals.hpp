// Tile classes from key intervals: forward kernels, plans and whatever comes later ask the same question here.
#pragma once

#include "kernels/kernel_table.hpp"

namespace attend::detail {

/// Bounds over the lanes of a block, from which a tile's class follows without looking at lanes again.
struct lane_bounds {
  std::int64_t min_begin, max_begin, min_end, max_end, min_prefix, max_prefix;
  bool scattered;
};

// `static`: kernel units must not share inline functions with the portable path.
static inline lane_bounds bounds_of(const lane_map& lanes) {
  lane_bounds b{INT64_MAX, 0, INT64_MAX, 0, INT64_MAX, 0, lanes.scattered};
  for (int i = 0; i < lanes.count; ++i) {
    const bool empty = lanes.begin[i] >= lanes.end[i];
    if (!empty && lanes.begin[i] < b.min_begin) b.min_begin = lanes.begin[i];
    if (lanes.begin[i] > b.max_begin) b.max_begin = lanes.begin[i];
    if (lanes.end[i] < b.min_end) b.min_end = lanes.end[i];
    if (lanes.end[i] > b.max_end) b.max_end = lanes.end[i];
    if (lanes.prefix_end[i] < b.min_prefix) b.min_prefix = lanes.prefix_end[i];
    if (lanes.prefix_end[i] > b.max_prefix) b.max_prefix = lanes.prefix_end[i];
  }
  return b;
}

/// First key and one past the last key that any lane allows.
static inline std::int64_t first_key(const lane_bounds& b) { return b.max_prefix > 0 ? 0 : b.min_begin; }
static inline std::int64_t last_key(const lane_bounds& b) { return b.max_end > b.max_prefix ? b.max_end : b.max_prefix; }

/// The class of keys [first, last) by intervals: skip where no lane allows any, full where every lane allows all.
static inline tile_class classify(const lane_bounds& b, std::int64_t first, std::int64_t last) {
  if (!b.scattered && ((b.max_begin <= first && last <= b.min_end) || last <= b.min_prefix)) return tile_class::full;
  if ((last <= b.min_begin || first >= b.max_end) && first >= b.max_prefix) return tile_class::skip;
  return tile_class::partial;
}

/// The first of begin, begin + step, ... that is not below `from`.
static inline std::int64_t step_from(std::int64_t from, std::int64_t begin, std::int64_t step) {
  if (from <= begin) return begin;
  return step == 1 ? from : begin + (from - begin + step - 1) / step * step;
}

/// Whether any of keys [first, last) is one of these cells, whose columns are `column_step` apart.
static inline bool has_cell(const grid_map& grid, const grid_cells& cells, std::int64_t column_step, std::int64_t first,
                            std::int64_t last) {
  for (std::int64_t row = step_from(first / grid.columns, cells.first_row, grid.row_step); row <= cells.last_row;
       row += grid.row_step) {
    const std::int64_t start = row * grid.columns;
    if (start + cells.first_column >= last) return false;
    const std::int64_t column = step_from(first - start, cells.first_column, column_step);
    if (column <= cells.last_column && start + column < last) return true;
  }
  return false;
}

/// The same with neighbourhoods: every tile of theirs is partial, or skipped where no lane has a neighbour in it. The columns of
/// neighbouring queries join without a gap unless they are dilated.
static inline tile_class classify(const lane_map& lanes, const lane_bounds& b, std::int64_t first, std::int64_t last) {
  const tile_class kind = classify(b, first, last);
  const grid_map& grid = lanes.grid;
  if (!grid.neighborhood || kind == tile_class::skip) return kind;
  for (int hull = 0; hull < grid.hull_count; ++hull) {
    if (!has_cell(grid, grid.hulls[hull], 1, first, last)) continue;
    if (grid.column_step == 1) return tile_class::partial;
    for (int lane = hull == 0 ? 0 : grid.hull_end[hull - 1]; lane < grid.hull_end[hull]; ++lane) {
      if (has_cell(grid, grid.neighbors[lane], grid.column_step, first, last)) return tile_class::partial;
    }
  }
  return tile_class::skip;
}

/// What a kernel has to know of a tile: its class by all masks together, and which of them have to be looked at in it.
struct tile_kind {
  tile_class kind;
  bool structured;  // intervals, segments, neighbourhoods
  bool reads_mask;
};
static inline tile_kind classify_tile(const lane_map& lanes, const lane_bounds& b, std::int64_t first, std::int64_t last,
                                      bool has_mask, std::int64_t tile_keys) {
  const tile_class kind = classify(lanes, b, first, last);
  const bool structured = kind == tile_class::partial;
  if (kind == tile_class::skip || !has_mask) return {kind, structured, false};
  const tile_class masked = lanes.mask_classes[first / tile_keys];
  if (masked == tile_class::full) return {kind, structured, false};
  return {masked, structured, masked == tile_class::partial};
}

}  // namespace attend::detail

// What a call finds out about its masks once, for all blocks: where each segment's keys lie, and which tiles a boolean mask fills.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "problem.hpp"
#include "route.hpp"

namespace attend::detail {

/// Where the keys of one segment lie: from `first` to `last`, all of them if `whole`.
struct segment_place {
  std::int64_t id, first, last;
  bool whole;
};

/// How a kernel cuts a call in blocks and tiles, and how it classes these by a boolean mask.
struct mask_cut {
  int lanes, tile_keys;
  std::int64_t lane_blocks;
  tile_class (*mask_class)(const lane_map& lanes, std::int64_t mask_step, std::int64_t first, int count);
};

class mask_tables {
 public:
  /// Calls item(i) for every i below a count, on any thread.
  using for_each = std::function<void(std::int64_t, const std::function<void(std::int64_t)>&)>;

  mask_tables(const problem& p, const mask_cut& cut, const for_each& run);
  mask_tables(const problem& p, const route& r, const for_each& run);

  /// The place of a segment among the keys of a sequence; null where it has none.
  const segment_place* find_segment(std::int64_t sequence, std::int64_t id) const noexcept;

  /// Classes of the boolean mask in a block, per tile; null without a mask.
  const tile_class* mask_classes(const block_place& at) const noexcept;

 private:
  /// Batches that an array can tell apart: those that differ along an axis where it moves. Batch b has the number
  /// `batch_offset(batch, b, steps)`.
  struct distinct {
    std::int64_t count = 1, steps[max_batch_axes] = {};
    distinct() = default;
    distinct(const batch_shape& batch, const operand& x) noexcept;
    std::int64_t first_batch(const batch_shape& batch, std::int64_t number) const noexcept;
  };

  void place_segments();
  void class_tiles(const mask_cut& cut, const for_each& run);
  std::int64_t block_number(const block_place& at) const noexcept;

  const problem& p_;
  distinct of_segments_, of_mask_;
  std::optional<call_scratch> segment_memory_, class_memory_;
  const segment_place* segments_ = nullptr;
  const std::int64_t* starts_ = nullptr;  // of each distinct batch among them
  tile_class* classes_ = nullptr;
  std::int64_t tiles_ = 0, mask_heads_ = 1, mask_blocks_ = 1, lanes_ = 1;
};

/// The key intervals of a block's rows and what else masks them, as its lane map.
void fill_masks(const problem& p, const mask_tables& tables, const block_place& place, lane_map& lanes) noexcept;

/// Pointers to the rows of the boolean mask.
void fill_mask_rows(const problem& p, const block_place& place, lane_map& lanes) noexcept;

}  // namespace attend::detail

// The decided route of a checked call: which kernels, how rows and keys are cut, how much memory. A pure function of the
// problem; nothing here knows the number of threads.
#pragma once

#include "attend/plan.hpp"
#include "dispatch.hpp"
#include "factors.hpp"
#include "problem.hpp"

namespace attend::detail {

struct route {
  operation op = operation::forward;
  kernel_choice choice{};
  scratch_shape shape{};
  factors scales;
  std::int64_t rows = 0;         // queries x heads of a group
  std::int64_t lane_blocks = 0;  // per sequence and key/value head
  std::int64_t blocks = 0;       // of the whole call
  std::int64_t chunks = 0;       // of the longest sequence
  std::int64_t wave = 0;         // chunks in flight per block where keys are split; 0 where a block folds its own chunks
  std::int64_t scratch_bytes = 0, partial_bytes = 0, total_bytes = 0;
  const char* reason = "";
};

route choose_route(const problem& p);

/// What the route of a problem comes to, counted over every tile.
plan_facts facts_of(const problem& p, const route& r);

/// One block's rows: sequence, key/value head, first row among queries x group.
struct block_place {
  std::int64_t sequence, kv_head, first_row, rows;
};
block_place place_of(const problem& p, const route& r, std::int64_t block) noexcept;

/// The key intervals of a block's rows, as its lane map.
void fill_intervals(const problem& p, const block_place& place, lane_map& lanes) noexcept;

}  // namespace attend::detail

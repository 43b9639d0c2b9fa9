// From a problem to what a kernel is told of one block: pointers to rows, steps, masks.
#pragma once

#include "factors.hpp"
#include "kernels/kernel_table.hpp"
#include "problem.hpp"
#include "tables.hpp"

namespace attend::detail {

element stored_as(dtype type) noexcept;

/// Everything of a block but its queries, which `kernel::load` brings into scratch for those who compute scores.
block_job make_job(const problem& p, const factors& scales, const mask_tables& tables, const block_place& at,
                   const scratch_shape& shape, void* scratch);

/// Puts the rows of a block behind those of another, whose sequence has the same keys (`can_share_keys`) in the chunk at hand.
void append_lanes(block_job& to, const block_job& from) noexcept;

/// What a block at `next` begins with that one at `at` does not read: rows of queries and results, and of keys and values of another head,
/// where they lie next to each other.
memory_ahead beginning_of(const problem& p, const block_place& at, const block_place& next) noexcept;

/// The first `count` score functions as steps of a block.
void fill_steps(const problem& p, const block_place& at, int count, block_job& job);

}  // namespace attend::detail

// The decided route of a checked call: which kernels, how rows and keys are cut, how much memory. A pure function of the
// problem; nothing here knows the number of threads.
#pragma once

#include "attend/plan.hpp"
#include "dispatch.hpp"
#include "factors.hpp"
#include "problem.hpp"
#include "scratch.hpp"

namespace attend::detail {

/// Sequences that one kernel computes in the same way: whole blocks, or blocks whose chunks of keys are work items of their own.
struct part {
  kernel_choice choice{};
  operation op = operation::forward;
  scratch_shape shape{};
  std::int64_t scratch_bytes = 0, partial_bytes = 0, total_bytes = 0, packed_bytes = 0;
  // Most blocks that a work item computes one after another, so that those of one head share what is packed of its keys and values.
  std::int64_t run = 1;
  std::int64_t blocks = 0;
  std::int64_t chunks = 0;       // of the longest sequence
  std::int64_t wave = 0;         // chunks in flight per block where keys are split; 0 where a block folds its own chunks
  std::int64_t lane_blocks = 0;  // per sequence and key/value head, where all sequences are alike
  std::int64_t sharers =
      1;  // most sequences that read keys together, where these are split and sequences may have pages in common
  // Packed: sequences[n] has the blocks [starts[n], starts[n + 1]); most work first, so that none is left for the end.
  std::int64_t count = 0;
  const std::int64_t* sequences = nullptr;
  const std::int64_t* starts = nullptr;
};

/// `part::run` where nothing is packed, and otherwise the rows of its blocks: what packing costs them is a few hundredths of the rest, and totals
/// stay in the second-level cache.
inline constexpr std::int64_t most_in_run = 8, most_rows_in_run = 1024;

class route {
 public:
  explicit route(const problem& p);
  route(const route&) = delete;
  route& operator=(const route&) = delete;

  const part* begin() const noexcept { return parts_; }
  const part* end() const noexcept { return parts_ + count_; }

  factors scales;

 private:
  void add(const problem& p, operation op, bool split, part& made);
  void pack(const problem& p);

  static constexpr int most_parts = 4;
  part parts_[most_parts];
  int count_ = 0;
  call_scratch lists_;
};

/// Whether kernels may read rows where they lie: columns adjacent, elements aligned.
bool readable_in_place(const operand& x, std::int64_t columns) noexcept;

/// Pairs of a query and a key of a call without masks, over all heads.
double pairs_of(const problem& p) noexcept;

/// Why this kernel.
const char* reason_for(const problem& p, operation op) noexcept;

/// One block's rows: sequence, key/value head, first row among queries x group.
struct block_place {
  std::int64_t sequence, kv_head, first_row, rows;
};
block_place place_of(const problem& p, const part& work, std::int64_t block) noexcept;

}  // namespace attend::detail

// What every work item of a backward call reads: how it is cut, what is known of its rows, and what the kernel is told of one block.
#pragma once

#include "dispatch.hpp"
#include "factors.hpp"
#include "gradient_problem.hpp"
#include "job.hpp"
#include "scratch.hpp"
#include "tables.hpp"
#include "work_items.hpp"

namespace attend::detail {

/// Keys that some row of a block may see.
struct key_range {
  std::int64_t first, last;
};

class backward_call {
 public:
  /// Reads what is known of rows and masks, on threads.
  backward_call(const gradient_problem& g, work_items& items);
  backward_call(const backward_call&) = delete;
  backward_call& operator=(const backward_call&) = delete;

  const gradient_problem& g;
  const problem& p;
  const backward_kernel& kernel;
  const factors scales;
  const scratch_shape shape;
  const std::int64_t heads;  // pairs of a sequence and a key/value head: number n is head n % kv_heads of sequence n / kv_heads
  // Of the longest sequence: those of others end earlier.
  const std::int64_t lane_blocks;  // per head
  const std::int64_t chunks;       // of keys, at least one

  block_place place_of(std::int64_t n, std::int64_t block) const noexcept;

  /// A block's job, but for where its gradients go.
  backward_job job_of(const block_place& at, void* scratch) const;

  /// The keys of chunk c that a block has to look at; first = last where every pair in it is excluded.
  key_range keys_of(std::int64_t n, std::int64_t block, std::int64_t c) const noexcept;

  /// The gradient by a row's sink.
  double by_sink(std::int64_t n, std::int64_t row) const noexcept { return rows_of(n)[row].by_sink; }

 private:
  struct row_terms {
    double base, factor, mean, by_sink;  // see backward_job
  };

  row_terms* rows_of(std::int64_t n) const noexcept;
  key_range* ranges_of(std::int64_t n) const noexcept;
  row_terms terms_of(const block_place& at, int lane) const noexcept;

  /// What the rows of a block are divided by, where a normaliser but softmax divides: `base` and `factor` of their terms.
  void find_sums(const block_place& at, key_range seen, row_terms* rows, work_items& items) const;

  mask_tables tables_;
  call_scratch memory_;
};

}  // namespace attend::detail

// Work: a block is (sequence, key/value head, rows); it visits its chunks of keys in order and folds their partial results from
// left to right. Where there are few blocks, a chunk is a work item of its own and the same folds happen afterwards, wave by
// wave: whoever computes a chunk, the bits are the same.
#include "run.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <optional>
#include <utility>

#include "job.hpp"
#include "kernels/mask_intervals.hpp"
#include "scratch.hpp"
#include "shared_keys.hpp"
#include "tables.hpp"
#include "work_items.hpp"

namespace attend::detail {
namespace {

/// A block whose chunks are folded as they come. Its scratch and its total lie behind it.
struct block_state {
  block_place at;
  block_job job;
  lane_bounds bounds;
  char* total;
  int folded;  // chunks
};
constexpr std::int64_t state_bytes = (sizeof(block_state) + 63) / 64 * 64;

std::int64_t bytes_of_block(const part& work) noexcept { return state_bytes + work.total_bytes; }

class runner : work_items {
 public:
  runner(const problem& p, const route& r, const options& how)
      : work_items(how, pairs_of(p) * static_cast<double>(p.width + p.value_width)),
        p_(p),
        r_(r),
        tables_(p, r, [this](std::int64_t count, const auto& item) { for_each(count, item); }) {}

  void operator()() {
    for (const part& work : r_) {
      if (work.blocks == 0) continue;
      if (work.wave == 0) {
        const std::int64_t each = blocks_each(work, work.blocks);
        for_each((work.blocks + each - 1) / each, [&](std::int64_t item) {
          const std::int64_t begin = item * each, end = std::min(begin + each, work.blocks);
          if (work.choice.entry->pack) {
            for_each_head(work, begin, end,
                          [&](std::int64_t first, std::int64_t count) { whole_blocks(work, first, count, -1); });
          } else {
            for (std::int64_t b = begin; b < end; ++b) whole_blocks(work, b, 1, b + 1 < end ? b + 1 : -1);
          }
        });
      } else {
        split_keys(work);
      }
    }
  }

 private:
  /// How many blocks one of `items` work items computes one after another: as many as leave each thread several. Bits do not depend
  /// on it.
  std::int64_t blocks_each(const part& work, std::int64_t items) const {
    const std::int64_t items_per_thread = work.choice.entry->pack ? 4 : 32;
    return std::clamp<std::int64_t>(items / (items_per_thread * threads_asked()), 1, work.run);
  }

  /// Calls visit(first, count) for the blocks [first, end), by runs of the same sequence and key/value head.
  template <class Visit>
  void for_each_head(const part& work, std::int64_t first, std::int64_t end, const Visit& visit) const {
    while (first < end) {
      const block_place at = place_of(p_, work, first);
      std::int64_t next = first + 1;
      for (; next < end; ++next) {
        const block_place other = place_of(p_, work, next);
        if (other.sequence != at.sequence || other.kv_head != at.kv_head) break;
      }
      visit(first, next - first);
      first = next;
    }
  }

  block_job job_of(const block_place& at, const scratch_shape& shape, void* scratch) const {
    return make_job(p_, r_.scales, tables_, at, shape, scratch);
  }

  /// Keys of chunk c that this block has to look at; empty where every pair in it is excluded.
  static std::pair<std::int64_t, std::int64_t> chunk_keys(const kernel& k, const lane_bounds& bounds, std::int64_t c) noexcept {
    const std::int64_t begin = c * k.chunk_keys, end = std::min(begin + k.chunk_keys, last_key(bounds));
    if (begin >= end || classify(bounds, begin, end) == tile_class::skip) return {0, 0};
    return {begin, end};
  }

  /// A partial result becomes a total: nothing was lost yet.
  static void start_total(const part& work, char* total) {
    std::memset(total + work.partial_bytes, 0, static_cast<std::size_t>(work.total_bytes - work.partial_bytes));
  }

  /// Blocks of one head: chunk by chunk, so that what is packed of a chunk serves all of them.
  /// `next`: the block that follows on this thread, or -1.
  void whole_blocks(const part& work, std::int64_t first_block, std::int64_t count, std::int64_t next_block) {
    const kernel& k = *work.choice.entry;
    const std::int64_t block_bytes = bytes_of_block(work);
    char* const memory = thread_scratch(count * block_bytes + work.partial_bytes + work.packed_bytes + work.scratch_bytes);
    char* const next = memory + count * block_bytes;
    char* const packed = next + work.partial_bytes;
    char* const scratch = packed + work.packed_bytes;  // of the block at work, so that it stays in the first-level cache
    const auto state = [&](std::int64_t n) -> block_state& {
      return *std::launder(reinterpret_cast<block_state*>(memory + n * block_bytes));
    };
    std::int64_t first = std::numeric_limits<std::int64_t>::max(), chunks = 0;
    for (std::int64_t n = 0; n < count; ++n) {
      char* const own = memory + n * block_bytes;
      const block_place at = place_of(p_, work, first_block + n);
      block_state& block = *new (own) block_state{at, job_of(at, work.shape, scratch), {}, nullptr, 0};
      block.job.packed = packed;
      if (next_block >= 0) block.job.ahead = beginning_of(p_, at, place_of(p_, work, next_block));
      block.bounds = bounds_of(block.job.lanes);
      block.total = own + state_bytes;
      first = std::min(first, first_key(block.bounds) / k.chunk_keys);
      chunks = std::max(chunks, (last_key(block.bounds) + k.chunk_keys - 1) / k.chunk_keys);
    }
    for (std::int64_t c = first; c < chunks; ++c) {
      std::int64_t longest = 0;
      for (std::int64_t n = 0; n < count; ++n) longest = std::max(longest, chunk_keys(k, state(n).bounds, c).second);
      if (longest == 0) continue;
      if (stopped()) return;
      if (k.pack) k.pack(state(0).job, c * k.chunk_keys, longest, packed);
      for (std::int64_t n = 0; n < count; ++n) {
        block_state& block = state(n);
        const auto [begin, end] = chunk_keys(k, block.bounds, c);
        if (begin == end) continue;
        if (stopped()) return;
        if (count > 1 || block.folded == 0) k.load(block.job);
        k.chunk(block.job, begin, end, block.folded > 0 ? next : block.total);
        if (block.folded == 1) start_total(work, block.total);  // most blocks have one chunk
        if (block.folded > 0) k.fold(block.job, block.total, next);
        ++block.folded;
      }
    }
    for (std::int64_t n = 0; n < count; ++n) {
      block_state& block = state(n);
      if (block.folded == 0) k.chunk(block.job, 0, 0, block.total);
      finish(work, block.job, block.at, block.total);
    }
  }

  /// The partial results of one chunk for blocks of one head; `slot` says where a block's belongs, `filled` takes whether there is one.
  template <class Slot, class Filled>
  void one_chunk(const part& work, std::int64_t first_block, std::int64_t count, std::int64_t chunk, const Slot& slot,
                 const Filled& filled) {
    const kernel& k = *work.choice.entry;
    char* const memory = thread_scratch(work.scratch_bytes + work.packed_bytes);
    const auto job_at = [&](std::int64_t n) { return job_of(place_of(p_, work, first_block + n), work.shape, memory); };
    std::int64_t longest = 0;  // end of what is packed for all of them
    for (std::int64_t n = 0; k.pack && n < count; ++n)
      longest = std::max(longest, chunk_keys(k, bounds_of(job_at(n).lanes), chunk).second);
    bool packed = !k.pack;
    for (std::int64_t n = 0; n < count; ++n) {
      block_job job = job_at(n);
      const auto [begin, end] = chunk_keys(k, bounds_of(job.lanes), chunk);
      filled(first_block + n) = begin < end;
      if (begin == end) continue;
      job.packed = memory + work.scratch_bytes;
      if (!packed) k.pack(job, begin, longest, memory + work.scratch_bytes);
      packed = true;
      k.load(job);
      k.chunk(job, begin, end, slot(first_block + n));
    }
  }

  /// The partial results of one chunk for the blocks of one head of sequences that share its keys.
  template <class Slot, class Filled>
  void shared_chunk(const part& work, const key_sharers& who, std::int64_t kv_head, const Slot& slot, const Filled& filled) {
    const kernel& k = *work.choice.entry;
    const std::int64_t begin = who.chunk * k.chunk_keys, end = begin + k.chunk_keys;
    char* const memory = thread_scratch(work.scratch_bytes + work.partial_bytes);
    char* const all = memory + work.scratch_bytes;
    std::optional<block_job> together;
    std::int64_t blocks[max_lanes], alone[max_lanes];  // that see every key of the chunk, and others
    int several = 0, others = 0;
    for (std::int64_t n = 0; n < who.count; ++n) {
      const std::int64_t block = who.sequences[n] * p_.kv_heads + kv_head;
      const block_job job = job_of(place_of(p_, work, block), work.shape, memory);
      if (who.count == 1 || classify(bounds_of(job.lanes), begin, end) != tile_class::full) {
        alone[others++] = block;
        continue;
      }
      if (together)
        append_lanes(*together, job);
      else
        together = job;
      blocks[several++] = block;
    }
    if (together) {
      k.load(*together);
      k.chunk(*together, begin, end, all);
      const int rows = together->lanes.count / several;
      for (int n = 0; n < several; ++n) {
        filled(blocks[n]) = 1;
        k.take_rows(*together, all, n * rows, rows, slot(blocks[n]));
      }
    }
    for (int n = 0; n < others; ++n) one_chunk(work, alone[n], 1, who.chunk, slot, filled);
  }

  void split_keys(const part& work) {
    const kernel& k = *work.choice.entry;
    const std::int64_t slots = work.wave + 1;  // a block's partials of one wave, and its total
    const std::int64_t block_bytes = work.wave * work.partial_bytes + work.total_bytes;
    call_scratch shared(work.blocks * (block_bytes + slots));
    char* const partials = shared.data();
    char* const filled = partials + work.blocks * block_bytes;  // one byte per slot
    std::memset(filled, 0, static_cast<std::size_t>(work.blocks * slots));
    const auto slot = [&](std::int64_t block, std::int64_t n) {
      return partials + block * block_bytes + n * work.partial_bytes;
    };

    std::optional<shared_keys> sharers;
    if (work.sharers > 1) sharers.emplace(p_, k.chunk_keys, work.wave, work.sharers);
    for (std::int64_t first = 0; first < work.chunks; first += work.wave) {
      const std::int64_t count = std::min(work.wave, work.chunks - first);
      const auto slot_of = [&](std::int64_t n) { return [&slot, n](std::int64_t block) { return slot(block, n); }; };
      const auto filled_of = [&](std::int64_t n) {
        return [filled, slots, n](std::int64_t block) -> char& { return filled[block * slots + n]; };
      };
      if (sharers) {
        sharers->find(first, count);
        for_each(sharers->count() * p_.kv_heads, [&](std::int64_t item) {
          const key_sharers& who = (*sharers)[item / p_.kv_heads];
          shared_chunk(work, who, item % p_.kv_heads, slot_of(who.chunk - first), filled_of(who.chunk - first));
        });
      } else {
        const std::int64_t each = blocks_each(work, work.blocks * count);
        for_each((work.blocks + each - 1) / each * count, [&](std::int64_t item) {
          const std::int64_t block = item / count * each, n = item % count;
          for_each_head(work, block, std::min(block + each, work.blocks), [&](std::int64_t run, std::int64_t length) {
            one_chunk(work, run, length, first + n, slot_of(n), filled_of(n));
          });
        });
      }
      const bool last = first + count == work.chunks;
      for_each(work.blocks, [&](std::int64_t block) {
        const block_place at = place_of(p_, work, block);
        const block_job job = job_of(at, work.shape, thread_scratch(work.scratch_bytes));
        char& any = filled[block * slots + work.wave];
        char* const total = slot(block, work.wave);
        for (std::int64_t n = 0; n < count; ++n) {
          if (!std::exchange(filled[block * slots + n], 0)) continue;
          if (any) {
            k.fold(job, total, slot(block, n));
          } else {
            std::memcpy(total, slot(block, n), static_cast<std::size_t>(work.partial_bytes));
            start_total(work, total);
          }
          any = 1;
        }
        if (!last) return;
        if (!any) k.chunk(job, 0, 0, total);
        finish(work, job, at, total);
      });
    }
  }

  /// A row's sums become its result: what they are multiplied by, and its LSE.
  struct row_end {
    double factor, lse;
  };
  row_end end_of_row(double maximum, double denominator, std::int64_t head, double of_weights) const {
    const double infinity = std::numeric_limits<double>::infinity();
    double shrink = 1;
    if (p_.sinks) {
      const double sink = number_at(p_.sinks, head * p_.sinks.head);
      if (maximum == -infinity && denominator == 0) return {0, sink};                // a row without keys, not one of NaN
      const double larger = std::isnan(maximum) || maximum > sink ? maximum : sink;  // NaN of either stays
      if (larger > -infinity || std::isnan(larger)) {
        shrink = std::exp(maximum - larger);
        denominator = denominator * shrink + std::exp(sink - larger);
        maximum = larger;
      }
    }
    const double kept = p_.dropout_p > 0 && p_.dropout_p < 1 ? 1 / (1 - p_.dropout_p) : 1;
    const double divided = divides(p_.normalizer) ? (denominator == 0 ? 0 : shrink / of_weights / denominator) : 1;
    if (!p_.lse) return {divided * kept, 0};
    return {divided * kept, denominator == 0 ? -infinity : maximum + std::log(denominator)};
  }

  /// Rows of out, lse, weights and scores from a block's total.
  void finish(const part& work, const block_job& job, block_place at, const void* total) {
    const kernel& k = *work.choice.entry;
    double maximum[max_lanes], denominator[max_lanes], factor[max_lanes];
    k.totals(job, total, maximum, denominator);
    for (int lane = 0; lane < job.lanes.count; ++lane) {
      const std::int64_t row = at.first_row + lane, head = at.kv_head * p_.group + row % p_.group;
      const row_end end = end_of_row(maximum[lane], denominator[lane], head, job.weight_factor);
      factor[lane] = end.factor;
      if (!p_.lse) continue;
      void* const to = query_row(p_, p_.lse, at.sequence, head, row / p_.group);
      store_number(to, p_.lse.type, end.lse);
    }
    if (p_.out) k.finish(job, total, factor);
    const std::int64_t seen =
        last_key(bounds_of(job.lanes));  // keys behind it, which no row of the block sees, are not even read
    if (p_.weights) {
      write_pairs(
          work, at, p_.weights, p_.score_count, seen, 0,
          [&](const block_job& again, std::int64_t begin, std::int64_t end) { k.weights(again, begin, end, maximum, factor); });
    }
    if (p_.scores) {
      const bool masked = p_.stage == score_stage::biased;
      const int steps = masked ? p_.score_count : p_.stage == score_stage::capped ? p_.capped_count : 0;
      const std::int64_t last = masked ? seen : key_length(p_, at.sequence);
      write_pairs(work, at, p_.scores, steps, last, -std::numeric_limits<double>::infinity(),
                  [&](const block_job& again, std::int64_t begin, std::int64_t end) { k.scores(again, begin, end, masked); });
    }
  }

  /// Rows of an array of pairs: what `write` computes for the keys below `last`, and `rest` behind them.
  template <class Write>
  void write_pairs(const part& work, const block_place& at, const operand& to, int steps, std::int64_t last, double rest,
                   const Write& write) {
    const kernel& k = *work.choice.entry;
    scratch_shape shape = work.shape;
    shape.pack_v = false;  // values are not needed again
    // The sums are no longer needed, and with them what this thread's scratch held.
    char* const memory = thread_scratch(work.scratch_bytes + work.packed_bytes);
    block_job job = job_of(at, shape, memory);
    job.packed = memory + work.scratch_bytes;
    if (steps != p_.score_count) fill_steps(p_, at, steps, job);
    job.pairs_step = to.column;
    for (int lane = 0; lane < job.lanes.count; ++lane) {
      const std::int64_t row = at.first_row + lane;
      job.lanes.pairs[lane] = row_pointer(p_.batch, to, at.sequence, at.kv_head * p_.group + row % p_.group, row / p_.group);
    }
    k.load(job);
    for (std::int64_t begin = 0; begin < last; begin += k.chunk_keys) {
      if (stopped()) return;
      const std::int64_t end = std::min(begin + k.chunk_keys, last);
      if (k.pack) k.pack(job, begin, end, memory + work.scratch_bytes);
      write(job, begin, end);
    }
    for (int lane = 0; lane < job.lanes.count; ++lane) {
      for (std::int64_t j = last; j < p_.keys; ++j) {
        store_number(static_cast<char*>(job.lanes.pairs[lane]) + j * to.column * size_of(to.type), to.type, rest);
      }
    }
  }

  const problem& p_;
  const route& r_;
  mask_tables tables_;
};

}  // namespace

std::int64_t thread_bytes(const part& work) noexcept {
  const std::int64_t one_chunk = work.scratch_bytes + work.packed_bytes;
  if (work.wave > 0) return one_chunk;
  return (work.choice.entry->pack ? work.run : 1) * bytes_of_block(work) + work.partial_bytes + one_chunk;
}

void run(const problem& p, const route& r, const options& how) { runner(p, r, how)(); }

}  // namespace attend::detail

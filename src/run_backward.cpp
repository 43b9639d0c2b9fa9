// Work: an item is a chunk of keys of one (sequence, key/value head). It visits the blocks of queries that see some of its keys, in order,
// adds up the gradients of its keys and values, and leaves one partial gradient per block. These are folded in the order of chunks, wave by
// wave, so that memory is bounded and bits do not depend on threads: not on who computes an item, nor on how long waves are.
#include "run_backward.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "backward_biases.hpp"
#include "backward_call.hpp"
#include "batch_sums.hpp"
#include "route.hpp"

namespace attend::detail {
namespace {

// Partial results of one wave: as many items as fit, so that waves rarely end, and at least some for every thread.
constexpr std::int64_t wave_bytes = 32 << 20, items_per_thread = 2;

// Blocks whose sums for a key are added up before they join a total that keeps what it rounds.
constexpr int blocks_in_sum = 32;

double products_of(const problem& p) noexcept { return 2.5 * pairs_of(p) * static_cast<double>(p.width + p.value_width); }

class runner : work_items {
 public:
  runner(const gradient_problem& g, const options& how)
      : work_items(how, products_of(g.call)),
        g_(g),
        p_(g.call),
        call_(g, *this),
        k_(call_.kernel),
        dq_(p_, g.to.dq, p_.heads, p_.queries, p_.width),
        dk_(p_, g.to.dk, p_.kv_heads, p_.keys, p_.width),
        dv_(p_, g.to.dv, p_.kv_heads, p_.keys, p_.value_width) {
    for (int n = 0; n < p_.score_count; ++n) {
      if (p_.score[n].what == score_function::kind::alibi) slopes_ = g.to.dscore[n];
    }
    if (g.to.dadditive) by_additive_.emplace(call_.heads * call_.lane_blocks * p_.width * std::int64_t{sizeof(double)});
    if (slopes_) by_slope_.emplace(call_.heads * call_.lane_blocks * k_.lanes * std::int64_t{sizeof(double)});
    if (g.to.drelative) table_numbers_ = (2 * p_.relative_rows + 1) * (2 * p_.relative_columns + 1);
    table_heads_ = p_.relative.head != 0 ? p_.group : 1;
    query_bytes_ = k_.query_bytes(call_.shape);
    // A block's only chunk needs no memory between items.
    folds_ = (g.to.dq || slopes_ || g.to.dadditive) && call_.chunks > 1;
  }

  void operator()() {
    if (g_.to.dq || g_.to.dk || g_.to.dv || g_.to.drelative || slopes_ || g_.to.dadditive) run_waves();
    for (int n = 0; n < p_.score_count; ++n) differentiate_bias(call_, *this, n);
    if (g_.to.dsinks) {
      sum_rows(g_.to.dsinks, [this](std::int64_t n, std::int64_t row) { return call_.by_sink(n, row); });
    }
    if (slopes_) {
      sum_rows(slopes_, [this](std::int64_t n, std::int64_t row) { return slopes_of(n)[row]; });
    }
    if (g_.to.dadditive) sum_blocks();
    for (batch_sums* sums : {&dq_, &dk_, &dv_}) sums->finish(*this);
  }

 private:
  double* slopes_of(std::int64_t n) const {
    return reinterpret_cast<double*>(by_slope_->data()) + n * call_.lane_blocks * k_.lanes;
  }

  /// What a block's rows add to the gradient by each weight of additive.
  double* additive_of(std::int64_t n, std::int64_t block) const {
    return reinterpret_cast<double*>(by_additive_->data()) + (n * call_.lane_blocks + block) * p_.width;
  }

  /// Heads [first, first + heads), and how many of their chunks are in flight at a time.
  struct wave {
    std::int64_t heads, chunks;
  };
  std::int64_t partial_bytes() const { return folds_ ? call_.lane_blocks * query_bytes_ : 0; }
  std::int64_t table_bytes() const { return table_numbers_ * table_heads_ * std::int64_t{sizeof(double)}; }

  wave plan_wave() const {
    const std::int64_t bytes = std::max<std::int64_t>(1, partial_bytes() + table_bytes());
    const std::int64_t items = std::max(wave_bytes / bytes, items_per_thread * threads_asked());
    const std::int64_t chunks = std::min(call_.chunks, items);
    return {std::clamp<std::int64_t>(items / chunks, 1, std::max<std::int64_t>(1, call_.heads)), chunks};
  }

  /// Memory between the items of a wave: of every item partial results and sums of the table, of every head totals of both.
  struct shared_memory {
    char *partials, *totals, *filled;
    double *tables, *table_totals, *table;
  };

  void run_waves() {
    const wave most = plan_wave();
    const std::int64_t items = most.heads * most.chunks, blocks = call_.lane_blocks;
    const std::int64_t partials = items * partial_bytes(), totals = 2 * most.heads * partial_bytes();
    const std::int64_t of_table = g_.to.drelative && p_.relative.head != 0 ? p_.kv_heads * table_bytes() : table_bytes();
    call_scratch memory(partials + totals + (items + most.heads) * table_bytes() + of_table + (items + most.heads) * blocks);
    shared_memory all{};
    all.partials = memory.data();
    all.totals = all.partials + partials;
    all.tables = reinterpret_cast<double*>(all.totals + totals);
    all.table_totals = all.tables + items * table_numbers_ * table_heads_;
    all.table = all.table_totals + most.heads * table_numbers_ * table_heads_;
    all.filled = reinterpret_cast<char*>(all.table) + of_table;
    std::memset(all.table, 0, static_cast<std::size_t>(of_table));
    for (std::int64_t first = 0; first < call_.heads; first += most.heads) {
      const std::int64_t heads = std::min(most.heads, call_.heads - first);
      std::memset(all.filled, 0, static_cast<std::size_t>((items + most.heads) * blocks));
      std::memset(all.tables, 0, static_cast<std::size_t>((items + most.heads) * table_bytes()));
      for (std::int64_t begin = 0; begin < call_.chunks; begin += most.chunks) {
        const std::int64_t chunks = std::min(most.chunks, call_.chunks - begin);
        for_each(heads * chunks, [&](std::int64_t item) {
          const std::int64_t head = item % heads, chunk = item / heads, slot = head * most.chunks + chunk;
          one_chunk(first + head, begin + chunk, all.partials + slot * partial_bytes(),
                    all.filled + (most.heads + slot) * blocks, table_at(all.tables, slot));
        });
        if (folds_) fold_wave(first, heads, chunks, most.chunks, begin + chunks == call_.chunks, all, most.heads);
        for (std::int64_t head = 0; head < heads; ++head) {
          for (std::int64_t c = 0; c < chunks; ++c) {
            double* const own = table_at(all.tables, head * most.chunks + c);
            add_table(table_at(all.table_totals, head), own);
            std::memset(own, 0, static_cast<std::size_t>(table_bytes()));
          }
        }
      }
      for (std::int64_t head = 0; head < heads; ++head) {
        const std::int64_t place = p_.relative.head != 0 ? (first + head) % p_.kv_heads : 0;
        add_table(table_at(all.table, place), table_at(all.table_totals, head));
      }
    }
    write_table(all.table);
  }

  double* table_at(double* tables, std::int64_t n) const { return tables + n * table_numbers_ * table_heads_; }
  void add_table(double* to, const double* from) const {
    for (std::int64_t i = 0; i < table_numbers_ * table_heads_; ++i) to[i] += from[i];
  }

  void write_table(const double* table) const {
    const operand& to = g_.to.drelative;
    if (!to) return;
    const std::int64_t columns = 2 * p_.relative_columns + 1;
    for (std::int64_t head = 0; head < (p_.relative.head != 0 ? p_.heads : 1); ++head) {
      for (std::int64_t i = 0; i < table_numbers_; ++i) {
        const std::int64_t offset = head * to.head + i / columns * to.row + i % columns * to.column;
        store_number(static_cast<char*>(to.data) + offset * size_of(to.type), to.type, *table++);
      }
    }
  }

  /// A block's job with everything that is wanted of it.
  backward_job job_of(const block_place& at, double* table, char* scratch) const {
    backward_job job = call_.job_of(at, scratch);
    const auto rows = [&](const operand& x) {
      if (!x) return written_rows{};
      return written_rows{key_row(p_, x, at.sequence, at.kv_head, 0), x.row, x.column, stored_as(x.type)};
    };
    job.dk = rows(dk_.to());
    job.dv = rows(dv_.to());
    job.wants_q = static_cast<bool>(g_.to.dq);
    job.wants_slope = static_cast<bool>(slopes_);
    job.wants_additive = static_cast<bool>(g_.to.dadditive);
    job.dq_column = dq_.to().column;
    job.dq_stored = stored_as(dq_.to().type);
    job.table_row_step = 2 * p_.relative_columns + 1;
    for (int lane = 0; lane < job.lanes.count; ++lane) {
      const std::int64_t row = at.first_row + lane, in_group = row % p_.group;
      if (job.wants_q) job.dq[lane] = query_row(p_, dq_.to(), at.sequence, at.kv_head * p_.group + in_group, row / p_.group);
      job.table[lane] = table ? table + (table_heads_ > 1 ? in_group : 0) * table_numbers_ + table_numbers_ / 2 : nullptr;
    }
    return job;
  }

  void finish_block(std::int64_t n, const block_place& at, const backward_job& job, query_sums* total) const {
    k_.finish_queries(job, total, slopes_ ? slopes_of(n) + at.first_row : nullptr,
                      by_additive_ ? additive_of(n, at.first_row / k_.lanes) : nullptr);
  }

  /// The gradients of a chunk's keys and values, and of each block of queries the partial ones, which `filled` says there are.
  void one_chunk(std::int64_t n, std::int64_t chunk, char* partials, char* filled, double* table) {
    const std::int64_t begin = chunk * k_.chunk_keys, keys_here = attend::detail::keys_of(p_, n / p_.kv_heads);
    const std::int64_t count = std::clamp<std::int64_t>(keys_here - begin, 0, k_.chunk_keys);
    const std::int64_t key_bytes = k_.key_bytes(call_.shape);
    char* const sums = thread_scratch(3 * key_bytes + query_bytes_ + k_.scratch_bytes(call_.shape));
    char* const totals = sums + key_bytes;
    char* const queries = totals + 2 * key_bytes;
    char* const scratch = queries + query_bytes_;
    const backward_job none = job_of({n / p_.kv_heads, n % p_.kv_heads, 0, 0}, nullptr, scratch);
    // 0 * NaN and 0 * Inf are NaN: where a sum is not finite, an excluded pair may have leaked in, so the chunk is computed again with
    // these left out. What was allowed comes out as before.
    for (const bool careful : {false, true}) {
      bool finite = true, settled = false;
      int added = 0;
      k_.clear(none, count, sums);
      for (std::int64_t block = 0; block < call_.lane_blocks && call_.place_of(n, block).rows > 0; ++block) {
        if (stopped()) return;
        const key_range keys = call_.keys_of(n, block, chunk);
        if (keys.first == keys.last && call_.chunks > 1) continue;
        const block_place at = call_.place_of(n, block);
        backward_job job = job_of(at, table_numbers_ > 0 && !careful ? table : nullptr, scratch);
        job.careful = careful;
        char* const own = folds_ ? partials + block * query_bytes_ : queries;
        finite &= k_.block(job, keys.first, keys.last, sums, own);
        if (folds_)
          filled[block] = 1;
        else if (call_.chunks == 1)
          finish_block(n, at, job, own);
        if (++added % blocks_in_sum != 0) continue;
        k_.settle(job, count, !settled, sums, totals);
        settled = true;
      }
      if (settled) k_.settle(none, count, false, sums, totals);
      char* const result = settled ? totals : sums;
      finite &= k_.finite(none, count, result);
      if (careful || finite) {
        k_.finish_keys(none, begin, count, result);
        return;
      }
    }
  }

  /// Folds the partial results of a wave, and writes rows of dq after the last.
  void fold_wave(std::int64_t first, std::int64_t heads, std::int64_t chunks, std::int64_t slots, bool last,
                 const shared_memory& all, std::int64_t most_heads) {
    const std::int64_t blocks = call_.lane_blocks;
    for_each(heads * blocks, [&](std::int64_t item) {
      const std::int64_t head = item / blocks, block = item % blocks;
      const block_place at = call_.place_of(first + head, block);
      if (at.rows == 0) return;
      const backward_job job = job_of(at, nullptr, thread_scratch(k_.scratch_bytes(call_.shape)));
      char* const total = all.totals + 2 * (head * blocks + block) * query_bytes_;
      char& any = all.filled[head * blocks + block];
      for (std::int64_t c = 0; c < chunks; ++c) {
        const std::int64_t slot = head * slots + c;
        char& filled = all.filled[(most_heads + slot) * blocks + block];
        if (!filled) continue;
        k_.fold(job, !any, total, all.partials + slot * partial_bytes() + block * query_bytes_);
        any = 1;
        filled = 0;
      }
      if (!last) return;
      if (!any) k_.block(job, 0, 0, nullptr, total);
      finish_block(first + head, at, job, total);
    });
  }

  /// One number per query head: sums over sequences and queries, in order.
  template <class Number>
  void sum_rows(const operand& to, const Number& number) {
    for_each(p_.heads, [&](std::int64_t head) {
      double sum = 0;
      for (std::int64_t b = 0; b < p_.batch.count; ++b) {
        for (std::int64_t i = 0; i < queries_of(p_, b); ++i)
          sum += number(b * p_.kv_heads + head / p_.group, i * p_.group + head % p_.group);
      }
      store_number(static_cast<char*>(to.data) + head * to.head * size_of(to.type), to.type, sum);
    });
  }

  /// One number per column: sums over blocks, in order.
  void sum_blocks() {
    const operand& to = g_.to.dadditive;
    for_each(p_.width, [&](std::int64_t column) {
      double sum = 0;
      for (std::int64_t n = 0; n < call_.heads; ++n) {
        for (std::int64_t block = 0; block < call_.lane_blocks && call_.place_of(n, block).rows > 0; ++block)
          sum += additive_of(n, block)[column];
      }
      store_number(static_cast<char*>(to.data) + column * to.column * size_of(to.type), to.type, sum);
    });
  }

  const gradient_problem& g_;
  const problem& p_;
  const backward_call call_;
  const backward_kernel& k_;
  batch_sums dq_, dk_, dv_;
  operand slopes_;  // gradient by slopes of ALiBi
  std::optional<call_scratch> by_slope_, by_additive_;
  std::int64_t table_numbers_ = 0, table_heads_ = 1, query_bytes_ = 0;
  bool folds_ = false;
};

}  // namespace

void run_backward(const gradient_problem& g, const options& how) { runner(g, how)(); }

}  // namespace attend::detail

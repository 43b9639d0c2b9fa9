// Work: a block is (sequence, key/value head, rows); it visits its chunks of keys in order and folds their partial results from
// left to right. Where there are few blocks, a chunk is a work item of its own and the same folds happen afterwards, wave by
// wave: whoever computes a chunk, the bits are the same.
#include "run.hpp"

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <thread>
#include <utility>

#include "attend/error.hpp"
#include "attend/executor.hpp"
#include "kernels/mask_intervals.hpp"
#include "scratch.hpp"

namespace attend::detail {
namespace {

// Below this many multiply-adds a call costs less than waking a thread.
constexpr double worth_a_thread = 1e6;

key_run strided_run(const key_source& source, std::int64_t key) {
  const auto at = [key](const void* base, std::int64_t step, std::int64_t bytes) {
    return static_cast<const char*>(base) + key * step * bytes;
  };
  return {at(source.k, source.k_step, source.element_bytes), at(source.v, source.v_step, source.element_bytes), source.k_step,
          source.v_step, source.count - key};
}

/// Results do not depend on what rounding or flushing mode the calling thread has set.
class default_arithmetic {
 public:
  default_arithmetic() noexcept {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~default_arithmetic() { std::fesetenv(&saved_); }
  default_arithmetic(const default_arithmetic&) = delete;
  default_arithmetic& operator=(const default_arithmetic&) = delete;

 private:
  std::fenv_t saved_;
};

/// A power of two that is at most 1/N for every row of a sequence, for the mean; see normalizer.inl.
double weight_factor(const problem& p, std::int64_t length) noexcept {
  return p.normalizer == normalizer::mean && length > 0 ? std::ldexp(1.0, -1 - std::ilogb(static_cast<double>(length))) : 1;
}

#define ATTEND_COMPATIBILITY(name) \
  static_assert(static_cast<int>(compatibility_index::name) == static_cast<int>(compatibility_kind::name));
#define ATTEND_NORMALIZER(name) static_assert(static_cast<int>(normalizer_index::name) == static_cast<int>(normalizer::name));
#include "kernels/functions.def"

class runner {
 public:
  runner(const problem& p, const route& r, const options& how) : p_(p), r_(r), how_(how), caller_(std::this_thread::get_id()) {}

  void operator()() {
    if (r_.blocks == 0) return;
    if (r_.wave == 0) {
      for_each(r_.blocks, [this](std::int64_t block) { whole_block(block); });
    } else {
      split_keys();
    }
  }

 private:
  template <class Body>
  void for_each(std::int64_t count, Body body) {
    const std::function<void(std::int64_t)> item = [this, &body](std::int64_t i) noexcept {
      if (stopped()) return;
      const default_arithmetic arithmetic;
      try {
        body(i);
      } catch (const std::bad_alloc&) {
        out_of_memory_.store(true, std::memory_order_relaxed);
        stop_.store(true, std::memory_order_relaxed);
      }
    };
    const double products = static_cast<double>(p_.batch.count * p_.heads) * static_cast<double>(p_.queries) *
                            static_cast<double>(p_.keys) * static_cast<double>(p_.width + p_.value_width);
    const int threads = how_.threads > 0 ? how_.threads : num_threads();
    if (!how_.executor && (threads == 1 || count == 1 || products < worth_a_thread)) {
      for (std::int64_t i = 0; i < count; ++i) item(i);
    } else {
      (how_.executor ? *how_.executor : default_executor()).parallel_for(count, threads, item);
    }
    if (out_of_memory_.load()) throw std::bad_alloc();
    if (stop_.load()) throw interrupted();
  }

  /// Whether the call is over early. On the calling thread, asks the caller every few milliseconds.
  bool stopped() noexcept {
    if (how_.interrupt.requested && std::this_thread::get_id() == caller_ && !stop_.load(std::memory_order_relaxed)) {
      const auto now = std::chrono::steady_clock::now();
      if (now - asked_ >= std::chrono::milliseconds(5)) {
        asked_ = now;
        if (how_.interrupt.requested(how_.interrupt.context)) stop_.store(true, std::memory_order_relaxed);
      }
    }
    return stop_.load(std::memory_order_relaxed);
  }

  /// Everything of a block but its queries, which `kernel::load` brings into scratch for those who compute scores.
  block_job job_of(const block_place& at, const scratch_shape& shape, void* scratch) const {
    block_job job;
    fill_intervals(p_, at, job.lanes);
    const batch_shape& batch = p_.batch;
    const std::int64_t b = at.sequence;
    const std::int64_t head = at.kv_head * p_.group;
    const char* const q = static_cast<char*>(row_pointer(batch, p_.q, b, head, 0));
    char* const out = p_.out ? static_cast<char*>(row_pointer(batch, p_.out, b, head, 0)) : nullptr;
    char* const weights = p_.weights ? static_cast<char*>(row_pointer(batch, p_.weights, b, head, 0)) : nullptr;
    const char* const mask = p_.mask ? static_cast<char*>(row_pointer(batch, p_.mask, b, head, 0)) : nullptr;
    const char* const bias = p_.bias ? static_cast<char*>(row_pointer(batch, p_.bias, b, head, 0)) : nullptr;
    const char* const relative = p_.relative ? static_cast<char*>(row_pointer(batch, p_.relative, b, head, p_.relative_rows)) +
                                                   p_.relative_columns * p_.relative.column * size_of(p_.relative.type)
                                             : nullptr;
    const auto step = [](const operand& x, std::int64_t in_group, std::int64_t query) {
      return (in_group * x.head + query * x.row) * size_of(x.type);
    };
    for (int lane = 0; lane < job.lanes.count; ++lane) {
      const std::int64_t row = at.first_row + lane, in_group = row % p_.group, query = row / p_.group;
      job.lanes.q[lane] = q + step(p_.q, in_group, query);
      job.lanes.out[lane] = out ? out + step(p_.out, in_group, query) : nullptr;
      job.lanes.weights[lane] = weights ? weights + step(p_.weights, in_group, query) : nullptr;
      job.lanes.mask[lane] = mask ? reinterpret_cast<const unsigned char*>(mask + step(p_.mask, in_group, query)) : nullptr;
      job.lanes.bias[lane] = bias ? bias + step(p_.bias, in_group, query) : nullptr;
      job.lanes.relative[lane] = relative ? relative + step(p_.relative, in_group, 0) : nullptr;
    }
    job.keys = {strided_run,
                row_pointer(batch, p_.k, b, at.kv_head, 0),
                row_pointer(batch, p_.v, b, at.kv_head, 0),
                p_.k.row,
                p_.v.row,
                p_.k.column,
                p_.v.column,
                key_length(p_, b),
                size_of(p_.type)};
    job.width = p_.width;
    job.value_width = p_.value_width;
    job.q_column = p_.q.column;
    job.out_column = p_.out.column;
    job.mask_step = p_.mask.column;
    job.bias_step = p_.bias.column;
    job.weights_step = p_.weights.column;
    job.has_out = static_cast<bool>(p_.out);
    job.has_mask = static_cast<bool>(p_.mask);
    job.has_bias = static_cast<bool>(p_.bias);
    job.bias_is_f32 = p_.bias.type == dtype::f32;
    job.compatibility = static_cast<compatibility_index>(p_.compatibility);
    job.normalizer = static_cast<normalizer_index>(p_.normalizer);
    job.additive = p_.additive_weights.data;
    job.additive_step = p_.additive_weights.column;
    job.additive_is_f32 = p_.additive_weights.type == dtype::f32;
    job.has_relative = static_cast<bool>(p_.relative);
    job.relative_is_f32 = p_.relative.type == dtype::f32;
    job.relative_rows = p_.relative_rows;
    job.relative_columns = p_.relative_columns;
    job.relative_row_step = p_.relative.row;
    job.relative_column_step = p_.relative.column;
    job.pack_k = shape.pack_k;
    job.pack_v = shape.pack_v;
    job.query_scale = r_.scales.query;
    job.key_scale = r_.scales.key;
    job.score_scale = r_.scales.score;
    job.weight_factor = weight_factor(p_, job.keys.count);
    job.scratch = scratch;
    return job;
  }

  /// Keys of chunk c that this block has to look at; empty where every pair in it is excluded.
  static std::pair<std::int64_t, std::int64_t> chunk_keys(const kernel& k, const lane_bounds& bounds, std::int64_t c) noexcept {
    const std::int64_t begin = c * k.chunk_keys, end = std::min(begin + k.chunk_keys, last_key(bounds));
    if (begin >= end || classify(bounds, begin, end) == tile_class::skip) return {0, 0};
    return {begin, end};
  }

  /// A partial result becomes a total: nothing was lost yet.
  void start_total(char* total) const {
    std::memset(total + r_.partial_bytes, 0, static_cast<std::size_t>(r_.total_bytes - r_.partial_bytes));
  }

  void whole_block(std::int64_t block) {
    const kernel& k = *r_.choice.entry;
    const block_place at = place_of(p_, r_, block);
    char* const memory = thread_scratch(r_.scratch_bytes + r_.total_bytes + r_.partial_bytes);
    char* const total = memory + r_.scratch_bytes;
    char* const next = total + r_.total_bytes;
    const block_job job = job_of(at, r_.shape, memory);
    k.load(job);
    const lane_bounds bounds = bounds_of(job.lanes);
    const std::int64_t first = first_key(bounds) / k.chunk_keys, chunks = (last_key(bounds) + k.chunk_keys - 1) / k.chunk_keys;
    bool any = false;
    for (std::int64_t c = first; c < chunks; ++c) {
      const auto [begin, end] = chunk_keys(k, bounds, c);
      if (begin == end) continue;
      if (stopped()) return;
      k.chunk(job, begin, end, any ? next : total);
      if (any)
        k.fold(job, total, next);
      else
        start_total(total);
      any = true;
    }
    if (!any) k.chunk(job, 0, 0, total);
    finish(job, at, total);
  }

  void split_keys() {
    const kernel& k = *r_.choice.entry;
    const std::int64_t slots = r_.wave + 1;  // a block's partials of one wave, and its total
    const std::int64_t block_bytes = r_.wave * r_.partial_bytes + r_.total_bytes;
    call_scratch shared(r_.blocks * (block_bytes + slots));
    char* const partials = shared.data();
    char* const filled = partials + r_.blocks * block_bytes;  // one byte per slot
    std::memset(filled, 0, static_cast<std::size_t>(r_.blocks * slots));
    const auto slot = [&](std::int64_t block, std::int64_t n) { return partials + block * block_bytes + n * r_.partial_bytes; };

    for (std::int64_t first = 0; first < r_.chunks; first += r_.wave) {
      const std::int64_t count = std::min(r_.wave, r_.chunks - first);
      for_each(r_.blocks * count, [&](std::int64_t item) {
        const std::int64_t block = item / count, n = item % count;
        const block_job job = job_of(place_of(p_, r_, block), r_.shape, thread_scratch(r_.scratch_bytes));
        const auto [begin, end] = chunk_keys(k, bounds_of(job.lanes), first + n);
        filled[block * slots + n] = begin < end;
        if (begin == end) return;
        k.load(job);
        k.chunk(job, begin, end, slot(block, n));
      });
      const bool last = first + count == r_.chunks;
      for_each(r_.blocks, [&](std::int64_t block) {
        const block_place at = place_of(p_, r_, block);
        const block_job job = job_of(at, r_.shape, thread_scratch(r_.scratch_bytes));
        char& any = filled[block * slots + r_.wave];
        char* const total = slot(block, r_.wave);
        for (std::int64_t n = 0; n < count; ++n) {
          if (!filled[block * slots + n]) continue;
          if (any) {
            k.fold(job, total, slot(block, n));
          } else {
            std::memcpy(total, slot(block, n), static_cast<std::size_t>(r_.partial_bytes));
            start_total(total);
          }
          any = 1;
        }
        if (!last) return;
        if (!any) k.chunk(job, 0, 0, total);
        finish(job, at, total);
      });
    }
  }

  /// Rows of out, lse and weights from a block's total.
  void finish(const block_job& job, const block_place& at, const void* total) {
    double maximum[max_lanes], denominator[max_lanes];
    r_.choice.entry->finish(job, total, maximum, denominator);
    if (p_.lse) {
      for (int lane = 0; lane < job.lanes.count; ++lane) {
        const std::int64_t row = at.first_row + lane;
        void* const to = row_pointer(p_.batch, p_.lse, at.sequence, at.kv_head * p_.group + row % p_.group, row / p_.group);
        const double lse =
            denominator[lane] == 0 ? -std::numeric_limits<double>::infinity() : maximum[lane] + std::log(denominator[lane]);
        const float single = static_cast<float>(lse);
        std::memcpy(to, p_.type == dtype::f32 ? static_cast<const void*>(&single) : &lse,
                    static_cast<std::size_t>(size_of(p_.type)));
      }
    }
    if (p_.weights) weights(job, at, maximum, denominator);
  }

  void weights(const block_job& summed, const block_place& at, const double* maximum, const double* denominator) {
    const kernel& k = *r_.choice.entry;
    scratch_shape shape = r_.shape;
    shape.pack_v = false;  // values are not needed again
    const std::int64_t last = last_key(bounds_of(summed.lanes));
    // The sums are no longer needed, and with them what this thread's scratch held.
    const block_job job = job_of(at, shape, thread_scratch(k.scratch_bytes(shape)));
    k.load(job);
    for (std::int64_t begin = 0; begin < last; begin += k.chunk_keys) {
      if (stopped()) return;
      k.weights(job, begin, std::min(begin + k.chunk_keys, last), maximum, denominator);
    }
    for (int lane = 0; lane < job.lanes.count; ++lane) {  // keys that no row of the block sees are not even read
      for (std::int64_t j = last; j < p_.keys; ++j) {
        char* const to = static_cast<char*>(job.lanes.weights[lane]) + j * p_.weights.column * size_of(p_.type);
        std::memset(to, 0, static_cast<std::size_t>(size_of(p_.type)));
      }
    }
  }

  const problem& p_;
  const route& r_;
  const options& how_;
  std::atomic<bool> stop_{false}, out_of_memory_{false};
  const std::thread::id caller_;
  std::chrono::steady_clock::time_point asked_ = std::chrono::steady_clock::now();
};

}  // namespace

void run(const problem& p, const route& r, const options& how) { runner(p, r, how)(); }

}  // namespace attend::detail

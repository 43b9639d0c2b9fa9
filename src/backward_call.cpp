#include "backward_call.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/mask_intervals.hpp"
#include "route.hpp"

namespace attend::detail {
namespace {

const backward_kernel& kernel_for(const problem& p) {
  return *choose_backward_kernel({operation::backward, p.type, p.type, accumulator_of(p.type)}).entry;
}

scratch_shape shape_for(const problem& p, const factors& scales) noexcept {
  const bool converts = p.type != accumulator_of(p.type), reads_keys = p.compatibility != compatibility_kind::none;
  scratch_shape shape{};
  shape.width = p.width;
  shape.value_width = p.value_width;
  shape.pack_k = p.compatibility == compatibility_kind::cosine || scales.key != 1 ||
                 (reads_keys && (converts || !readable_in_place(p.k, p.width)));
  shape.pack_v = converts || !readable_in_place(p.v, p.value_width);
  shape.has_relative = static_cast<bool>(p.relative);
  shape.additive = p.compatibility == compatibility_kind::additive;
  shape.dropout = p.dropout_p > 0;
  for (int i = 0; i < p.score_count; ++i) {
    shape.biases += p.score[i].what == score_function::kind::bias;
    shape.caps += p.score[i].what == score_function::kind::soft_cap;
  }
  return shape;
}

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) noexcept { return (a + b - 1) / b; }

/// sum(dout * out) of a row. Where out is 0, as it is in an empty row, dout may hold anything. Four sums, so that none waits for the last.
double product_of_rows(const void* dout, std::int64_t dout_step, const void* out, std::int64_t out_step, std::int64_t columns,
                       dtype type) noexcept {
  return with_type(type, [&]<class T>(T) {
    const auto at = [](const void* row, std::int64_t offset) {
      return static_cast<double>(load<T>(static_cast<const char*>(row) + offset * std::int64_t{sizeof(T)}));
    };
    const auto term = [&](std::int64_t c) {
      const double y = at(out, c * out_step);
      return y == 0 ? 0 : y * at(dout, c * dout_step);
    };
    double even = 0, odd = 0;
    std::int64_t c = 0;
    for (; c + 2 <= columns; c += 2) even += term(c), odd += term(c + 1);
    return (c < columns ? even + term(c) : even) + odd;
  });
}

}  // namespace

backward_call::backward_call(const gradient_problem& problem, work_items& items)
    : g(problem),
      p(problem.call),
      kernel(kernel_for(p)),
      scales(factors_of(p)),
      shape(shape_for(p, scales)),
      heads(p.batch.count * p.kv_heads),
      lane_blocks(p.heads == 0 ? 0 : ceil_divide(p.queries * p.group, kernel.lanes)),
      chunks(std::max<std::int64_t>(1, ceil_divide(p.keys, kernel.chunk_keys))),
      tables_(p, mask_cut{kernel.lanes, kernel.tile_keys, lane_blocks, kernel.mask_class},
              [&items](std::int64_t count, const auto& item) { items.for_each(count, item); }),
      memory_(heads * lane_blocks *
              (kernel.lanes * static_cast<std::int64_t>(sizeof(row_terms)) + static_cast<std::int64_t>(sizeof(key_range)))) {
  items.for_each(heads * lane_blocks, [this, &items](std::int64_t item) {
    const std::int64_t n = item / lane_blocks, block = item % lane_blocks;
    const block_place at = place_of(n, block);
    lane_map lanes;
    fill_masks(p, tables_, at, lanes);
    const lane_bounds bounds = bounds_of(lanes);
    ranges_of(n)[block] = {first_key(bounds), last_key(bounds)};
    row_terms* const rows = rows_of(n) + at.first_row;
    for (int lane = 0; lane < lanes.count; ++lane) rows[lane] = terms_of(at, lane);
    if (divides(p.normalizer) && p.normalizer != normalizer::softmax) find_sums(at, ranges_of(n)[block], rows, items);
  });
}

backward_call::row_terms* backward_call::rows_of(std::int64_t n) const noexcept {
  return reinterpret_cast<row_terms*>(memory_.data()) + n * lane_blocks * kernel.lanes;
}

key_range* backward_call::ranges_of(std::int64_t n) const noexcept {
  return reinterpret_cast<key_range*>(rows_of(heads)) + n * lane_blocks;
}

backward_call::row_terms backward_call::terms_of(const block_place& at, int lane) const noexcept {
  const std::int64_t row = at.first_row + lane, query = row / p.group, head = at.kv_head * p.group + row % p.group;
  const auto number = [&](const operand& x) { return load_number(query_row(p, x, at.sequence, head, query), x.type); };
  const bool softmax = p.normalizer == normalizer::softmax;
  row_terms terms{softmax ? number(g.lse) : 0, 1, 0, 0};
  if (are_shares(p.normalizer)) {
    terms.mean = product_of_rows(query_row(p, g.dout, at.sequence, head, query), g.dout.column,
                                 query_row(p, g.out, at.sequence, head, query), g.out.column, p.value_width, p.type);
  }
  if (g.dlse) terms.mean -= number(g.dlse);
  if (g.to.dsinks) {
    const double sink = number_at(p.sinks, head * p.sinks.head);
    if (sink > -std::numeric_limits<double>::infinity()) terms.by_sink = -std::exp(sink - terms.base) * terms.mean;
  }
  return terms;
}

void backward_call::find_sums(const block_place& at, key_range seen, row_terms* rows, work_items& items) const {
  const struct kernel& k = *kernel.forward;
  scratch_shape weights = shape;  // of scores alone
  weights.value_width = 0;
  weights.pack_v = false;
  const std::int64_t partial_bytes = k.partial_bytes(weights), total_bytes = k.total_bytes(weights);
  char* const total = thread_scratch(total_bytes + partial_bytes + k.scratch_bytes(weights));
  char* const next = total + total_bytes;
  block_job job = make_job(p, scales, tables_, at, weights, next + partial_bytes);
  job.value_width = 0;
  job.dropout.given = false;
  k.load(job);
  const bool empty = seen.first >= seen.last;  // of rows that see no key, these are bounds of nothing
  const std::int64_t first = empty ? 0 : seen.first / k.chunk_keys * k.chunk_keys, last = empty ? 0 : seen.last;
  k.chunk(job, first, std::min(first + k.chunk_keys, last), total);
  std::memset(total + partial_bytes, 0, static_cast<std::size_t>(total_bytes - partial_bytes));
  for (std::int64_t begin = first + k.chunk_keys; begin < last && !items.stopped(); begin += k.chunk_keys) {
    k.chunk(job, begin, std::min(begin + k.chunk_keys, last), next);
    k.fold(job, total, next);
  }
  double maximum[max_lanes], denominator[max_lanes];
  k.totals(job, total, maximum, denominator);
  for (int lane = 0; lane < job.lanes.count; ++lane) {
    rows[lane].base = maximum[lane];
    rows[lane].factor = denominator[lane] == 0 ? 0 : 1 / denominator[lane];
  }
}

block_place backward_call::place_of(std::int64_t n, std::int64_t block) const noexcept {
  const std::int64_t first = block * kernel.lanes;
  const std::int64_t rows = queries_of(p, n / p.kv_heads) * p.group;
  return {n / p.kv_heads, n % p.kv_heads, first, std::clamp<std::int64_t>(rows - first, 0, kernel.lanes)};
}

backward_job backward_call::job_of(const block_place& at, void* scratch) const {
  backward_job job;
  static_cast<block_job&>(job) = make_job(p, scales, tables_, at, shape, scratch);
  const row_terms* const rows = rows_of(at.sequence * p.kv_heads + at.kv_head) + at.first_row;
  for (int lane = 0; lane < job.lanes.count; ++lane) {
    const std::int64_t row = at.first_row + lane;
    job.dout[lane] = query_row(p, g.dout, at.sequence, at.kv_head * p.group + row % p.group, row / p.group);
    job.base[lane] = rows[lane].base;
    job.factor[lane] = rows[lane].factor;
    job.mean[lane] = rows[lane].mean;
  }
  job.dout_column = g.dout.column;
  job.kept_factor = p.dropout_p < 1 ? 1 / (1 - p.dropout_p) : 0;
  job.caps = shape.caps;
  job.careful = job.wants_q = job.wants_slope = job.wants_additive = false;
  return job;
}

key_range backward_call::keys_of(std::int64_t n, std::int64_t block, std::int64_t c) const noexcept {
  const key_range seen = ranges_of(n)[block];
  const std::int64_t begin = c * kernel.chunk_keys, end = std::min(begin + kernel.chunk_keys, seen.last);
  return begin < end && seen.first < end ? key_range{begin, end} : key_range{begin, begin};
}

}  // namespace attend::detail

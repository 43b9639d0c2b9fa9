#include "job.hpp"

#include <algorithm>
#include <cmath>

namespace attend::detail {
namespace {

key_run strided_run(const key_source& source, std::int64_t key) {
  const auto at = [key](const void* base, std::int64_t step, std::int64_t bytes) {
    return static_cast<const char*>(base) + key * step * bytes;
  };
  return {at(source.k, source.k_step, source.k_bytes), at(source.v, source.v_step, source.v_bytes), source.k_step,
          source.v_step, source.count - key};
}

key_run paged_run(const key_source& source, std::int64_t key) {
  const std::int64_t page = source.pages ? source.pages[key / source.page_keys] : 0,
                     row = (key + source.shift) % source.page_keys;
  const auto at = [&](const void* base, std::int64_t page_step, std::int64_t step, std::int64_t bytes) {
    return static_cast<const char*>(base) + (page * page_step + row * step) * bytes;
  };
  return {at(source.k, source.k_page, source.k_step, source.k_bytes),
          at(source.v, source.v_page, source.v_step, source.v_bytes), source.k_step, source.v_step,
          std::min(source.page_keys - row, source.count - key)};
}

/// Keys and values of a sequence and head.
key_source keys_of_job(const problem& p, std::int64_t b, std::int64_t head) noexcept {
  key_source keys{};
  const std::int64_t first = first_row(p.key_starts, b);
  keys.run = p.page_keys > 0 ? paged_run : strided_run;
  keys.k = row_pointer(p.batch, p.k, b, head, first);
  keys.v = row_pointer(p.batch, p.v, b, head, first);
  keys.k_step = p.k.row;
  keys.v_step = p.v.row;
  keys.k_column = p.k.column;
  keys.v_column = p.v.column;
  keys.count = key_length(p, b);
  keys.k_bytes = size_of(p.k.type);
  keys.v_bytes = size_of(p.v.type);
  keys.page_keys = p.page_keys;
  keys.shift = p.ring_shifts ? p.ring_shifts[b] : 0;
  keys.pages = p.page_tables ? p.page_tables[b] : nullptr;
  keys.k_page = p.k.page;
  keys.v_page = p.v.page;
  return keys;
}

element stored_rows(const operand& x) noexcept {
  switch (x.codes) {
    case quantization::int8: return element::int8;
    case quantization::int4: return element::int4;
    default: return stored_as(x.type);
  }
}

/// A power of two that is at most 1/N for every row of a sequence, for the mean; see normalizer.inl.
double weight_factor(const problem& p, std::int64_t length) noexcept {
  return p.normalizer == normalizer::mean && length > 0 ? std::ldexp(1.0, -1 - std::ilogb(static_cast<double>(length))) : 1;
}

#define ATTEND_COMPATIBILITY(name) \
  static_assert(static_cast<int>(compatibility_index::name) == static_cast<int>(compatibility_kind::name));
#define ATTEND_NORMALIZER(name) static_assert(static_cast<int>(normalizer_index::name) == static_cast<int>(normalizer::name));
#include "kernels/functions.def"
static_assert(max_steps >= max_score_functions && max_biases > score_list::max_size);
static_assert(static_cast<int>(score_kind::soft_cap) == static_cast<int>(score_function::kind::soft_cap) &&
              static_cast<int>(score_kind::bias) == static_cast<int>(score_function::kind::bias) &&
              static_cast<int>(score_kind::relative) == static_cast<int>(score_function::kind::relative) &&
              static_cast<int>(score_kind::alibi) == static_cast<int>(score_function::kind::alibi));

/// Rows of q, out, masks and tables, and what else a lane is known by.
void fill_rows(const problem& p, const block_place& at, lane_map& lanes) {
  const std::int64_t head = at.kv_head * p.group;
  const auto first = [&](const operand& x) { return x ? static_cast<char*>(query_row(p, x, at.sequence, head, 0)) : nullptr; };
  const auto step = [](const operand& x, std::int64_t in_group, std::int64_t query) {
    return (in_group * x.head + query * x.row) * size_of(x.type);
  };
  const char* const q = first(p.q);
  char* const out = first(p.out);
  for (int lane = 0; lane < lanes.count; ++lane) {
    const std::int64_t row = at.first_row + lane, in_group = row % p.group, query = row / p.group;
    lanes.q[lane] = q + step(p.q, in_group, query);
    lanes.out[lane] = out ? out + step(p.out, in_group, query) : nullptr;
  }
  if (p.mask) fill_mask_rows(p, at, lanes);
  if (p.relative) {
    const char* const table = static_cast<char*>(row_pointer(p.batch, p.relative, at.sequence, head, p.relative_rows)) +
                              p.relative_columns * p.relative.column * size_of(p.relative.type);
    for (int lane = 0; lane < lanes.count; ++lane)
      lanes.relative[lane] = table + step(p.relative, (at.first_row + lane) % p.group, 0);
  }
  for (int lane = 0; p.dropout_p > 0 && lane < lanes.count; ++lane) {
    lanes.query[lane] = static_cast<std::uint32_t>((at.first_row + lane) / p.group);
    lanes.head[lane] = static_cast<std::uint32_t>(head + (at.first_row + lane) % p.group);
  }
}

}  // namespace

element stored_as(dtype type) noexcept {
  switch (type) {
    case dtype::f64: return element::f64;
    case dtype::f16: return element::f16;
    case dtype::bf16: return element::bf16;
    default: return element::f32;
  }
}

void fill_steps(const problem& p, const block_place& at, int count, block_job& job) {
  const std::int64_t head = at.kv_head * p.group;
  job.step_count = count;
  job.bias_count = 0;
  int adding = 0;
  for (int i = 0; i < count; ++i) {
    const score_function& f = p.score[i];
    score_step& step = job.steps[i];
    const bool adds = f.what == score_function::kind::bias || f.what == score_function::kind::relative;
    step = {static_cast<score_kind>(f.what), f.cap, 0, 0, stored_as(f.numbers.type), adds};
    if (f.what == score_function::kind::bias) {
      step.number = job.bias_count++;
      step.step = f.numbers.column;
      const char* const first = static_cast<char*>(row_pointer(p.batch, f.numbers, at.sequence, head, 0));
      for (int lane = 0; lane < job.lanes.count; ++lane) {
        const std::int64_t row = at.first_row + lane;
        job.lanes.bias[step.number][lane] =
            first + (row % p.group * f.numbers.head + row / p.group * f.numbers.row) * size_of(f.numbers.type);
      }
    } else if (f.what == score_function::kind::alibi) {
      for (int lane = 0; lane < job.lanes.count; ++lane)
        job.lanes.slope[lane] = alibi_slope(p, f, head + (at.first_row + lane) % p.group);
    }
    adding += adds;
  }
  job.excludes_late = adding > 1 || (adding == 1 && !job.steps[count - 1].adds);
}

memory_ahead beginning_of(const problem& p, const block_place& at, const block_place& next) noexcept {
  constexpr std::int64_t most_lines = 1024;  // per run: what a second-level cache spares
  memory_ahead ahead;
  const auto add = [&](const operand& x, const void* first, std::int64_t rows, std::int64_t width) {
    const std::int64_t columns = x.codes == quantization::none ? width : quantized_row_bytes(bits_of(x.codes), width);
    if (!x || x.row != columns || x.column != 1) return;
    const std::int64_t lines = rows * columns * size_of(x.type) / memory_ahead::line;
    if (lines > 0) ahead.runs[ahead.count++] = {static_cast<const char*>(first), std::min(lines, most_lines)};
  };
  const bool other_head = at.sequence != next.sequence || at.kv_head != next.kv_head;
  if (p.group == 1) {
    add(p.q, query_row(p, p.q, next.sequence, next.kv_head, next.first_row), next.rows, p.width);
  }
  const std::int64_t length = other_head ? key_length(p, next.sequence) : 0;
  if (length > 0) {
    const std::int64_t keys = p.page_keys > 0 ? std::min(length, p.page_keys) : length;  // of the first page
    const void* const first = key_row(p, p.k, next.sequence, next.kv_head, 0);
    ahead.keys = static_cast<const char*>(first);
    add(p.k, first, keys, p.width);
    add(p.v, key_row(p, p.v, next.sequence, next.kv_head, 0), keys, p.value_width);
  }
  if (p.group == 1 && p.out)
    add(p.out, query_row(p, p.out, next.sequence, next.kv_head, next.first_row), next.rows, p.value_width);
  return ahead;
}

void append_lanes(block_job& to, const block_job& from) noexcept {
  lane_map& a = to.lanes;
  const lane_map& b = from.lanes;
  const auto append = [&](auto& own, const auto& others) { std::copy_n(others, b.count, own + a.count); };
  append(a.q, b.q);
  append(a.out, b.out);
  append(a.begin, b.begin);
  append(a.end, b.end);
  append(a.prefix_end, b.prefix_end);
  for (int n = 0; n < to.bias_count; ++n) append(a.bias[n], b.bias[n]);
  append(a.relative, b.relative);
  append(a.position, b.position);
  append(a.slope, b.slope);
  append(a.grid.row, b.grid.row);
  append(a.grid.column, b.grid.column);
  a.count += b.count;
}

block_job make_job(const problem& p, const factors& scales, const mask_tables& tables, const block_place& at,
                   const scratch_shape& shape, void* scratch) {
  block_job job;
  job.stored = stored_as(p.type);
  job.k_stored = stored_rows(p.k);
  job.v_stored = stored_rows(p.v);
  fill_masks(p, tables, at, job.lanes);
  fill_rows(p, at, job.lanes);
  const std::int64_t b = at.sequence;
  job.keys = keys_of_job(p, b, at.kv_head);
  job.width = p.width;
  job.value_width = p.value_width;
  job.q_column = p.q.column;
  job.out_column = p.out.column;
  job.mask_step = p.mask.column;
  job.segments = nullptr;
  job.segment_step = p.key_segments.row;
  if (p.key_segments) {
    const std::int64_t first = batch_offset(p.batch, b, p.key_segments.batch) + first_row(p.key_starts, b) * job.segment_step;
    job.segments = static_cast<const std::int64_t*>(p.key_segments.data) + first;
  }
  job.has_mask = static_cast<bool>(p.mask);
  job.compatibility = static_cast<compatibility_index>(p.compatibility);
  job.normalizer = static_cast<normalizer_index>(p.normalizer);
  job.additive = p.additive_weights.data;
  job.additive_step = p.additive_weights.column;
  job.additive_stored = stored_as(p.additive_weights.type);
  job.has_relative = static_cast<bool>(p.relative);
  job.relative_stored = stored_as(p.relative.type);
  job.relative_rows = p.relative_rows;
  job.relative_columns = p.relative_columns;
  job.relative_row_step = p.relative.row;
  job.relative_column_step = p.relative.column;
  job.pack_k = shape.pack_k;
  job.pack_v = shape.pack_v;
  job.query_scale = scales.query;
  job.key_scale = scales.key;
  job.score_scale = scales.score;
  job.weight_factor = weight_factor(p, job.keys.count);
  fill_steps(p, at, p.score_count, job);
  job.dropout = {p.dropout_p > 0,
                 static_cast<std::uint64_t>(std::ceil(std::ldexp(p.dropout_p, 32))),
                 {static_cast<std::uint32_t>(p.seed), static_cast<std::uint32_t>(p.seed >> 32)},
                 static_cast<std::uint32_t>(b)};
  job.scratch = scratch;
  return job;
}

}  // namespace attend::detail

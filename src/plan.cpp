#include "attend/plan.hpp"

#include <algorithm>
#include <cstdio>
#include <functional>

#include "kernels/mask_intervals.hpp"
#include "route.hpp"
#include "run.hpp"
#include "tables.hpp"
#include "validate.hpp"

namespace attend {
namespace detail {
namespace {

struct tile_counts {
  std::int64_t visited = 0, full = 0;
  std::int64_t keys = 0;  // of the tiles that are visited
};

/// Tiles of one block by class, in closed form: the tiles of the prefix, and those of the interval.
tile_counts count_tiles(const lane_bounds& b, std::int64_t tile) noexcept {
  const std::int64_t last = last_key(b);
  const auto up = [tile](std::int64_t key) { return (key + tile - 1) / tile; };
  // A block stops at its last key, so a tile that ends there counts as ending there.
  const auto whole = [&](std::int64_t end) { return end >= last ? up(last) : end / tile; };
  const auto join_sizes = [](std::int64_t end, std::int64_t begin, std::int64_t finish) {  // |[0, end) and [begin, finish)|
    return end + std::max<std::int64_t>(0, finish - std::max(begin, end));
  };
  tile_counts counts;
  if (last <= 0) return counts;
  const std::int64_t first = b.min_begin < b.max_end ? b.min_begin / tile : 0,
                     behind = b.min_begin < b.max_end ? up(b.max_end) : 0;
  const std::int64_t prefix = up(b.max_prefix);
  counts.visited = join_sizes(prefix, first, behind);
  counts.full = join_sizes(whole(b.min_prefix), up(b.max_begin), whole(b.min_end));
  const bool short_tile = std::max(prefix, behind) * tile > last;
  counts.keys = counts.visited * tile - (short_tile ? std::max(prefix, behind) * tile - last : 0);
  return counts;
}

/// The same where tiles in between may be left out, or may not be full: one by one.
tile_counts count_each_tile(const lane_map& lanes, const lane_bounds& b, bool has_mask, std::int64_t tile) noexcept {
  tile_counts counts;
  const std::int64_t last = last_key(b);
  for (std::int64_t first = first_key(b) / tile * tile; first < last; first += tile) {
    const std::int64_t end = std::min(first + tile, last);
    const tile_class kind = classify_tile(lanes, b, first, end, has_mask, tile).kind;
    if (kind == tile_class::skip) continue;
    ++counts.visited;
    counts.full += kind == tile_class::full;
    counts.keys += end - first;
  }
  return counts;
}

/// Whether sequences differ in what their tiles are.
bool alike(const problem& p) noexcept {
  const auto moves = [&p](const operand& x) {
    return std::any_of(x.batch, x.batch + p.batch.axes, [](std::int64_t stride) { return stride != 0; });
  };
  return !p.lengths.data && !p.offset.data && !p.prefix.data && !(p.mask && moves(p.mask)) &&
         !(p.key_segments && (moves(p.key_segments) || moves(p.query_segments)));
}

plan_facts facts_of(const problem& p) {
  const route r(p);
  const part& work = *r.begin();
  const kernel& k = *work.choice.entry;
  plan_facts facts;
  facts.operation = "forward";
  facts.kernel = name_of(work.op);
  facts.reason = reason_for(p, work.op);
  facts.set = work.choice.set;
  facts.compatibility = p.compatibility;
  facts.normalizer = p.normalizer;
  facts.type = p.type;
  facts.batch = p.batch.count;
  facts.heads = p.heads;
  facts.kv_heads = p.kv_heads;
  facts.queries = p.queries;
  facts.keys = p.keys;
  facts.width = p.width;
  facts.value_width = p.value_width;
  facts.lanes = k.lanes;
  facts.tile_keys = k.tile_keys;
  facts.chunk_keys = k.chunk_keys;
  facts.lane_blocks = work.lane_blocks;
  facts.split_keys = work.wave > 0;
  facts.work_items = work.wave > 0 ? work.blocks * work.chunks : work.blocks;
  facts.scratch_bytes_per_thread = thread_bytes(work);
  facts.shared_scratch_bytes = work.wave > 0 ? work.blocks * (work.wave * work.partial_bytes + work.total_bytes) : 0;

  const mask_tables tables(p, r, [](std::int64_t count, const std::function<void(std::int64_t)>& item) {
    for (std::int64_t i = 0; i < count; ++i) item(i);
  });
  const std::int64_t sequences = work.blocks == 0 ? 0 : alike(p) ? 1 : p.batch.count;
  const bool heads_differ = p.mask && p.mask.head != 0;
  const std::int64_t heads = heads_differ ? p.kv_heads : 1;
  const std::int64_t times = (sequences == 1 ? p.batch.count : 1) * (heads_differ ? 1 : p.kv_heads);
  const bool each = p.neighborhood || p.mask;
  lane_map lanes;
  double pairs = 0;  // computed, those that a partial tile excludes included
  for (std::int64_t n = 0; n < sequences * heads * work.lane_blocks; ++n) {
    const std::int64_t b = n / work.lane_blocks / heads, head = n / work.lane_blocks % heads;
    const block_place place = place_of(p, work, (b * p.kv_heads + head) * work.lane_blocks + n % work.lane_blocks);
    fill_masks(p, tables, place, lanes);
    const lane_bounds bounds = bounds_of(lanes);
    const tile_counts tiles = each || bounds.scattered ? count_each_tile(lanes, bounds, static_cast<bool>(p.mask), k.tile_keys)
                                                       : count_tiles(bounds, k.tile_keys);
    facts.tiles_skipped += times * ((p.keys + k.tile_keys - 1) / k.tile_keys - tiles.visited);
    facts.tiles_full += times * tiles.full;
    facts.tiles_partial += times * (tiles.visited - tiles.full);
    pairs += static_cast<double>(tiles.keys) * static_cast<double>(place.rows) * static_cast<double>(times);
  }
  // Scores of dot products are multiply-adds; those of other functions count as many, where any column is looked at.
  const std::int64_t terms = p.compatibility == compatibility_kind::none ? 0 : p.width;
  facts.flops = 2 * pairs * static_cast<double>(terms + p.value_width);
  const double q_rows = static_cast<double>(p.batch.count * p.heads) * static_cast<double>(p.queries);
  const double k_rows = static_cast<double>(p.batch.count * p.kv_heads) * static_cast<double>(p.keys);
  facts.bytes = (q_rows + k_rows) * static_cast<double>((terms + p.value_width) * size_of(p.type));
  return facts;
}

}  // namespace
}  // namespace detail

namespace {

/// The plan's shapes as views of no memory: what validate() needs of inputs whose values do not matter.
array_view shape_view(dtype type, const extents& shape) { return {nullptr, type, shape, detail::contiguous_strides(shape)}; }

detail::problem problem_of(const problem_shape& shapes, const options& how) {
  return detail::validate(shape_view(shapes.type, shapes.q), shape_view(shapes.type, shapes.k),
                          shape_view(shapes.type, shapes.v), {}, how, detail::inputs::shapes);
}

}  // namespace

plan make_plan(const problem_shape& shapes, const options& how) {
  problem_of(shapes, how);
  plan made;
  made.shapes_ = shapes;
  made.how_ = how;
  return made;
}

plan_facts plan::facts() const { return detail::facts_of(problem_of(shapes_, how_)); }

std::string plan::describe() const { return attend::describe(facts()); }

std::string describe(const plan_facts& f) {
  std::string text;
  const auto line = [&text](const char* name, const std::string& value) {
    text += name + std::string(24 - std::char_traits<char>::length(name), ' ') + value + '\n';
  };
  const auto number = [](double value) {
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, "%.4g", value);
    return std::string(buffer);
  };
  using std::to_string;
  line("operation", f.operation + " " + std::string(name_of(f.type)));
  line("shape", "B " + to_string(f.batch) + ", H " + to_string(f.heads) + ", Hk " + to_string(f.kv_heads) + ", L " +
                    to_string(f.queries) + ", S " + to_string(f.keys) + ", E " + to_string(f.width) + ", Ev " +
                    to_string(f.value_width));
  line("weights", std::string(name_of(f.normalizer)) + " of " + std::string(name_of(f.compatibility)));
  line("kernel", f.kernel + " on " + std::string(name_of(f.set)));
  line("because", f.reason);
  line("tile",
       to_string(f.lanes) + " rows x " + to_string(f.tile_keys) + " keys, chunks of " + to_string(f.chunk_keys) + " keys");
  line("tiles", to_string(f.tiles_full) + " full, " + to_string(f.tiles_partial) + " partial, " + to_string(f.tiles_skipped) +
                    " skipped");
  line("work items", to_string(f.work_items) + (f.split_keys ? ", keys split" : ", keys whole"));
  line("scratch",
       to_string(f.scratch_bytes_per_thread) + " bytes per thread, " + to_string(f.shared_scratch_bytes) + " bytes shared");
  line("flops", number(f.flops));
  line("bytes", number(f.bytes));
  return text;
}

void plan::run(const array_view& q, const array_view& k, const array_view& v, const outputs& results) const {
  const std::pair<const char*, std::pair<const array_view*, const extents*>> given[] = {
      {"q", {&q, &shapes_.q}}, {"k", {&k, &shapes_.k}}, {"v", {&v, &shapes_.v}}};
  for (const auto& [name, pair] : given) {
    if (pair.first->type != shapes_.type) {
      throw argument_error(name, "the plan's dtype " + std::string(name_of(shapes_.type)),
                           std::string(name_of(pair.first->type)), argument_error::kind::type);
    }
    if (pair.first->shape != *pair.second)
      throw argument_error(name, "the plan's shape " + pair.second->to_string(), pair.first->shape.to_string());
  }
  attention(q, k, v, results, how_);
}

}  // namespace attend

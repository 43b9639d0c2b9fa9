#include "attend/plan.hpp"

#include <algorithm>
#include <cstdio>

#include "kernels/mask_intervals.hpp"
#include "route.hpp"
#include "run.hpp"
#include "validate.hpp"

namespace attend {
namespace detail {
namespace {

// Fewer blocks than this and every chunk of keys becomes a work item of its own: enough for the widest machines.
constexpr std::int64_t enough_items = 64;

// Partial results of one wave: as many chunks as fit, so that a wave rarely ends, and memory stays bounded whatever the keys.
constexpr std::int64_t wave_bytes = 4 << 20;

/// Whether kernels may read rows where they lie: columns adjacent, elements aligned.
bool readable_in_place(const operand& x, std::int64_t columns) noexcept {
  return (x.column == 1 || columns <= 1) &&
         reinterpret_cast<std::uintptr_t>(x.data) % static_cast<std::uintptr_t>(size_of(x.type)) == 0;
}

}  // namespace

block_place place_of(const problem& p, const route& r, std::int64_t block) noexcept {
  // Under a causal mask later blocks have more keys: they go first, so that no long one is left for the end.
  const std::int64_t along = block % r.lane_blocks, lanes = r.choice.entry->lanes;
  const std::int64_t first = (p.causal ? r.lane_blocks - 1 - along : along) * lanes;
  const std::int64_t head = block / r.lane_blocks;
  return {head / p.kv_heads, head % p.kv_heads, first, std::min<std::int64_t>(lanes, r.rows - first)};
}

namespace {

/// Where the queries of a block's rows stand, and which cells are their neighbours. These narrow the intervals, too.
void fill_grid(const problem& p, const block_place& place, std::int64_t start, lane_map& lanes) noexcept {
  grid_map& grid = lanes.grid;
  grid.columns = p.grid && p.grid.columns > 0 ? p.grid.columns : grid_map::one_row;
  grid.neighborhood = static_cast<bool>(p.neighborhood);
  // A step beyond the grid leads nowhere, however far: sums of it must not overflow.
  grid.row_step = std::min(p.neighborhood.dilation.rows, std::max<std::int64_t>(p.grid.rows, 1));
  grid.column_step = std::min(p.neighborhood.dilation.columns, std::max<std::int64_t>(p.grid.columns, 1));
  grid.restricted = false;
  grid.hull_count = 0;
  if (!p.relative && !grid.neighborhood) return;
  for (int lane = 0; lane < lanes.count; ++lane) {
    const std::int64_t query = (place.first_row + lane) / p.group;
    grid.row[lane] = p.grid ? query / grid.columns : 0;
    grid.column[lane] = p.grid ? query % grid.columns : start + query;
    if (!grid.neighborhood) continue;
    const neighborhood& near = p.neighborhood;
    const cell_run rows = neighbors(grid.row[lane], p.grid.rows, near.kernel.rows, near.dilation.rows, near.border);
    const cell_run columns =
        neighbors(grid.column[lane], p.grid.columns, near.kernel.columns, near.dilation.columns, near.border);
    grid.neighbors[lane] = {rows.first, rows.last, columns.first, columns.last};
    if (grid.hull_count > 0 && grid.hulls[grid.hull_count - 1].first_row == rows.first &&
        grid.hulls[grid.hull_count - 1].last_row == rows.last && columns.last >= grid.hulls[grid.hull_count - 1].last_column) {
      grid.hulls[grid.hull_count - 1].last_column = columns.last;
    } else {
      grid.hulls[grid.hull_count++] = grid.neighbors[lane];
    }
    grid.hull_end[grid.hull_count - 1] = lane + 1;
    const std::int64_t first = rows.first * grid.columns + columns.first, last = rows.last * grid.columns + columns.last;
    grid.restricted |= lanes.begin[lane] > first || lanes.end[lane] <= last;
    lanes.begin[lane] = std::max(lanes.begin[lane], first);
    lanes.end[lane] = std::min(lanes.end[lane], last + 1);
    if (lanes.begin[lane] >= lanes.end[lane]) lanes.begin[lane] = lanes.end[lane] = 0;
    lanes.prefix_end[lane] = std::min(lanes.prefix_end[lane], last + 1);
  }
}

}  // namespace

void fill_intervals(const problem& p, const block_place& place, lane_map& lanes) noexcept {
  const std::int64_t start = first_position(p, place.sequence), length = key_length(p, place.sequence);
  const std::int64_t prefix = p.has_prefix ? batch_value(p.batch, place.sequence, p.prefix) : 0;
  lanes.count = static_cast<int>(place.rows);
  for (int lane = 0; lane < lanes.count; ++lane) {
    const key_intervals allowed = allowed_intervals(p, start + (place.first_row + lane) / p.group, length, prefix);
    lanes.begin[lane] = allowed.begin;
    lanes.end[lane] = allowed.end;
    lanes.prefix_end[lane] = allowed.prefix_end;
  }
  fill_grid(p, place, start, lanes);
}

route choose_route(const problem& p) {
  route r;
  r.rows = p.queries * p.group;
  const bool few = r.rows <= few_queries_rows && !p.reproducible;
  r.op = few ? operation::few_queries : operation::forward;
  r.reason = few              ? "at most 16 rows share a key/value head: lanes are columns, keys and values are read once"
             : p.reproducible ? "reproducible: one kernel for every number of queries, lanes are queries"
                              : "many rows share a key/value head: lanes are queries";
  r.choice = choose_kernel({r.op, p.type, p.type, p.type});
  r.scales = factors_of(p);
  const bool reads_keys = p.compatibility != compatibility_kind::none;
  r.shape = {
      p.width,
      p.value_width,
      p.compatibility == compatibility_kind::cosine || r.scales.key != 1 || (reads_keys && !readable_in_place(p.k, p.width)),
      !readable_in_place(p.v, p.value_width),
      static_cast<bool>(p.bias),
      static_cast<bool>(p.relative),
      p.compatibility == compatibility_kind::additive};

  const kernel& k = *r.choice.entry;
  r.lane_blocks = (r.rows + k.lanes - 1) / k.lanes;
  r.blocks = p.heads == 0 ? 0 : p.batch.count * p.kv_heads * r.lane_blocks;
  r.chunks = (p.longest + k.chunk_keys - 1) / k.chunk_keys;
  r.scratch_bytes = k.scratch_bytes(r.shape);
  r.partial_bytes = k.partial_bytes(r.shape);
  r.total_bytes = k.total_bytes(r.shape);
  if (r.blocks > 0 && r.blocks < enough_items && r.chunks > 1) {
    const std::int64_t fit = wave_bytes / (r.blocks * r.partial_bytes), needed = (enough_items + r.blocks - 1) / r.blocks;
    r.wave = std::min(r.chunks, std::max(fit, needed));
  }
  return r;
}

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

/// The same where neighbourhoods leave out tiles in between: one by one.
tile_counts count_neighbor_tiles(const lane_map& lanes, const lane_bounds& b, std::int64_t tile) noexcept {
  tile_counts counts;
  const std::int64_t last = last_key(b);
  for (std::int64_t first = first_key(b) / tile * tile; first < last; first += tile) {
    const std::int64_t end = std::min(first + tile, last);
    if (classify(lanes, b, first, end) == tile_class::skip) continue;
    ++counts.visited;
    counts.keys += end - first;
  }
  return counts;
}

}  // namespace

plan_facts facts_of(const problem& p, const route& r) {
  const kernel& k = *r.choice.entry;
  plan_facts facts;
  facts.operation = "forward";
  facts.kernel = name_of(r.op);
  facts.reason = r.reason;
  facts.set = r.choice.set;
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
  facts.lane_blocks = r.lane_blocks;
  facts.split_keys = r.wave > 0;
  facts.work_items = r.wave > 0 ? r.blocks * r.chunks : r.blocks;
  facts.scratch_bytes_per_thread = r.scratch_bytes + (r.wave > 0 ? 0 : r.total_bytes + r.partial_bytes);
  facts.shared_scratch_bytes = r.wave > 0 ? r.blocks * (r.wave * r.partial_bytes + r.total_bytes) : 0;

  // Sequences without lengths, offsets or prefixes of their own are alike, and so are all heads of a sequence.
  const bool alike = !p.lengths.data && !p.offset.data && !p.prefix.data;
  const std::int64_t times = p.kv_heads * (alike ? p.batch.count : 1);
  lane_map lanes;
  double pairs = 0;  // computed, those that a partial tile excludes included
  for (std::int64_t b = 0; r.blocks > 0 && b < (alike ? 1 : p.batch.count); ++b) {
    for (std::int64_t block = 0; block < r.lane_blocks; ++block) {
      const block_place place = place_of(p, r, b * p.kv_heads * r.lane_blocks + block);
      fill_intervals(p, place, lanes);
      const lane_bounds bounds = bounds_of(lanes);
      const tile_counts tiles =
          p.neighborhood ? count_neighbor_tiles(lanes, bounds, k.tile_keys) : count_tiles(bounds, k.tile_keys);
      const std::int64_t full = p.mask ? 0 : tiles.full;
      facts.tiles_skipped += times * ((p.keys + k.tile_keys - 1) / k.tile_keys - tiles.visited);
      facts.tiles_full += times * full;
      facts.tiles_partial += times * (tiles.visited - full);
      pairs += static_cast<double>(tiles.keys) * static_cast<double>(place.rows) * static_cast<double>(times);
    }
  }
  // Scores of dot products are multiply-adds; those of other functions count as many, where any column is looked at.
  const std::int64_t terms = p.compatibility == compatibility_kind::none ? 0 : p.width;
  facts.flops = 2 * pairs * static_cast<double>(terms + p.value_width);
  const double q_rows = static_cast<double>(p.batch.count * p.heads) * static_cast<double>(p.queries);
  const double k_rows = static_cast<double>(p.batch.count * p.kv_heads) * static_cast<double>(p.keys);
  facts.bytes = (q_rows + k_rows) * static_cast<double>((terms + p.value_width) * size_of(p.type));
  return facts;
}

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
  detail::choose_route(problem_of(shapes, how));
  plan made;
  made.shapes_ = shapes;
  made.how_ = how;
  return made;
}

plan_facts plan::facts() const {
  const detail::problem p = problem_of(shapes_, how_);
  return detail::facts_of(p, detail::choose_route(p));
}

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

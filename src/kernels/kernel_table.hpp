// What a kernel unit and the rest of the library know of each other. Kernel units are compiled with their own instruction set,
// so this header holds plain data and nothing of the standard library that could leave wide code in the portable path.
#pragma once

#include <cstddef>
#include <cstdint>

namespace attend::detail {

/// Most rows (query, head) that one block computes together.
inline constexpr int max_lanes = 64;

/// Indices into functions.def.
enum class compatibility_index : int {
#define ATTEND_COMPATIBILITY(name) name,
#include "kernels/functions.def"
};
enum class normalizer_index : int {
#define ATTEND_NORMALIZER(name) name,
#include "kernels/functions.def"
};

/// A run of keys at one stride: what a key source gives from a starting key on. Strides in elements.
struct key_run {
  const void* k;
  const void* v;
  std::int64_t k_step, v_step;
  std::int64_t count;
};

/// Where keys come from. `run` yields the run that begins at `key`; kernels ask again until a tile is filled, so pages, rings
/// and shared prefixes are sources like a strided tensor is.
struct key_source {
  key_run (*run)(const key_source& source, std::int64_t key);
  const void* k;
  const void* v;
  std::int64_t k_step, v_step;      // from key to key
  std::int64_t k_column, v_column;  // from column to column
  std::int64_t count;
  std::int64_t element_bytes;
};

/// Rows first_row, first_row + step, ..., last_row of a grid, and columns alike.
struct grid_cells {
  std::int64_t first_row, last_row, first_column, last_column;
};

/// Where keys lie on a grid, and which of them are neighbours of a lane's query. Without a grid, all keys lie in one row.
struct grid_map {
  static constexpr std::int64_t one_row = INT64_MAX;
  std::int64_t columns;                            // of the grid: key j lies in row j / columns, column j % columns
  std::int64_t row[max_lanes], column[max_lanes];  // of the lane's query: filled where offsets are needed
  bool neighborhood;                               // whether only neighbours are seen
  bool restricted;                                 // whether intervals exclude some neighbours
  std::int64_t row_step, column_step;
  grid_cells neighbors[max_lanes];
  // Lanes next to each other whose neighbours lie in the same rows, and what holds the neighbours of all of them.
  int hull_count;
  int hull_end[max_lanes];  // one past the last lane
  grid_cells hulls[max_lanes];
};

/// Lane -> (query, head): everything a kernel needs of a row. Nothing assumes that lanes are consecutive queries.
struct lane_map {
  int count;
  const void* q[max_lanes];  // row of the query
  void* out[max_lanes];      // row of the result
  void* weights[max_lanes];  // row of the weights
  const unsigned char* mask[max_lanes];
  const void* bias[max_lanes];
  const void* relative[max_lanes];                // table of the lane's head, at offset 0
  std::int64_t begin[max_lanes], end[max_lanes];  // keys allowed by causal, window and length: [begin, end), or none: [0, 0)
  std::int64_t prefix_end[max_lanes];             // and [0, prefix_end)
  grid_map grid;
};

/// One (sequence, key/value head, block of lanes), for any number of key chunks.
struct block_job {
  lane_map lanes;
  key_source keys;
  std::int64_t width, value_width;
  std::int64_t q_column, out_column;
  std::int64_t mask_step, bias_step, weights_step;  // from key to key
  bool has_out, has_mask, has_bias, bias_is_f32;
  compatibility_index compatibility;
  normalizer_index normalizer;
  const void* additive;  // weights of additive
  std::int64_t additive_step;
  bool additive_is_f32;
  bool has_relative, relative_is_f32;
  std::int64_t relative_rows, relative_columns;  // offsets reach from -rows to rows, from -columns to columns
  std::int64_t relative_row_step, relative_column_step;
  bool pack_k, pack_v;  // rows are gathered first: columns are not adjacent, or keys are scaled or brought to length 1
  // The scale multiplies the queries, once per block, so that scores with and without a bias are the same numbers. Of a scale
  // that might leave their range, a part is left over that multiplies the scores.
  double query_scale, score_scale;
  double key_scale;      // a power of two that keys are multiplied by: of functions of differences, beside query_scale
  double weight_factor;  // a power of two that weights are multiplied by, and results divided by (normaliser mean)
  void* scratch;         // scratch_bytes(), aligned to 64
};

/// Scratch depends on the shape and on what has to be gathered.
struct scratch_shape {
  std::int64_t width, value_width;
  bool pack_k, pack_v, has_bias, has_relative, additive;
};

/// A partial result over some keys: sums O, maximum m and denominator l per lane, laid out by the kernel that made it. The total
/// of a block begins like one; what it carries behind that starts as zeros.
using partial_sums = void;

/// One kernel: its tile sizes, its memory and its entry points travel together.
struct kernel {
  int lanes;                // rows of a block
  int tile_keys;            // keys of a score tile
  std::int64_t chunk_keys;  // keys folded into one partial; a multiple of tile_keys
  std::int64_t (*scratch_bytes)(const scratch_shape& shape);
  std::int64_t (*partial_bytes)(const scratch_shape& shape);
  std::int64_t (*total_bytes)(const scratch_shape& shape);
  /// Brings the queries of a block into scratch; once per block.
  void (*load)(const block_job& job);
  /// partial <- the keys [begin, end) of one chunk; begin is a multiple of tile_keys.
  void (*chunk)(const block_job& job, std::int64_t begin, std::int64_t end, partial_sums* result);
  /// total <- total + next, in key order.
  void (*fold)(const block_job& job, partial_sums* total, const partial_sums* next);
  /// Rows of out; and per lane the maximum score and the denominator as doubles (-inf and 0 for an empty row).
  void (*finish)(const block_job& job, const partial_sums* result, double* maximum, double* denominator);
  /// Rows of weights for keys [begin, end), from the row's final maximum and denominator.
  void (*weights)(const block_job& job, std::int64_t begin, std::int64_t end, const double* maximum, const double* denominator);
};

/// Number of lines of kernels.def.
inline constexpr int kernel_lines = 0
#define ATTEND_KERNEL(...) +1
#include "kernels.def"
#undef ATTEND_KERNEL
    ;

/// The kernels of one instruction set, in the order of kernels.def: null where the set has none of its own and the next worse
/// one serves.
struct kernel_table {
  const kernel* lines[kernel_lines];
};

// One table per unit; each is the only symbol that the unit exports.
extern const kernel_table scalar_kernels;
extern const kernel_table avx2_kernels;
extern const kernel_table avx512_kernels;

/// Rows that the few-queries kernel serves at most.
inline constexpr int few_queries_rows = 16;

}  // namespace attend::detail

// What a kernel unit and the rest of the library know of each other. Kernel units are compiled with their own instruction set,
// so this header holds plain data and nothing of the standard library that could leave wide code in the portable path.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quantized_rows.hpp"

namespace attend::detail {

/// Most rows (query, head) that one block computes together.
inline constexpr int max_lanes = 64;

/// Most score functions, and most biases among them.
inline constexpr int max_steps = 12, max_biases = 9;

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
  std::int64_t k_bytes, v_bytes;  // of an element
  // Of keys in pages: key j lies in row j % page_keys of page pages[j / page_keys], or, where there is no list, in row (j + shift) % page_keys of a
  // ring.
  std::int64_t page_keys = 0, shift = 0;
  const std::int64_t* pages = nullptr;
  std::int64_t k_page = 0, v_page = 0;  // from page to page
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

enum class tile_class : unsigned char { skip, full, partial };

/// Lane -> (query, head): everything a kernel needs of a row. Nothing assumes that lanes are consecutive queries. What belongs to an
/// option is filled where the option is given.
struct lane_map {
  int count;
  const void* q[max_lanes];                       // row of the query
  void* out[max_lanes];                           // row of the result
  void* pairs[max_lanes];                         // row of the weights or of the scores
  std::int64_t begin[max_lanes], end[max_lanes];  // keys allowed by causal, window, segment and length: [begin, end) or [0, 0)
  std::int64_t prefix_end[max_lanes];             // and [0, prefix_end)
  const unsigned char* mask[max_lanes];
  std::int64_t mask_first;          // key of the mask's first column; the mask allows keys before it
  const tile_class* mask_classes;   // of the mask alone, per tile of the kernel, over all lanes
  bool scattered;                   // whether intervals hold keys of other segments, which ids have to tell apart
  std::int64_t segment[max_lanes];  // of the query
  const void* bias[max_biases][max_lanes];
  const void* relative[max_lanes];                  // table of the lane's head, at offset 0
  std::int64_t position[max_lanes];                 // of the query among the keys
  double slope[max_lanes];                          // of ALiBi
  std::uint32_t query[max_lanes], head[max_lanes];  // of the whole problem, for dropout
  grid_map grid;
};

/// How numbers are stored; kernels compute in their accumulator. Rows of keys or values may be codes (quantized_rows.hpp), whose strides count bytes.
enum class element : unsigned char { f32, f64, f16, bf16, int8, int4 };
constexpr std::int64_t bytes_of(element stored) { return stored == element::f64 ? 8 : stored == element::f32 ? 4 : 2; }

/// What happens to a score, in the order of a job's steps.
enum class score_kind : int { soft_cap, bias, relative, alibi };
struct score_step {
  score_kind kind;
  double cap;
  int number;         // of the bias
  std::int64_t step;  // of a bias, from key to key
  element stored;     // of a bias
  bool adds;          // numbers per pair, of which -inf excludes
};

/// Which weights are kept: those whose random word is at least `from`.
struct dropout_rule {
  bool given;
  std::uint64_t from;
  std::uint32_t key[2];  // of Philox
  std::uint32_t batch;
};

/// Memory that the thread's next block begins with. A kernel may ask for it among its products, line by line: a block of a short sequence
/// takes less time than its inputs take to arrive, and hardware does not see where the next one lies.
struct memory_ahead {
  static constexpr int most = 4;
  static constexpr std::int64_t line = 64;
  struct run {
    const char* at;
    std::int64_t lines;
  };
  int count = 0;
  run runs[most];
  const char* keys =
      nullptr;  // its first row of keys, where it is another than this block's; the others follow as in this block
};

/// One (sequence, key/value head, block of lanes), for any number of key chunks.
struct block_job {
  element stored;              // q, out and pairs
  element k_stored, v_stored;  // the same as q, or codes
  lane_map lanes;
  key_source keys;
  std::int64_t width, value_width;
  std::int64_t q_column, out_column;
  std::int64_t mask_step, pairs_step, segment_step;  // from key to key
  const void* segments;                              // int64 per key; null without segments
  bool has_mask;
  int step_count, bias_count;
  score_step steps[max_steps];
  // Whether a bias of -inf has to be looked for again behind the last step: another step follows it.
  bool excludes_late;
  dropout_rule dropout;
  compatibility_index compatibility;
  normalizer_index normalizer;
  const void* additive;  // weights of additive
  std::int64_t additive_step;
  element additive_stored;
  bool has_relative;
  element relative_stored;
  std::int64_t relative_rows, relative_columns;  // offsets reach from -rows to rows, from -columns to columns
  std::int64_t relative_row_step, relative_column_step;
  // Rows are gathered as numbers of the accumulator first: columns are not adjacent, keys are scaled or brought to length 1, or the
  // kernel reads no halves in place.
  bool pack_k, pack_v;
  // The scale multiplies the queries, once per block, so that scores with and without a bias are the same numbers. Of a scale
  // that might leave their range, a part is left over that multiplies the scores.
  double query_scale, score_scale;
  double key_scale;      // a power of two that keys are multiplied by: of functions of differences, beside query_scale
  double weight_factor;  // a power of two that weights are multiplied by, and results divided by (normaliser mean)
  void* scratch;         // scratch_bytes(), aligned to 64
  memory_ahead ahead;
  const void* packed;  // keys and values of the chunk at hand, where the kernel has `pack`
};

/// Scratch depends on the shape and on what has to be gathered.
struct scratch_shape {
  std::int64_t width, value_width;
  bool pack_k, pack_v, has_relative, additive, dropout;
  int biases;
  int caps = 0;  // soft caps whose slopes are kept: of backward
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
  /// Per lane the maximum score and the denominator as doubles (-inf and 0 for an empty row).
  void (*totals)(const block_job& job, const partial_sums* result, double* maximum, double* denominator);
  /// Rows of out: a lane's sums times its factor.
  void (*finish)(const block_job& job, const partial_sums* result, const double* factor);
  /// Rows of weights for keys [begin, end): of the row's final maximum, times its factor.
  void (*weights)(const block_job& job, std::int64_t begin, std::int64_t end, const double* maximum, const double* factor);
  /// Rows of scores for keys [begin, end), after the job's steps; excluded pairs become -inf if `masked`.
  void (*scores)(const block_job& job, std::int64_t begin, std::int64_t end, bool masked);
  /// The class of keys [first, first + count), at most a tile, by the boolean mask alone.
  tile_class (*mask_class)(const lane_map& lanes, std::int64_t mask_step, std::int64_t first, int count);
  /// Null, or brings keys and values of one chunk into the form that `chunk`, `weights` and `scores` read at `job.packed`, which serves all
  /// blocks of the same sequence and key/value head. `end` is at least that of every block; packed_bytes() are aligned to 64.
  std::int64_t (*packed_bytes)(const scratch_shape& shape) = nullptr;
  void (*pack)(const block_job& job, std::int64_t begin, std::int64_t end, void* packed) = nullptr;
  /// Null, or makes the rows [first, first + count) of a partial result the first ones of another: `job` may then hold rows of several sequences
  /// that read the same keys.
  void (*take_rows)(const block_job& job, const partial_sums* of_all, int first, int count, partial_sums* to) = nullptr;
};

/// Rows that a kernel writes: where the first one begins, how they lie and how they are stored. Steps in elements.
struct written_rows {
  void* first = nullptr;  // null where they are not wanted
  std::int64_t step, column;
  element stored;
};

/// One block of queries, and what reaches it from behind. Of its job, `lanes.out` is not read.
struct backward_job : block_job {
  const void* dout[max_lanes];
  std::int64_t dout_column;
  // Of each row: what its weights are taken against (the LSE of softmax, the maximum of relu2 and abs) and multiplied by (1 over what mean, relu2
  // and abs divide by, or 0), and what a weight's gradient is taken against: sum(dout * out) - dlse, or 0 where weights do not depend on each other.
  double base[max_lanes], factor[max_lanes], mean[max_lanes];
  double kept_factor;  // what dropout multiplies the weights by that it keeps
  int caps;
  bool careful;  // keeps excluded pairs out of every sum; otherwise they join as zeros, which NaN and infinities turn into NaN
  bool wants_q;  // whether rows of dq are wanted; keys and values, whether `dk` and `dv` are
  bool wants_slope;     // of ALiBi
  bool wants_additive;  // weights of additive
  written_rows dk, dv;  // of the sequence and key/value head, from key 0 on
  void* dq[max_lanes];
  std::int64_t dq_column;
  element dq_stored;
  double* table[max_lanes];  // sums of the relative table of a lane's head, at offset 0; null where they are not wanted
  std::int64_t table_row_step;
};

/// Sums over queries that belong to the keys of a chunk, and a partial sum over keys that belongs to the queries of a block.
using key_sums = void;
using query_sums = void;

/// A backward kernel. For a chunk of keys, blocks of queries are added to its key sums in order, and each block's query sums of the chunk
/// are folded in the order of chunks.
struct backward_kernel {
  int lanes, tile_keys;
  std::int64_t chunk_keys;
  std::int64_t (*scratch_bytes)(const scratch_shape& shape);
  std::int64_t (*key_bytes)(const scratch_shape& shape);
  std::int64_t (*query_bytes)(const scratch_shape& shape);
  /// Sums of `count` keys before any query.
  void (*clear)(const backward_job& job, std::int64_t count, key_sums* sums);
  /// Adds a block's queries to the sums of keys [begin, end), which begin at a chunk's first key; `queries` <- the sums of the block's rows
  /// over these keys. Whether the latter are finite.
  bool (*block)(const backward_job& job, std::int64_t begin, std::int64_t end, key_sums* keys, query_sums* queries);
  /// Long sums go in parts: totals (twice key_bytes) <- totals + sums, or sums alone if `first`, and sums begin anew.
  void (*settle)(const backward_job& job, std::int64_t count, bool first, key_sums* sums, key_sums* totals);
  bool (*finite)(const backward_job& job, std::int64_t count, const key_sums* sums);
  /// Rows of dk and dv for `count` keys from `begin` on, of which those that are there may be read again. The sums are used up.
  void (*finish_keys)(const backward_job& job, std::int64_t begin, std::int64_t count, key_sums* sums);
  /// total (twice query_bytes) <- total + next, or next alone if `first`.
  void (*fold)(const backward_job& job, bool first, query_sums* total, const query_sums* next);
  /// Rows of dq, and if they are wanted gradients by each lane's slope of ALiBi and by the weights of additive. The total is used up.
  void (*finish_queries)(const backward_job& job, query_sums* total, double* by_slope, double* by_additive);
  /// rows[lane][(key - begin) * step] += the gradient by what step `number` adds to the score, for keys [begin, end).
  void (*pairs)(const backward_job& job, std::int64_t begin, std::int64_t end, int number, double* const* rows,
                std::int64_t step);
  tile_class (*mask_class)(const lane_map& lanes, std::int64_t mask_step, std::int64_t first, int count);
  /// The forward kernel of the same blocks and tiles, whose scores are the same numbers: it finds what rows are divided by.
  const kernel* forward;
};

/// A multiple of every kernel's chunk_keys. Keys may be counted from a multiple of it: tiles, chunks and bits stay what they were.
inline constexpr std::int64_t common_chunk_keys = 12288;

/// Numbers of lines of kernels.def.
inline constexpr int kernel_lines = 0
#define ATTEND_KERNEL(...) +1
#define ATTEND_PAIR_KERNEL(...) +1
#include "kernels.def"
    ;
inline constexpr int backward_lines = 0
#define ATTEND_BACKWARD_KERNEL(...) +1
#include "kernels.def"
    ;

/// The kernels of one instruction set, in the order of kernels.def: null where the set has none of its own and the next worse
/// one serves.
struct kernel_table {
  const kernel* lines[kernel_lines];
  const backward_kernel* backward[backward_lines];
};

// One table per unit; each is the only symbol that the unit exports.
extern const kernel_table scalar_kernels;
extern const kernel_table neon_kernels;
extern const kernel_table avx2_kernels;
extern const kernel_table avx512_kernels;
extern const kernel_table avx512_bf16_kernels;
extern const kernel_table amx_bf16_kernels;

/// Rows that the few-queries kernel serves at most.
inline constexpr int few_queries_rows = 16;

}  // namespace attend::detail

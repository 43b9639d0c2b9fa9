// A checked call: what validate() makes of views and options, and all that planning, kernels and the reference read.
// Batch axes are kept (up to five) and indexed by one number b; everything broadcast has stride 0; strides count elements.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>

#include "attend/attention.hpp"
#include "elements.hpp"

namespace attend::detail {

inline constexpr int max_batch_axes = max_rank - 3;

/// Sizes of the batch axes, outermost first; `count` is their product (1 where there are none).
struct batch_shape {
  int axes = 0;
  std::int64_t sizes[max_batch_axes] = {};
  std::int64_t count = 1;
};

/// An array as (batch..., head, row, column). Masks and biases read (head, query, key); lse has no column.
struct operand {
  void* data = nullptr;
  dtype type = dtype::none;
  std::int64_t batch[max_batch_axes] = {};
  std::int64_t head = 0, row = 0, column = 0;
  std::int64_t page = 0;                    // of keys and values in pages
  quantization codes = quantization::none;  // of keys and values; rows of codes are bytes

  explicit operator bool() const noexcept { return type != dtype::none; }
};

/// One integer per batch, however it was given.
struct batch_values {
  const std::int64_t* data = nullptr;  ///< null: `value` for all
  std::int64_t value = 0;
  std::int64_t strides[max_batch_axes] = {};
};

/// What happens to a score, in order: the caller's list, then soft cap, bias, relative table and ALiBi.
struct score_function {
  enum class kind : std::uint8_t { soft_cap, bias, relative, alibi };
  kind what = kind::soft_cap;
  double cap = 0;  // of soft_cap
  operand
      numbers;  // of bias: read (batch..., head, query, key); of alibi: read (head); the paper's slopes where there are none
};
inline constexpr int max_score_functions = score_list::max_size + 4;

struct problem {
  dtype type = dtype::none;
  batch_shape batch;
  std::int64_t heads = 0, kv_heads = 0, group = 1;  // group = heads / kv_heads
  std::int64_t queries = 0, keys = 0, width = 0, value_width = 0;
  operand q, k, v, mask, out, lse, weights, scores;
  bool mask_of_newest = false;  // the mask's columns are the newest `queries` keys of a sequence; it allows those before
  score_stage stage = score_stage::biased;
  // Packed sequences: b counts them, their rows begin at starts[b] and end at starts[b + 1], and `queries` and `keys` are those of the
  // longest. Null where every batch has rows of its own.
  operand query_starts, key_starts;
  // Keys in pages: key j of sequence b lies in row j % page_keys of page page_tables[b][j / page_keys], or, where there are no tables, in row
  // (j + ring_shifts[b]) % page_keys of a ring. 0 where they lie one behind the other.
  std::int64_t page_keys = 0;
  const std::int64_t* const* page_tables = nullptr;
  const std::int64_t* ring_shifts = nullptr;
  bool pages_shared = false;             // whether sequences may have pages in common
  operand query_segments, key_segments;  // read (batch..., row)
  score_function score[max_score_functions];
  int score_count = 0;
  int capped_count = 0;  // of them, those up to the soft cap
  operand sinks;         // read (head)
  double dropout_p = 0;
  std::uint64_t seed = 0;
  compatibility_kind compatibility = compatibility_kind::dot;
  attend::normalizer normalizer = attend::normalizer::softmax;
  double sigma = 1;          // of gaussian
  operand additive_weights;  // of additive: read (column)
  operand relative;          // read (head, row offset, column offset); without a grid the offset is the column
  std::int64_t relative_rows = 0, relative_columns = 0;  // offsets reach from -rows to rows, from -columns to columns
  grid_size grid;
  attend::neighborhood neighborhood;
  double scale = 1;
  bool causal = false;
  std::optional<std::int64_t> left, right;  // window
  bool lower_right = false;                 // position = length - L, not `offset`
  batch_values offset, prefix, lengths;
  bool has_prefix = false, has_lengths = false;
  std::int64_t longest = 0;  // the largest key length of any sequence
  bool reproducible = false;
};

/// Whether a normaliser divides a row by its denominator.
inline bool divides(normalizer kind) noexcept { return kind != normalizer::sum && kind != normalizer::sigmoid; }

/// Whether its weights are shares of their sum, so that each moves with every score.
inline bool are_shares(normalizer kind) noexcept { return divides(kind) && kind != normalizer::mean; }

/// Offset in elements of batch b under the strides of an operand or of per-batch values.
inline std::int64_t batch_offset(const batch_shape& batch, std::int64_t b, const std::int64_t* strides) noexcept {
  std::int64_t offset = 0;
  for (int axis = batch.axes - 1; axis >= 0; --axis) {
    offset += b % batch.sizes[axis] * strides[axis];
    b /= batch.sizes[axis];
  }
  return offset;
}

inline std::int64_t batch_value(const batch_shape& batch, std::int64_t b, const batch_values& values) noexcept {
  return values.data ? values.data[batch_offset(batch, b, values.strides)] : values.value;
}

/// Element n of a list of integers that may lie at any address.
inline std::int64_t integer_at(const operand& x, std::int64_t offset) noexcept {
  std::int64_t value;
  std::memcpy(&value, static_cast<const char*>(x.data) + offset * std::int64_t{sizeof value}, sizeof value);
  return value;
}

/// The first row of sequence b and the number of its rows, by its boundaries; all rows where nothing is packed.
inline std::int64_t first_row(const operand& starts, std::int64_t b) noexcept {
  return starts ? integer_at(starts, b * starts.row) : 0;
}
inline std::int64_t rows_of(const operand& starts, std::int64_t b, std::int64_t all) noexcept {
  return starts ? first_row(starts, b + 1) - first_row(starts, b) : all;
}
inline std::int64_t queries_of(const problem& p, std::int64_t b) noexcept { return rows_of(p.query_starts, b, p.queries); }
inline std::int64_t keys_of(const problem& p, std::int64_t b) noexcept { return rows_of(p.key_starts, b, p.keys); }

/// Keys of sequence b that are there: its length where lengths were given, else all.
inline std::int64_t key_length(const problem& p, std::int64_t b) noexcept {
  return p.has_lengths ? batch_value(p.batch, b, p.lengths) : keys_of(p, b);
}

/// Position of query 0 of sequence b among its keys.
inline std::int64_t first_position(const problem& p, std::int64_t b) noexcept {
  return p.lower_right ? key_length(p, b) - queries_of(p, b) : batch_value(p.batch, b, p.offset);
}

/// Half-open runs of keys that structure (causal, window, prefix, lengths) allows a query; an empty one is [0, 0).
struct key_intervals {
  std::int64_t begin = 0, end = 0;  // by causal, window and length
  std::int64_t prefix_end = 0;      // [0, prefix_end)
};

/// The intervals of the query at `position` in a sequence of `length` keys whose prefix is `prefix` (0 for none).
key_intervals allowed_intervals(const problem& p, std::int64_t position, std::int64_t length, std::int64_t prefix) noexcept;

/// Cells along one axis of a grid: first, first + step, ..., last.
struct cell_run {
  std::int64_t first = 0, last = 0, step = 1;
};

/// Neighbours along an axis of `size` cells of the cell at `at`, for a kernel of `kernel` cells `dilation` apart.
cell_run neighbors(std::int64_t at, std::int64_t size, std::int64_t kernel, std::int64_t dilation, border edge) noexcept;

/// Pointer to element (b, h, row, 0).
inline void* row_pointer(const batch_shape& batch, const operand& x, std::int64_t b, std::int64_t head,
                         std::int64_t row) noexcept {
  const std::int64_t offset = batch_offset(batch, b, x.batch) + head * x.head + row * x.row;
  return static_cast<char*>(x.data) + offset * size_of(x.type);
}

/// The same for arrays of one row per query (q, out, lse, mask, ...) and of one row per key (k, v).
inline void* query_row(const problem& p, const operand& x, std::int64_t b, std::int64_t head, std::int64_t query) noexcept {
  return row_pointer(p.batch, x, b, head, first_row(p.query_starts, b) + query);
}
inline void* key_row(const problem& p, const operand& x, std::int64_t b, std::int64_t head, std::int64_t key) noexcept {
  if (p.page_keys == 0) return row_pointer(p.batch, x, b, head, first_row(p.key_starts, b) + key);
  const std::int64_t page = p.page_tables ? p.page_tables[b][key / p.page_keys] : 0;
  const std::int64_t shifted = p.page_tables ? key : key + p.ring_shifts[b];
  char* const row = static_cast<char*>(row_pointer(p.batch, x, b, head, shifted % p.page_keys));
  return row + page * x.page * size_of(x.type);
}

/// Segments of query i and key j of sequence b.
inline std::int64_t query_segment(const problem& p, std::int64_t b, std::int64_t i) noexcept {
  const operand& x = p.query_segments;
  return integer_at(x, batch_offset(p.batch, b, x.batch) + (first_row(p.query_starts, b) + i) * x.row);
}
inline std::int64_t key_segment(const problem& p, std::int64_t b, std::int64_t j) noexcept {
  const operand& x = p.key_segments;
  return integer_at(x, batch_offset(p.batch, b, x.batch) + (first_row(p.key_starts, b) + j) * x.row);
}

/// A number of the inputs' dtype or float32 that stands beside them.
inline double number_at(const operand& x, std::int64_t offset) noexcept {
  return load_number(static_cast<const char*>(x.data) + offset * size_of(x.type), x.type);
}

/// Slope of ALiBi for a head.
double alibi_slope(const problem& p, const score_function& f, std::int64_t head) noexcept;

/// Whether dropout keeps the weights of keys 4n to 4n + 3: their words of Philox 4x32-10.
struct philox_words {
  std::uint32_t word[4];
};
philox_words philox(std::uint64_t seed, std::int64_t four_keys, std::int64_t query, std::int64_t head,
                    std::int64_t batch) noexcept;

/// Kept where the word is at least p * 2^32.
inline bool keeps(double p, std::uint32_t word) noexcept { return static_cast<double>(word) >= p * 4294967296.0; }

}  // namespace attend::detail

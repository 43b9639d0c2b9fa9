// What both caches share: their memory, checks of new tokens, and copies of their rows.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "attend/options.hpp"
#include "attend/position.hpp"
#include "problem.hpp"
#include "scratch.hpp"
#include "validate.hpp"

namespace attend::detail {

/// Memory of a cache, in large pages where the system has them: decoding reads it once from end to end, and a translation per 4 KB is felt.
struct free_cache {
  std::size_t alignment = 64;
  void operator()(char* memory) const noexcept;
};
using cache_memory = std::unique_ptr<char[], free_cache>;

/// Rows of keys or values: (blocks, heads, rows, width), row-major, where a block is a sequence or a page; numbers or codes (quantized_rows.hpp).
class cache_rows {
 public:
  cache_rows() = default;
  /// Memory that holds anything: a row is read once it was written. Throws `argument_error` where the bytes do not fit 63 bits, `std::bad_alloc`.
  cache_rows(dtype type, quantization codes, const extents& shape);

  /// Everything, as queries read it.
  held_rows held() const noexcept;
  char* row(std::int64_t block, std::int64_t head, std::int64_t row) const noexcept;
  std::int64_t row_bytes() const noexcept { return row_bytes_; }

  /// Rows [first, first + count) of a block become rows [begin, begin + count) of new tokens (..., heads, n, width), whose batch is `batch`.
  void write(std::int64_t block, std::int64_t first, std::int64_t count, const array_view& from, std::int64_t batch,
             std::int64_t begin) const noexcept;
  /// The same rows of another block.
  void copy(std::int64_t block, std::int64_t count, std::int64_t from) const noexcept;

 private:
  void write_row(const char* from, std::int64_t step, char* to) const noexcept;

  dtype type_ = dtype::none;
  quantization codes_ = quantization::none;
  extents shape_;
  std::int64_t row_bytes_ = 0;
  cache_memory memory_;
};

/// What both kinds of caches hold of a token, and whether its key can be turned so.
struct row_sizes {
  dtype type;
  std::int64_t kv_heads, dim;
  std::optional<std::int64_t> value_dim;
  quantization keys, values;
};
void check_rows(const row_sizes& sizes, const std::optional<rotary>& turning);
template <class Sizes>
void check_cache_sizes(const Sizes& sizes) {
  check_rows({sizes.type, sizes.kv_heads, sizes.dim, sizes.value_dim, sizes.quantized_keys, sizes.quantized_values},
             sizes.rotary);
}

/// Rows (batch, heads, n, width), or without batch, or in layout blhd, turned by a rotary embedding into memory of their own; without one, the
/// rows themselves. `threads`: at most so many; 0: the default.
class turned_rows {
 public:
  /// Token i of sequence b stands at firsts[b] + i. Those before position 0, and those from counts[b] on where there are counts, do not matter.
  struct places {
    std::span<const std::int64_t> firsts, counts;
  };
  turned_rows(const array_view& x, const std::optional<rotary>& how, const places& at, layout order, int threads = 0);
  const array_view& view() const noexcept { return view_; }

 private:
  array_view view_;
  aligned_memory memory_;
};

/// Queries of a checked call, the newest tokens of sequences of these lengths: the problem reads them turned for as long as this lives.
class turned_queries {
 public:
  turned_queries(problem& p, const array_view& q, const std::optional<rotary>& how, std::span<const std::int64_t> lengths,
                 const options& of_call);

 private:
  std::optional<turned_rows> rows_;
};

/// New tokens k and v against what a cache holds: dtype, and (batch..., heads, n, width); returns n. `batch`: -1 without that axis.
std::int64_t check_tokens(const array_view& k, const array_view& v, dtype type, std::int64_t batch, std::int64_t kv_heads,
                          std::int64_t dim, std::int64_t value_dim);

}  // namespace attend::detail

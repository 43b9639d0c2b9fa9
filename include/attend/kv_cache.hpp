// Caches: keys and values of earlier tokens, and attention of new queries over them.
//
// ```cpp
// attend::kv_cache cache({.batch = 2, .kv_heads = 4, .capacity = 4096, .dim = 64});
// attend::tensor<float> k({2, 4, 10, 64}, 0.1f), v({2, 4, 10, 64}, 0.2f), q({2, 8, 1, 64}, 0.3f);
// cache.append(k, v);                                       // ten tokens of a prompt
// attend::tensor<float> y = attend::decode(q, cache);       // the newest token sees them all
//
// attend::paged_kv_cache pages({.pages = 64, .page_size = 16, .kv_heads = 4, .dim = 64});
// const attend::sequence_id one = pages.new_sequence();
// attend::tensor<float> rows({4, 10, 64}, 0.1f);            // one sequence has no batch axis
// pages.append(one, rows, rows);
// const attend::sequence_id two = pages.fork(one);          // shares its pages until one of them writes
// const attend::sequence_id both[] = {one, two};
// attend::tensor<float> z = attend::decode(q, pages, both); // (2, 8, 1, 64)
// ```
//
// A refused call leaves a cache as it was. Calls that change a cache need it to themselves.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "attend/attention.hpp"
#include "attend/position.hpp"

namespace attend {

namespace detail {
struct kv_cache_state;
struct paged_kv_cache_state;
}  // namespace detail

/// What a `kv_cache` has room for.
struct kv_cache_sizes {
  std::int64_t batch = 1, kv_heads = 1;
  std::int64_t capacity = 0;                   ///< tokens per sequence; of a ring, those that it holds at a time
  std::int64_t dim = 0;                        ///< E
  std::optional<std::int64_t> value_dim = {};  ///< Ev; default E
  dtype type = dtype::f32;                     ///< float32, float64, float16 or bfloat16
  /// A ring: the newest `capacity` tokens stay, and a query sees the `window` newest keys up to its own position. Up to capacity - window + 1
  /// tokens may be appended before their queries are decoded; where more would replace what these see, they are refused.
  std::optional<std::int64_t> window = {};
  /// Keys and values each as codes, for float32, float16 and bfloat16: of every 32 columns of a row, an int8 is at most 0.4 % of the largest
  /// magnitude off, an int4 3.4 % of (largest - smallest + |smallest| / 128). Of columns of which one is not finite, all become NaN; of int4, those whose range is not, too.
  quantization quantized_keys = quantization::none, quantized_values = quantization::none;
  /// Keys are turned by their positions as they are appended, queries as they are decoded, and rounded once. `layout` and `threads` of it are not
  /// used; cosines and sines, by position, are the caller's for as long as the cache lives.
  std::optional<attend::rotary> rotary = {};
};

/// One contiguous cache for a batch of sequences.
class kv_cache {
 public:
  /// Throws `argument_error`, `std::bad_alloc`.
  explicit kv_cache(const kv_cache_sizes& sizes);
  ~kv_cache();
  kv_cache(kv_cache&&) noexcept;
  kv_cache& operator=(kv_cache&&) noexcept;

  /// New tokens of every sequence: k (batch, kv_heads, n, E), v (batch, kv_heads, n, Ev), any strides, the cache's dtype. Of sequence b, the first
  /// lengths[b] of the n are taken, or all: one integer, or int64 (batch). All or nothing. Throws `argument_error`.
  void append(const array_view& k, const array_view& v, const batch_integers& lengths = {});

  /// Tokens of every sequence that are there; of a ring, tokens that it was ever given. Valid as long as the cache.
  std::span<const std::int64_t> lengths() const noexcept;

  /// Forgets all but the first `lengths[b]` tokens: one integer, or int64 (batch), from 0 to what is there. A ring refuses where it no longer holds
  /// what the next query would see. Throws `argument_error`.
  void truncate(const batch_integers& lengths);

  /// Forgets everything.
  void reset() noexcept;

  const kv_cache_sizes& sizes() const noexcept;

 private:
  friend void decode(const array_view&, kv_cache&, const outputs&, const options&);
  friend extents decoded_shape(const array_view&, const kv_cache&, const options&);
  std::unique_ptr<detail::kv_cache_state> state_;
};

/// What a `paged_kv_cache` has room for.
struct paged_kv_cache_sizes {
  std::int64_t pages = 0, page_size = 16;  ///< pages of `page_size` tokens, for all sequences together
  std::int64_t kv_heads = 1;
  std::int64_t dim = 0;                        ///< E
  std::optional<std::int64_t> value_dim = {};  ///< Ev; default E
  dtype type = dtype::f32;                     ///< float32, float64, float16 or bfloat16
  quantization quantized_keys = quantization::none, quantized_values = quantization::none;  ///< as in `kv_cache_sizes`
  std::optional<attend::rotary> rotary = {};                                                ///< as in `kv_cache_sizes`
};

/// A sequence of a `paged_kv_cache`; numbers are not used again.
enum class sequence_id : std::int64_t {};

/// Many sequences in one pool of pages. Sequences that fork share pages, and a page that several have is copied when one of them writes to it.
class paged_kv_cache {
 public:
  /// Throws `argument_error`, `std::bad_alloc`.
  explicit paged_kv_cache(const paged_kv_cache_sizes& sizes);
  ~paged_kv_cache();
  paged_kv_cache(paged_kv_cache&&) noexcept;
  paged_kv_cache& operator=(paged_kv_cache&&) noexcept;

  /// An empty sequence.
  sequence_id new_sequence();
  /// A sequence with the same tokens.
  sequence_id fork(sequence_id sequence);
  /// Gives the sequence's pages back, but for those that others have.
  void free(sequence_id sequence);

  /// New tokens: k (kv_heads, n, E), v (kv_heads, n, Ev), any strides, the cache's dtype. All or nothing: throws `argument_error` where the pages
  /// do not suffice.
  void append(sequence_id sequence, const array_view& k, const array_view& v);

  /// Forgets all but the first `length` tokens.
  void truncate(sequence_id sequence, std::int64_t length);

  std::int64_t length(sequence_id sequence) const;
  /// Pages that no sequence has.
  std::int64_t free_pages() const noexcept;
  /// The sequence's pages, in order; valid until the cache changes.
  std::span<const std::int64_t> pages(sequence_id sequence) const;

  const paged_kv_cache_sizes& sizes() const noexcept;

 private:
  friend void decode(const array_view&, const paged_kv_cache&, std::span<const sequence_id>, const outputs&, const options&);
  friend extents decoded_shape(const array_view&, const paged_kv_cache&, std::span<const sequence_id>, const options&);
  std::unique_ptr<detail::paged_kv_cache_state> state_;
};

/// New queries over a cache: causal, the last query of a sequence at its newest key.
///
/// Shapes: q (batch, H, L, E) in the cache's dtype; out (batch, H, L, Ev), lse (batch, H, L), with S the length of the longest sequence for masks,
/// biases and weights. Options mean what they mean for `attention`, but for those that a cache decides: causal may be left, window (of a ring,
/// not beyond its own) narrows further, and query_offset, key_lengths, segments, grids and dropout are refused. A ring has no S, and
/// refuses prefixes, masks, biases, weights and scores. A mask over the L newest keys alone, (..., L, L) where S > L, says which of them
/// each query sees: the tree of speculative decoding, whose siblings still have positions one behind the other. Throws `argument_error`, `interrupted`, `std::bad_alloc`.
void decode(const array_view& q, kv_cache& cache, const outputs& results, const options& how = {});

/// The same for sequences of a paged cache: q (n, H, L, E) for n sequences, one may come several times. Where forks have 1024 keys and more in common
/// and up to 16 rows of queries together, these are read once for all of them, but under boolean masks and the normaliser mean.
void decode(const array_view& q, const paged_kv_cache& cache, std::span<const sequence_id> sequences, const outputs& results,
            const options& how = {});

/// Shape of `out` for these queries. Throws `argument_error`.
extents decoded_shape(const array_view& q, const kv_cache& cache, const options& how = {});
extents decoded_shape(const array_view& q, const paged_kv_cache& cache, std::span<const sequence_id> sequences,
                      const options& how = {});

/// Results that the library allocates, row-major.
template <tensor_like Q>
tensor<typename Q::value_type> decode(const Q& q, kv_cache& cache, const options& how = {}) {
  tensor<typename Q::value_type> y(decoded_shape(q, cache, how));
  decode(array_view(q), cache, outputs{.out = y}, how);
  return y;
}
template <tensor_like Q>
tensor<typename Q::value_type> decode(const Q& q, const paged_kv_cache& cache, std::span<const sequence_id> sequences,
                                      const options& how = {}) {
  tensor<typename Q::value_type> y(decoded_shape(q, cache, sequences, how));
  decode(array_view(q), cache, sequences, outputs{.out = y}, how);
  return y;
}

}  // namespace attend

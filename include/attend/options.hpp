// Options of a call: one plain struct for designated initialisers.
//
// ```cpp
// attend::tensor<float> q({2, 8, 16, 64}, 0.5f), k({2, 2, 48, 64}, 0.5f);
// auto y = attend::attention(q, k, k, {.causal = true, .window = {31, 0}, .query_offset = attend::lower_right});
// ```
#pragma once

#include <cstdint>
#include <optional>

#include "attend/compatibility.hpp"
#include "attend/mask.hpp"
#include "attend/normalizer.hpp"
#include "attend/score.hpp"
#include "attend/tensor.hpp"

namespace attend {

class executor;

/// The two words for where query 0 stands: at key 0, or so that the last query stands at the last key (`length - L`).
enum class anchor : std::uint8_t { upper_left, lower_right };
inline constexpr anchor upper_left = anchor::upper_left;
inline constexpr anchor lower_right = anchor::lower_right;

/// One integer for all batches, or an array of them of the batch axes' shape. Not given by default.
class batch_integers {
 public:
  batch_integers() = default;
  batch_integers(std::int64_t value) : kind_(kind::one), value_(value) {}
  batch_integers(tensor_view<const std::int64_t> values) : kind_(kind::many), values_(values) {}
  batch_integers(tensor_view<std::int64_t> values) : batch_integers(tensor_view<const std::int64_t>(values)) {}
  batch_integers(const tensor<std::int64_t>& values) : batch_integers(values.view()) {}

  bool given() const noexcept { return kind_ != kind::none; }
  bool is_array() const noexcept { return kind_ == kind::many; }
  std::int64_t value() const noexcept { return value_; }
  const tensor_view<const std::int64_t>& values() const noexcept { return values_; }

 private:
  enum class kind : std::uint8_t { none, one, many };
  kind kind_ = kind::none;
  std::int64_t value_ = 0;
  tensor_view<const std::int64_t> values_;
};

/// Position of query 0 among the keys: an integer, one per batch, or an anchor. What compares positions uses `i +
/// query_offset` and `j`.
class query_position : public batch_integers {
 public:
  using batch_integers::batch_integers;
  query_position() = default;
  query_position(int value) : batch_integers(static_cast<std::int64_t>(value)) {}
  query_position(const batch_integers& values) : batch_integers(values) {}
  query_position(anchor word) : word_(word) {}

  bool given() const noexcept { return word_ || batch_integers::given(); }
  std::optional<anchor> word() const noexcept { return word_; }

 private:
  std::optional<anchor> word_;
};

/// Asked on the calling thread between work items, at most every few milliseconds; true stops the call with `interrupted`.
struct interrupt {
  bool (*requested)(void* context) = nullptr;
  void* context = nullptr;
};

/// Weights are dropped at random, and what is kept is scaled by 1 / (1 - p). Whether a pair is kept is a function of the seed and of the
/// pair's batch, head, query and key alone: Philox 4x32-10 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, 2011).
struct dropout {
  double p = 0;                            ///< probability, from 0 to 1
  std::optional<std::uint64_t> seed = {};  ///< default: drawn anew by every call
};

/// What a call computes; designated initialisers name the members in this order. Arrays named here are read, never kept, except by a plan, which needs them for as long as it runs.
struct options {
  bool causal = false;  ///< j <= i + query_offset
  attend::window window = {};
  query_position query_offset = {};  ///< needed where positions are compared and L != S
  batch_integers prefix = {};        ///< keys j < prefix are visible beside what causal and window allow; needs one of them
  // Segments: ids of documents, say. A pair is allowed where both ids are equal and not negative. Both are given or none, as int64
  // of shape (L) and (S), or (batch axes..., L) and (batch axes..., S).
  array_view query_segments = {};
  array_view key_segments = {};
  batch_integers key_lengths = {};         ///< keys j >= length are excluded and never read
  grid_size grid = {};                     ///< queries and keys are the cells of a grid, row by row: rows * columns = L = S
  attend::neighborhood neighborhood = {};  ///< cells around each cell of `grid`
  // A mask of keys per batch is (B, 1, 1, S). Caller's bytes: array_view(bytes, dtype::boolean, shape, strides).
  array_view mask = {};  ///< booleans, true = attend; NumPy broadcasting against (..., H, L, S)
  array_view bias = {};  ///< added to the scaled scores; the input's dtype or float32; -inf excludes
  /// Added to the scores by where the key stands from the query, and never expanded: a table over offsets from -R to R, (H or
  /// 1, 2R+1), by j - (i + query_offset), or with `grid` (H or 1, 2R+1, 2C+1), by row and column. Offsets beyond the table take
  /// its edge. The input's dtype or float32; -inf excludes.
  array_view relative = {};
  std::optional<double> scale = {};    ///< any finite number; default 1/sqrt(E) for dot, 1 for every other compatibility
  std::optional<double> softcap = {};  ///< cap * tanh(score / cap), before biases; a finite number above 0
  alibi_slopes alibi = {};             ///< after biases
  array_view sinks = {};  ///< (H): logits that join a row's denominator alone; the input's dtype or float32; softmax only
  score_list score = {};  ///< score functions that come first, in this order
  attend::compatibility compatibility = {};                     ///< scores are `scale * compatibility(q_i, k_j)`
  attend::normalizer normalizer = attend::normalizer::softmax;  ///< weights from scores
  attend::dropout dropout = {};
  attend::layout layout = attend::layout::bhld;
  bool reproducible = false;             ///< one kernel for every L: a row depends only on its own query, keys and options
  int threads = 0;                       ///< at most so many; 0 = `num_threads()`
  attend::executor* executor = nullptr;  ///< default: the library's own threads
  attend::interrupt interrupt = {};
};

}  // namespace attend

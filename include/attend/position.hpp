// Positions in queries and keys: rotary embeddings.
//
// ```cpp
// attend::tensor<float> q({1, 8, 16, 64}, 0.1f), k({1, 2, 16, 64}, 0.2f);
// attend::tensor<float> turned = attend::rotary_embedding(q, 100);  // tokens at the positions 100, 101, ..., 115
// attend::rotary_embedding(k, k, 100, {.base = 500000});            // in place
// ```
#pragma once

#include <cstdint>
#include <optional>

#include "attend/tensor.hpp"

namespace attend {

/// Where tokens stand: the first one's position, those after it following by one; or an int64 array, read and not kept, whose
/// last axis is L and which broadcasts to (batch axes..., L). Not given by default.
class token_positions {
 public:
  token_positions() = default;
  token_positions(std::int64_t first) : first_(first) {}
  token_positions(int first) : first_(first) {}
  token_positions(const array_view& positions) : values_(positions) {}
  template <tensor_like X>
  token_positions(X&& positions) : values_(positions) {}

  bool given() const noexcept { return first_ || values_; }
  const std::optional<std::int64_t>& first() const noexcept { return first_; }
  const array_view& values() const noexcept { return values_; }  ///< not given where the first position is

 private:
  std::optional<std::int64_t> first_;
  array_view values_;
};

/// Which elements form pairs, and by what angle each pair is turned.
struct rotary {
  bool interleaved = false;  ///< pairs are (0, 1), (2, 3), ...; default (GPT-NeoX): (0, n/2), (1, n/2 + 1), ... of n dimensions
  std::int64_t dimensions = 0;  ///< n: the first n elements of each head are turned, the others copied; even; 0 = all
  double base = 10000;          ///< pair m of a token at position p is turned by p / base^(2m/n); finite, at least 1
  /// Instead of `base`: cosines and sines of the angles, both or neither, of x's dtype or float32. Where positions are given,
  /// rows by position, (number of positions, n/2), which positions from 0 on point into; else rows by token: last axes (L,
  /// n/2), broadcasting to (batch axes..., L, n/2).
  array_view cos = {};
  array_view sin = {};
  attend::layout layout = attend::layout::bhld;
  int threads = 0;  ///< at most so many; 0 = `num_threads()`
};

/// Turns each pair (a, b) of a token's head by the token's angle: (a cos - b sin, a sin + b cos) (Su et al., RoFormer: Enhanced
/// Transformer with Rotary Position Embedding, 2021).
///
/// Shapes: x (..., H, L, E) with batch axes in front, or (..., L, H, E) in layout blhd; rank 2 is (L, E), rank 3 (H, L, E), or
/// (L, H, E) of packed sequences in layout blhd. Any dtype of attention's inputs, any strides. `out` has x's shape and dtype and is the very
/// same view as x or apart from it. Positions are given, or else rows of cosines and sines by token; without those, they lie
/// from -2^40 to 2^40. Angles are computed to more digits than float64 has, pairs in float64, and results are rounded once.
/// Throws `argument_error` before anything is written, `std::bad_alloc`.
void rotary_embedding(const array_view& x, const mutable_array_view& out, const token_positions& positions,
                      const rotary& how = {});

/// The same with a result that the library allocates, row-major.
template <tensor_like X>
tensor<typename X::value_type> rotary_embedding(const X& x, const token_positions& positions, const rotary& how = {}) {
  const array_view from(x);
  tensor<typename X::value_type> out(from.shape);
  rotary_embedding(from, out, positions, how);
  return out;
}

}  // namespace attend

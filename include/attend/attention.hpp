// Exact attention: y_i = sum over allowed j of w_ij v_j, by default w_ij = softmax_j(scale q_i . k_j + bias_ij).
//
// ```cpp
// attend::tensor<float> q({8, 128, 64}, 0.1f), k({8, 200, 64}, 0.2f), v({8, 200, 32}, 0.3f);
// attend::tensor<float> y = attend::attention(q, k, v);                                   // owned result, (8, 128, 32)
//
// attend::tensor<float> out({8, 128, 32}), lse({8, 128});
// attend::attention(q, k, v, {.out = out, .lse = lse}, {.causal = true, .query_offset = attend::lower_right});
// ```
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "attend/error.hpp"
#include "attend/options.hpp"
#include "attend/tensor.hpp"

namespace attend {

/// Which scores a call gives: `scale * compatibility(q, k)`; those behind the score list and the soft cap; or those that become weights,
/// with -inf where a pair is excluded. The first two take no notice of masks.
enum class score_stage : std::uint8_t { scaled, capped, biased };

/// "scaled", "capped", "biased"
std::string_view name_of(score_stage stage) noexcept;

/// Where results go: memory of the caller's, any strides, none of it overlapping an input. Only what is given is computed.
/// Results and weights below the smallest normal number of the accumulator (float32, or float64 of float64 inputs) may come out as 0.
struct outputs {
  mutable_array_view out = {};  ///< (..., H, L, Ev), or (..., L, H, Ev) in layout blhd; the inputs' dtype
  mutable_array_view lse =
      {};  ///< natural logarithm of each row's sum, (..., H, L): float32, or float64 for float64 inputs. Of softmax alone
  mutable_array_view weights = {};  ///< (..., H, L, S), the inputs' dtype; those after dropout
  mutable_array_view scores = {};  ///< (..., H, L, S), the inputs' dtype; -inf for keys at or past a length, which are not read
  attend::score_stage stage = score_stage::biased;  ///< of `scores`
};

/// Attention into memory of the caller's.
///
/// Shapes: q (..., H, L, E), k (..., Hk, S, E), v (..., Hk, S, Ev); rank 2 is (L, E), rank 3 (H, L, E), further leading axes
/// are batch axes and broadcast. `H % Hk == 0`; query head h reads key/value head h / (H/Hk). All of one dtype: float32,
/// float64, float16 or bfloat16. Allocates nothing but scratch kept per thread. Any number of threads may call at once. Throws `argument_error`
/// before anything is written, `interrupted`, `std::bad_alloc`.
void attention(const array_view& q, const array_view& k, const array_view& v, const outputs& results, const options& how = {});

/// What `attention` would throw as `argument_error`: its text, or nothing where the call is right.
std::optional<std::string> check(const array_view& q, const array_view& k, const array_view& v, const outputs& results,
                                 const options& how = {});

/// Shape of `out` for these inputs. Throws `argument_error`.
extents output_shape(const array_view& q, const array_view& k, const array_view& v, const options& how = {});

/// Attention with a result that the library allocates, row-major.
template <tensor_like Q, tensor_like K, tensor_like V>
tensor<typename Q::value_type> attention(const Q& q, const K& k, const V& v, const options& how = {}) {
  tensor<typename Q::value_type> y(output_shape(q, k, v, how));
  attention(array_view(q), array_view(k), array_view(v), outputs{.out = y}, how);
  return y;
}

/// Attention into one strided view.
template <tensor_like Q, tensor_like K, tensor_like V, tensor_like Out>
void attention(const Q& q, const K& k, const V& v, Out&& out, const options& how = {}) {
  attention(array_view(q), array_view(k), array_view(v), outputs{.out = out}, how);
}

}  // namespace attend

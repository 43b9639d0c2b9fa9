// Compatibility functions: how a query and a key become a score.
//
// ```cpp
// attend::tensor<float> x({50, 2}, 0.5f), y({50, 1}, 2.0f), at({7, 2}, 0.25f);
// attend::tensor<float> smooth = attend::attention(at, x, y, {.compatibility = attend::gaussian(0.7)});  // Nadaraya-Watson
//
// attend::tensor<float> w({2}, 1.0f);
// auto scored = attend::attention(at, x, y, {.compatibility = attend::additive(w)});
// auto uniform = attend::attention(at, x, y, {.compatibility = attend::compatibility::none});
// ```
#pragma once

#include <cstdint>
#include <string_view>

#include "attend/tensor.hpp"

namespace attend {

enum class compatibility_kind : std::uint8_t { dot, cosine, gaussian, l1, additive, none };

/// "dot", "cosine", "gaussian", "l1", "additive", "none"
std::string_view name_of(compatibility_kind kind) noexcept;

/// f(q, k) of a score `scale * f(q, k)`, for vectors of width E. By default the dot product, whose scale is 1/sqrt(E); that of
/// all others is 1. A bilinear form q . W k is the dot product of projected vectors.
struct compatibility {
  compatibility_kind kind = compatibility_kind::dot;
  double sigma = 1;         ///< of `gaussian`
  array_view weights = {};  ///< of `additive`: read, not kept

  static const compatibility dot;     ///< sum_d q_d k_d
  static const compatibility cosine;  ///< q . k / (|q| |k|); 0 where either is a zero vector
  static const compatibility l1;      ///< -sum_d |q_d - k_d|
  static const compatibility none;    ///< 0: neither q nor k is read
};

inline const compatibility compatibility::dot = {};
inline const compatibility compatibility::cosine = {.kind = compatibility_kind::cosine};
inline const compatibility compatibility::l1 = {.kind = compatibility_kind::l1};
inline const compatibility compatibility::none = {.kind = compatibility_kind::none};

/// -|q - k|^2 / (2 sigma^2), for a finite sigma above 0. Under softmax: Nadaraya-Watson kernel regression. In float32, |q| / sigma
/// and |k| / sigma have to stay in range where sigma is below 1e-9.
inline compatibility gaussian(double sigma) { return {.kind = compatibility_kind::gaussian, .sigma = sigma}; }

/// sum_d w_d tanh(q_d + k_d) for weights (E) of the inputs' dtype or float32 (Bahdanau et al., 2015).
inline compatibility additive(const array_view& weights) { return {.kind = compatibility_kind::additive, .weights = weights}; }

}  // namespace attend

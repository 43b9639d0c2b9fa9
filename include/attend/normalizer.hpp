// Normalisers: how the scores of a row become weights.
//
// ```cpp
// attend::tensor<float> q({1, 8}, 0.5f), x({1000, 8}, 0.25f);
// auto y = attend::attention(q, x, x, {.normalizer = attend::normalizer::mean});  // (1/N) sum_j (q . x_j) x_j
// assert(attend::name_of(attend::normalizer::relu2) == "relu2");
// ```
#pragma once

#include <cstdint>
#include <string_view>

namespace attend {

/// Weights w_j from the scores s_j of the N keys that a query may see. Only softmax has an LSE.
enum class normalizer : std::uint8_t {
  softmax,  ///< e^s_j / sum e^s
  mean,     ///< s_j / N; sums of it stay in range wherever the result does
  sum,      ///< s_j
  sigmoid,  ///< 1 / (1 + e^-s_j)
  relu2,    ///< max(s_j, 0)^2 over the row's sum; all 0 where that is 0
  abs,      ///< s_j over the row's sum of |s|; all 0 where that is 0
};

/// "softmax", "mean", "sum", "sigmoid", "relu2", "abs"
std::string_view name_of(normalizer kind) noexcept;

}  // namespace attend

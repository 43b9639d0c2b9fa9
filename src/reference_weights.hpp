// What the oracle makes of a row's scores: weights, and how a result moves with a score.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "attend/normalizer.hpp"
#include "reference_row.hpp"

namespace attend::reference {

/// Long sums are taken in blocks, so that rounding grows with the block and the number of blocks, not with their product.
inline constexpr std::size_t block_keys = 1024;

inline bool ends_block(std::size_t n, const std::vector<seen_key>& keys) {
  return (n + 1) % block_keys == 0 || n + 1 == keys.size();
}

inline double largest_score(const std::vector<seen_key>& keys) {
  double top = minus_infinity;
  for (const seen_key& key : keys) top = std::max(top, key.score);  // a NaN is met again in the sum
  return top;
}

inline double sum_of_magnitudes(const std::vector<seen_key>& keys) {
  double sum = 0, part = 0;
  for (std::size_t n = 0; n < keys.size(); ++n) {
    part += std::abs(keys[n].weight);
    if (ends_block(n, keys)) sum += std::exchange(part, 0.0);
  }
  return sum;
}

/// What all weights of a row have in common: scores are taken against `top` (softmax subtracts it; relu2 and abs divide by it, so
/// that no square leaves its range), numerators are divided by `sum`; of softmax, `sink` is the share that is no key's.
struct denominator {
  double top = 0, sum = 1, sink = 0;
  bool none = false;  // the sum is 0, and with it all weights
};

/// Weights as they are before dropout.
inline denominator weigh(normalizer kind, std::vector<seen_key>& keys, double sink) {
  denominator row;
  if (kind == normalizer::softmax) row.top = std::max(largest_score(keys), sink);
  if (kind == normalizer::relu2 || kind == normalizer::abs) {
    for (const seen_key& key : keys) row.top = std::max(row.top, kind == normalizer::abs ? std::abs(key.score) : key.score);
    if (row.top == 0 || std::isinf(row.top)) row.top = 1;  // beside an infinity the others weigh 0
  }
  for (seen_key& key : keys) {
    const double s = key.score;
    switch (kind) {
      case normalizer::softmax: key.weight = std::exp(s - row.top); break;
      case normalizer::sigmoid: key.weight = 1 / (1 + std::exp(-s)); break;
      case normalizer::relu2: key.weight = s <= 0 ? 0 : s / row.top * (s / row.top); break;  // NaN is not below 0 and stays
      case normalizer::abs: key.weight = s / row.top; break;
      case normalizer::mean:
      case normalizer::sum: key.weight = s; break;
    }
  }
  if (kind == normalizer::mean) row.sum = static_cast<double>(keys.size());
  if (attend::detail::are_shares(kind)) row.sum = sum_of_magnitudes(keys);
  if (sink != minus_infinity) row.sum += row.sink = std::exp(sink - row.top);
  row.none = row.sum == 0;
  if (row.none) row.sum = 1;  // the weights are 0 already
  for (seen_key& key : keys) key.weight /= row.sum;
  row.sink /= row.sum;
  return row;
}

/// How a result moves with a score: |dy/ds_j| = slope * |kept_j v_j - pull * y|.
struct response {
  double slope, pull;
};

inline response response_to(normalizer kind, const seen_key& key, const denominator& below) {
  switch (kind) {
    case normalizer::softmax: return {key.weight, 1};
    case normalizer::mean:
    case normalizer::sum: return {1 / below.sum, 0};
    case normalizer::sigmoid: {
      const double e =
          std::exp(-std::abs(key.score));  // w (1 - w), of which the difference would leave nothing for large scores
      return {e / ((1 + e) * (1 + e)), 0};
    }
    case normalizer::relu2: return {2 * std::max(key.score, 0.0) / below.top / below.sum / below.top, 1};
    case normalizer::abs: return {1 / below.sum / below.top, key.score > 0 ? 1.0 : key.score < 0 ? -1.0 : 0.0};
  }
  return {0, 0};
}

}  // namespace attend::reference

// What the reference says of a call, and how far results may be from it.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "reference_row.hpp"
#include "support/memory.hpp"
#include "support/random.hpp"
#include "support/results.hpp"
#include "validate.hpp"

namespace attend::test {

/// What a score contributes to its weight, before any division, and how that moves with the score.
struct numerator {
  double value, slope;
};

inline numerator numerator_of(normalizer kind, double score) {
  switch (kind) {
    case normalizer::sigmoid: return {1 / (1 + std::exp(-score)), 1 / (2 + std::exp(score) + std::exp(-score))};
    case normalizer::relu2: return {std::pow(std::max(score, 0.0), 2), 2 * std::max(score, 0.0)};
    default: return {std::abs(score), 1};
  }
}

/// How far each weight of a normalizer other than softmax may be from its truth, (batch, H, L, S). Weights are written in a
/// second pass, so a numerator and the sum that it is divided by may come from scores that were rounded differently.
template <class T>
tensor<double> weight_bounds(const detail::problem& p) {
  const bool shares = p.normalizer == normalizer::relu2 || p.normalizer == normalizer::abs;
  tensor<double> bounds({p.batch.count, p.heads, p.queries, p.keys});
  std::vector<reference::seen_key> keys;
  std::vector<numerator> numerators;
  for_each_index({p.batch.count, p.heads, p.queries}, [&](const extents& at) {
    reference::row<T>(p, at[0], at[1], at[2]).find_keys(keys);
    double size = 0, sum = 0, slopes = 0;
    numerators.clear();
    for (const auto& key : keys) {
      if (key.size < 1e30) size = std::max(size, key.size);
      numerators.push_back(numerator_of(p.normalizer, key.score));
      sum += numerators.back().value;
      slopes += numerators.back().slope;
    }
    if (!shares) sum = p.normalizer == normalizer::mean ? static_cast<double>(keys.size()) : 1;
    for (std::size_t n = 0; n < keys.size(); ++n) {
      const auto [value, slope] = numerators[n];
      const double weight = sum == 0 ? 0 : value / sum, moved = sum == 0 ? 0 : (slope + (shares ? weight * slopes : 0)) / sum;
      const double kept = std::max(1.0, keys[n].kept);
      double& bound = bounds(at[0], at[1], at[2], keys[n].j) = kept * relative_bound<accumulator<T>> * std::max(1.0, weight);
      const double inevitable =
          2 * static_cast<double>(std::numeric_limits<accumulator<T>>::epsilon()) * size * moved * keys[n].kept;
      if (std::isfinite(inevitable)) bound += inevitable;
    }
  });
  return bounds;
}

/// The reference's results of one call, to hold any number of computed ones to.
class expectation {
 public:
  expectation(const array_view& q, const array_view& k, const array_view& v, const options& how, bool weights)
      : truth_(reference::attention(q, k, v, how, weights)),
        bound_(reference::error_bound(q, k, v, how, truth_)),
        kept_(how.dropout.p < 1 ? 1 / (1 - how.dropout.p) : 1) {
    if (!weights || how.normalizer == normalizer::softmax) return;
    const detail::problem p = detail::validate(q, k, v, {}, how);
    weight_bound_ = detail::with_type(p.type, [&]<class T>(T) { return weight_bounds<T>(p); });
  }

  const reference::result& truth() const { return truth_; }

  template <class T>
  testing::AssertionResult met_by(const computed<T>& got) const {
    const auto within = [](const tensor<double>& bound) { return [&bound](std::int64_t i) { return bound.data()[i]; }; };
    if (auto right = near(got.out, truth_.out, within(bound_)); !right) return right << " (out)";
    if (truth_.lse.shape().rank() > 0)
      if (auto right = lse_near(got.lse, truth_.lse); !right) return right << " (lse)";
    if (truth_.weights.shape().rank() == 0) return testing::AssertionSuccess();
    // Under softmax a weight moves with the rounding of its own score, as lse does, and dropout makes both larger.
    const bool softmax = truth_.lse.shape().rank() > 0;
    const double common = softmax ? kept_ * relative_bound<accumulator<T>> * (2 + 4 * largest(truth_.lse)) : 0;
    const auto weight_bound = [&](std::int64_t i) {
      return (softmax ? common : weight_bound_.data()[i]) + stored_error<T>(truth_.weights.data()[i]);
    };
    if (auto right = near(got.weights, truth_.weights, weight_bound); !right) return right << " (weights)";
    return testing::AssertionSuccess();
  }

 private:
  reference::result truth_;
  tensor<double> bound_, weight_bound_;
  double kept_;  // what dropout multiplies weights by
};

/// All results of the call are those of the reference, within the error that the contract allows.
template <class T>
testing::AssertionResult as_reference(const computed<T>& got, const array_view& q, const array_view& k, const array_view& v,
                                      const options& how = {}) {
  return expectation(q, k, v, how, got.weights.shape().rank() > 0).met_by(got);
}

}  // namespace attend::test

// Backward calls with every gradient wanted, and how they are compared with the reference's.
#pragma once

#include <string>

#include "gradient_problem.hpp"
#include "reference_weights.hpp"
#include "support/compute.hpp"

namespace attend::test {

/// What a backward call begins from: inputs of a problem, results of its forward call, and gradients by these. Without an LSE, `lse` and
/// `dlse` are none.
template <class T>
struct backward_call_of {
  inputs<T> x;
  tensor<T> out, dout;
  tensor<accumulator<T>> lse, dlse;
  bool has_lse = false;

  backward_call_of(inputs<T>&& of, const options& how, std::uint64_t seed = 1) : x(std::move(of)) {
    computed<T> y = compute(x, how);
    out = std::move(y.out), lse = std::move(y.lse);
    dout = normal<T>(out.shape(), 500 + seed);
    has_lse = how.normalizer == normalizer::softmax;
    if (has_lse) dlse = normal<accumulator<T>>(lse.shape(), 600 + seed);
  }
  explicit backward_call_of(const sizes& n, const options& how = {}, std::uint64_t seed = 1)
      : backward_call_of(make_inputs<T>(n, seed, how.layout), how, seed) {}

  backward_inputs given() const {
    backward_inputs of{.dout = dout, .out = out};
    if (has_lse) of.lse = lse, of.dlse = dlse;
    return of;
  }
  owned_gradients<T> run(const options& how) const { return attention_backward(given(), x.q, x.k, x.v, how); }
  reference::gradients truth(const options& how) const {
    return reference::attention_backward(dout, given().dlse, x.q, x.k, x.v, how);
  }

  /// How large dq and dk would be where terms cancel that need not: of a row that relu2 or abs gives one key, whatever its score, and across
  /// the direction of a vector whose length does not matter. Their rounding stays, divided by small scores and lengths. 0 of other forms.
  double cancelled_size(const options& how) const {
    const detail::gradient_problem g = detail::validate_upstream(given(), x.q, x.k, x.v, {}, how);
    const detail::problem& p = g.call;
    const bool shares = p.normalizer == normalizer::relu2 || p.normalizer == normalizer::abs;
    if (!shares && p.compatibility != compatibility_kind::cosine) return 0;
    double by_score = 0, shortest = infinity;
    std::vector<reference::seen_key> keys;
    for_each_index({p.batch.count, p.heads, p.queries}, [&](const extents& at) {
      reference::row<T> row(p, at[0], at[1], at[2]);
      row.find_keys(keys);
      const reference::denominator below = reference::weigh(p.normalizer, keys, row.sink());
      std::vector<double> by_weight;
      double mean = 0;
      for (const auto& key : keys) {
        double size = 0;
        row.for_each_value(key.j, [&](std::size_t c, double value) {
          size += std::abs(
              value * reference::read<T>(detail::query_row(p, g.dout, at[0], at[1], at[2]), std::int64_t(c) * g.dout.column));
        });
        by_weight.push_back(key.kept * size);
        mean += std::abs(key.weight) * by_weight.back();
        if (p.compatibility == compatibility_kind::cosine) {
          for (const double length : {row.query().length, row.key(key.j).length})
            if (length > 0) shortest = std::min(shortest, length);
        }
      }
      for (std::size_t n = 0; n < keys.size(); ++n) {
        const reference::response to = reference::response_to(p.normalizer, keys[n], below);
        by_score = std::max(by_score, std::abs(to.slope) * (by_weight[n] + std::abs(to.pull) * mean));
      }
    });
    const double vectors = largest(x.q) + largest(x.k);
    const double slope = p.compatibility == compatibility_kind::cosine     ? 1 / shortest
                         : p.compatibility == compatibility_kind::gaussian ? vectors / p.sigma / p.sigma
                                                                           : std::max(1.0, vectors);
    return std::abs(p.scale) * by_score * slope;
  }
};

/// Within ten times the forward's bound, relative to the largest element. Sums over pairs may cancel, as they do along keys: these are judged
/// beside the `size` of what they are sums of.
template <class T, class Stored>
testing::AssertionResult gradient_near(const tensor<Stored>& got, const tensor<double>& truth, double size = 0) {
  const double bound = 10 * relative_bound<T> * std::max(size, largest(truth)) +
                       double(std::numeric_limits<accumulator<T>>::min()) + double(std::numeric_limits<Stored>::denorm_min());
  return near(got, truth, [&](std::int64_t) { return bound; });
}

template <class T>
testing::AssertionResult gradients_right(const owned_gradients<T>& got, const reference::gradients& truth,
                                         double cancelled = 0) {
  if (auto right = gradient_near<T>(got.dq, truth.dq, cancelled); !right) return right << " (dq)";
  if (auto right = gradient_near<T>(got.dk, truth.dk, cancelled); !right) return right << " (dk)";
  if (auto right = gradient_near<T>(got.dv, truth.dv); !right) return right << " (dv)";
  const double size = std::max({cancelled, largest(truth.dq), largest(truth.dk)});
  if (auto right = gradient_near<T>(got.dbias, truth.dbias, size); !right) return right << " (dbias)";
  if (auto right = gradient_near<T>(got.drelative, truth.drelative, size); !right) return right << " (drelative)";
  if (auto right = gradient_near<T>(got.dalibi, truth.dalibi, size); !right) return right << " (dalibi)";
  if (auto right = gradient_near<T>(got.dsinks, truth.dsinks, size); !right) return right << " (dsinks)";
  if (auto right = gradient_near<T>(got.dadditive, truth.dadditive, size); !right) return right << " (dadditive)";
  for (std::size_t n = 0; n < got.dscore.size(); ++n)
    if (auto right = gradient_near<T>(got.dscore[n], truth.dscore[n], size); !right) return right << " (dscore " << n << ")";
  return testing::AssertionSuccess();
}

template <class T>
testing::AssertionResult same_gradients(const owned_gradients<T>& a, const owned_gradients<T>& b) {
  if (auto same = same_bits(a.dq, b.dq); !same) return same << " (dq)";
  if (auto same = same_bits(a.dk, b.dk); !same) return same << " (dk)";
  if (auto same = same_bits(a.dv, b.dv); !same) return same << " (dv)";
  if (auto same = same_bits(a.dbias, b.dbias); !same) return same << " (dbias)";
  if (auto same = same_bits(a.drelative, b.drelative); !same) return same << " (drelative)";
  if (auto same = same_bits(a.dalibi, b.dalibi); !same) return same << " (dalibi)";
  if (auto same = same_bits(a.dsinks, b.dsinks); !same) return same << " (dsinks)";
  if (auto same = same_bits(a.dadditive, b.dadditive); !same) return same << " (dadditive)";
  for (std::size_t n = 0; n < a.dscore.size(); ++n)
    if (auto same = same_bits(a.dscore[n], b.dscore[n]); !same) return same << " (dscore " << n << ")";
  return testing::AssertionSuccess();
}

}  // namespace attend::test

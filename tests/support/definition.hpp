// The definition once more, dense and four-dimensional, sharing no code with the library: what keeps the reference honest.
#pragma once

#include <cmath>
#include <functional>
#include <vector>

#include "support/compute.hpp"
#include "support/memory.hpp"

namespace attend::test {

using vector = std::vector<double>;

/// Of a pair (batch, query head, query, key). A relative table is part of the bias here, a neighbourhood of what is allowed;
/// other score functions than a bias are `score`, of the scaled score and the pair.
struct pair_rules {
  std::function<bool(std::int64_t, std::int64_t, std::int64_t, std::int64_t)> allowed = [](auto...) { return true; };
  std::function<double(std::int64_t, std::int64_t, std::int64_t, std::int64_t)> bias = [](auto...) { return 0.0; };
  std::function<double(double, std::int64_t, std::int64_t, std::int64_t, std::int64_t)> score = [](double s, auto...) {
    return s;
  };
  std::function<double(std::int64_t)> sink = [](auto) { return -infinity; };  // of a head
  std::function<double(std::int64_t, std::int64_t, std::int64_t, std::int64_t)> kept = [](auto...) { return 1.0; };
  double scale = 1;
  std::function<double(const vector& q, const vector& k)> compatibility = [](const vector& q, const vector& k) {
    double dot = 0;
    for (std::size_t d = 0; d < q.size(); ++d) dot += q[d] * k[d];
    return dot;
  };
  attend::normalizer normalizer = attend::normalizer::softmax;
};

/// The weights of scores that are all finite and all allowed; of softmax, with a sink and also the logarithm of the sum.
inline vector weights_by_definition(normalizer kind, const vector& scores, double* lse = nullptr, double sink = -infinity) {
  vector w;
  double share = 0, top = sink;
  for (const double s : scores) top = std::max(top, s);
  for (const double s : scores) {
    w.push_back(kind == normalizer::softmax   ? std::exp(s - top)
                : kind == normalizer::sigmoid ? (1 + std::tanh(s / 2)) / 2
                : kind == normalizer::relu2   ? (s > 0 ? s * s : 0)
                                              : s);
    share += std::abs(w.back());
  }
  if (sink > -infinity) share += std::exp(sink - top);
  if (lse) *lse = top + std::log(share);
  if (kind == normalizer::sum || kind == normalizer::sigmoid || share == 0) return w;
  for (double& one : w) one /= kind == normalizer::mean ? static_cast<double>(scores.size()) : share;
  return w;
}

/// Attention over (B, H, L, E), (B, Hk, S, E), (B, Hk, S, Ev) for scores that are finite where they are allowed.
template <class T>
reference::result by_definition(const inputs<T>& x, const pair_rules& rules) {
  const std::int64_t B = x.q.shape()[0], H = x.q.shape()[1], L = x.q.shape()[2], E = x.q.shape()[3];
  const std::int64_t group = H / x.k.shape()[1], S = x.k.shape()[2], Ev = x.v.shape()[3];
  reference::result y{tensor<double>({B, H, L, Ev}), {}, tensor<double>({B, H, L, S})};
  const bool softmax = rules.normalizer == normalizer::softmax;
  if (softmax) y.lse = tensor<double>({B, H, L}, -infinity);
  for_each_index({B, H, L}, [&](const extents& at) {
    const std::int64_t b = at[0], h = at[1], i = at[2];
    std::vector<std::int64_t> keys;
    vector scores;
    for (std::int64_t j = 0; j < S; ++j) {
      if (!rules.allowed(b, h, i, j)) continue;
      vector query, key;
      for (std::int64_t d = 0; d < E; ++d)
        query.push_back(double(x.q(b, h, i, d))), key.push_back(double(x.k(b, h / group, j, d)));
      keys.push_back(j);
      scores.push_back(rules.score(rules.scale * rules.compatibility(query, key), b, h, i, j) + rules.bias(b, h, i, j));
    }
    if (softmax) y.lse(b, h, i) = rules.sink(h);
    if (keys.empty()) return;
    const vector w = weights_by_definition(rules.normalizer, scores, softmax ? &y.lse(b, h, i) : nullptr, rules.sink(h));
    for (std::size_t n = 0; n < keys.size(); ++n) {
      const double weight = y.weights(b, h, i, keys[n]) = w[n] * rules.kept(b, h, i, keys[n]);
      for (std::int64_t c = 0; c < Ev; ++c) y.out(b, h, i, c) += weight * double(x.v(b, h / group, keys[n], c));
    }
  });
  return y;
}

/// Two evaluations in float64 agree.
inline testing::AssertionResult same_result(const reference::result& a, const reference::result& b) {
  const double size = std::max({1.0, largest(b.out), largest(b.weights)});
  const auto tight = [&](std::int64_t) { return 1e-13 * size; };
  if (auto same = near(a.out, b.out, tight); !same) return same << " (out)";
  if (a.lse.size() != b.lse.size()) return testing::AssertionFailure() << "an lse in one alone";
  if (a.lse.size() > 0)
    if (auto same = near(a.lse, b.lse, [](std::int64_t) { return 1e-12; }); !same) return same << " (lse)";
  if (auto same = near(a.weights, b.weights, tight); !same) return same << " (weights)";
  return testing::AssertionSuccess();
}

}  // namespace attend::test

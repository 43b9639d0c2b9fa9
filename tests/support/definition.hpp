// The definition once more, dense and four-dimensional, sharing no code with the library: what keeps the reference honest.
#pragma once

#include <cmath>
#include <functional>

#include "support/compute.hpp"
#include "support/memory.hpp"

namespace attend::test {

/// Of a pair (batch, query head, query, key).
struct pair_rules {
  std::function<bool(std::int64_t, std::int64_t, std::int64_t, std::int64_t)> allowed = [](auto...) { return true; };
  std::function<double(std::int64_t, std::int64_t, std::int64_t, std::int64_t)> bias = [](auto...) { return 0.0; };
  double scale = 1;
};

/// Attention over (B, H, L, E), (B, Hk, S, E), (B, Hk, S, Ev) for scores that are finite where they are allowed.
template <class T>
reference::result by_definition(const inputs<T>& x, const pair_rules& rules) {
  const std::int64_t B = x.q.shape()[0], H = x.q.shape()[1], L = x.q.shape()[2], E = x.q.shape()[3];
  const std::int64_t group = H / x.k.shape()[1], S = x.k.shape()[2], Ev = x.v.shape()[3];
  reference::result y{tensor<double>({B, H, L, Ev}), tensor<double>({B, H, L}, -infinity), tensor<double>({B, H, L, S})};
  for_each_index({B, H, L}, [&](const extents& at) {
    const std::int64_t b = at[0], h = at[1], i = at[2];
    const auto score = [&](std::int64_t j) {
      double dot = 0;
      for (std::int64_t d = 0; d < E; ++d) dot += double(x.q(b, h, i, d)) * double(x.k(b, h / group, j, d));
      return rules.scale * dot + rules.bias(b, h, i, j);
    };
    double top = -infinity, sum = 0;
    for (std::int64_t j = 0; j < S; ++j)
      if (rules.allowed(b, h, i, j)) top = std::max(top, score(j));
    if (top == -infinity) return;
    for (std::int64_t j = 0; j < S; ++j)
      if (rules.allowed(b, h, i, j)) sum += y.weights(b, h, i, j) = std::exp(score(j) - top);
    y.lse(b, h, i) = top + std::log(sum);
    for (std::int64_t j = 0; j < S; ++j) {
      if (!rules.allowed(b, h, i, j)) continue;
      const double weight = y.weights(b, h, i, j) /= sum;
      for (std::int64_t c = 0; c < Ev; ++c) y.out(b, h, i, c) += weight * double(x.v(b, h / group, j, c));
    }
  });
  return y;
}

}  // namespace attend::test

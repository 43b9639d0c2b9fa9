// The general form as tests take it: every compatibility function and normalizer, regions of a grid, tables of offsets.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "support/definition.hpp"

namespace attend::test {

inline constexpr normalizer normalizers[] = {normalizer::softmax, normalizer::mean,  normalizer::sum,
                                             normalizer::sigmoid, normalizer::relu2, normalizer::abs};

/// All of them; w is that of `additive`.
inline std::vector<compatibility> compatibilities(const array_view& w) {
  return {compatibility::dot, compatibility::cosine, gaussian(1.5), compatibility::l1, additive(w), compatibility::none};
}

inline std::string form_of(const options& how) {
  return std::string(attend::name_of(how.compatibility.kind)) + ", " + std::string(attend::name_of(how.normalizer));
}

/// `base` with every compatibility function and every normalizer, in turn.
inline std::vector<options> every_form(const array_view& w, const options& base = {}) {
  std::vector<options> all;
  for (const compatibility& f : compatibilities(w)) {
    for (const normalizer z : normalizers) {
      all.push_back(base);
      all.back().compatibility = f;
      all.back().normalizer = z;
    }
  }
  return all;
}

/// f of the definition; w is that of `additive`.
inline std::function<double(const vector&, const vector&)> by_definition(const compatibility& f, const vector& w) {
  const auto sum = [](const vector& q, const vector& k, const auto& term) {
    double total = 0;
    for (std::size_t d = 0; d < q.size(); ++d) total += term(q[d], k[d], d);
    return total;
  };
  const auto dot = [=](const vector& q, const vector& k) { return sum(q, k, [](double a, double b, auto) { return a * b; }); };
  switch (f.kind) {
    case compatibility_kind::dot: return dot;
    case compatibility_kind::cosine:
      return [=](const vector& q, const vector& k) {
        const double lengths = std::sqrt(dot(q, q)) * std::sqrt(dot(k, k));
        return lengths == 0 ? 0 : dot(q, k) / lengths;
      };
    case compatibility_kind::gaussian:
      return [=, sigma = f.sigma](const vector& q, const vector& k) {
        return -(dot(q, q) - 2 * dot(q, k) + dot(k, k)) / (2 * sigma * sigma);
      };
    case compatibility_kind::l1:
      return [=](const vector& q, const vector& k) {
        return -sum(q, k, [](double a, double b, auto) { return std::abs(a - b); });
      };
    case compatibility_kind::additive:
      return [=](const vector& q, const vector& k) {
        return sum(q, k, [&](double a, double b, std::size_t d) { return w[d] * (1 - 2 / (std::exp(2 * (a + b)) + 1)); });
      };
    case compatibility_kind::none: break;
  }
  return [](const vector&, const vector&) { return 0.0; };
}

/// Neighbours along one axis, ascending. Shifted: of all runs of `kernel` cells that lie on the axis with the cell's remainder,
/// the one whose middle is nearest to the cell.
inline std::vector<std::int64_t> neighbors_along(std::int64_t at, std::int64_t size, std::int64_t kernel, std::int64_t dilation,
                                                 border edge) {
  std::vector<std::int64_t> best;
  const std::int64_t half = kernel / 2 * dilation;
  std::int64_t shift = size * dilation + half;  // farther than any
  for (std::int64_t middle = at % dilation - half; middle < size + half; middle += dilation) {
    const std::int64_t last = middle + half, first = middle - half, distance = std::abs(middle - at);
    const bool fits = edge == border::clip ? middle == at : first >= 0 && last < size;
    if (!fits || distance >= shift) continue;
    shift = distance;
    best.clear();
    for (std::int64_t cell = first; cell <= last; cell += dilation)
      if (cell >= 0 && cell < size) best.push_back(cell);
  }
  return best;
}

/// Whether cell j is in the neighbourhood of cell i, for every pair of cells: (cells, cells).
inline tensor<bool> neighbor_mask(const grid_size& grid, const neighborhood& near) {
  const std::int64_t cells = grid.rows * grid.columns;
  tensor<bool> mask({cells, cells});
  for (std::int64_t i = 0; i < cells; ++i) {
    for (const auto row : neighbors_along(i / grid.columns, grid.rows, near.kernel.rows, near.dilation.rows, near.border))
      for (const auto column :
           neighbors_along(i % grid.columns, grid.columns, near.kernel.columns, near.dilation.columns, near.border))
        mask(i, row * grid.columns + column) = true;
  }
  return mask;
}

inline std::int64_t clipped(std::int64_t offset, std::int64_t reach) {
  return std::max(-reach, std::min(reach, offset)) + reach;
}

/// The bias (heads of the table, cells, cells) that a table (heads, 2R+1, 2C+1) stands for on a grid.
template <class T>
tensor<T> expanded(const tensor<T>& table, const grid_size& grid) {
  const std::int64_t cells = grid.rows * grid.columns;
  tensor<T> bias({table.shape()[0], cells, cells});
  for_each_index(bias.shape(), [&](const extents& at) {
    const std::int64_t down = at[2] / grid.columns - at[1] / grid.columns, along = at[2] % grid.columns - at[1] % grid.columns;
    bias(at[0], at[1], at[2]) = table(at[0], clipped(down, table.shape()[1] / 2), clipped(along, table.shape()[2] / 2));
  });
  return bias;
}

/// The bias (B, heads of the table, L, S) that a table (heads, 2R+1) stands for where query 0 of batch b is at `first(b)`.
template <class T, class First>
tensor<T> expanded(const tensor<T>& table, const sizes& n, const First& first) {
  tensor<T> bias({n.B, table.shape()[0], n.L, n.S});
  for_each_index(bias.shape(), [&](const extents& at) {
    bias(at[0], at[1], at[2], at[3]) = table(at[1], clipped(at[3] - at[2] - first(at[0]), table.shape()[1] / 2));
  });
  return bias;
}

}  // namespace attend::test

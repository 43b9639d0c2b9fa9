// What the ten programs share: numbers, data, plain products, bounds. Their report is in report.hpp, their pictures in picture.hpp.
#pragma once

#include <attend/attend.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "picture.hpp"
#include "report.hpp"

namespace ladder {

/// What plain loops sum in. It has more digits than float64, so that a difference is attention's error and not that of the loops.
using real = long double;

/// Random numbers of mean 0 and variance 1, the same on every machine: sums of twelve uniform ones.
inline matrix numbers(const attend::extents& shape, std::uint64_t seed) {
  std::uint64_t state = seed << 40;
  const auto uniform = [&state] {  // splitmix64 (Steele, Lea, Flood, 2014)
    std::uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
  };
  matrix x(shape);
  for (double& number : x) {
    number = -6;
    for (int i = 0; i < 12; ++i) number += uniform();
  }
  return x;
}

/// These numbers in this shape.
inline matrix table(const attend::extents& shape, std::initializer_list<double> numbers) {
  matrix x(shape);
  std::copy_n(numbers.begin(), x.size(), x.begin());
  return x;
}

/// The matrix in a file of `data`: a row a line, a comment in the first line.
inline matrix load(const std::string& name) {
  std::ifstream file(std::string(ATTEND_LADDER_DATA "/") + name);
  std::vector<double> all;
  int64_t rows = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream text(line);
    for (double number = 0; text >> number;) all.push_back(number);
    ++rows;
  }
  if (rows == 0) throw std::runtime_error(name + ": expected rows of numbers, got none");
  matrix x({rows, static_cast<int64_t>(all.size()) / rows});
  if (x.size() != static_cast<int64_t>(all.size())) throw std::runtime_error(name + ": expected rows of one length");
  std::copy(all.begin(), all.end(), x.begin());
  return x;
}

/// A picture of 64 x 64 cells, row by row: red, green and blue of each from 0 to 1, (4096, 3).
inline matrix colour_picture() {
  const matrix rows = load("cat.txt");
  matrix x({64 * 64, 3});
  std::transform(rows.begin(), rows.end(), x.begin(), [](double shade) { return shade / 255; });
  return x;
}

/// The same in grey, the mean of the three: (1, 4096, 1).
inline matrix grey_picture() {
  const matrix colours = colour_picture();
  matrix x({1, 64 * 64, 1});
  for (int64_t i = 0; i < x.size(); ++i) x(0, i, 0) = (colours(i, 0) + colours(i, 1) + colours(i, 2)) / 3;
  return x;
}

/// f of every number.
template <class Number = double, class From, class Function>
tensor<Number> map(const tensor<From>& x, Function f) {
  tensor<Number> y(x.shape());
  std::transform(x.begin(), x.end(), y.begin(), f);
  return y;
}

/// The same numbers in another type.
template <class Number, class From>
tensor<Number> as(const tensor<From>& x) {
  return map<Number>(x, [](From number) { return static_cast<Number>(number); });
}

/// Sums of plain loops as float64.
inline matrix rounded(const tensor<real>& x) { return as<double>(x); }

/// These rows of a matrix.
inline matrix rows(const matrix& x, const std::vector<int64_t>& which) {
  const int64_t width = x.shape()[1];
  matrix y({static_cast<int64_t>(which.size()), width});
  for (std::size_t n = 0; n < which.size(); ++n)
    std::copy_n(x.data() + which[n] * width, width, y.data() + static_cast<int64_t>(n) * width);
  return y;
}

/// Row i of a matrix.
inline matrix row(const matrix& x, int64_t i) { return rows(x, {i}); }

/// The `count` indices from `first` on.
inline std::vector<int64_t> range(int64_t first, int64_t count) {
  std::vector<int64_t> indices(static_cast<std::size_t>(count));
  std::iota(indices.begin(), indices.end(), first);
  return indices;
}

/// Makes a row of one row the row i of a matrix.
inline void set_row(matrix& x, int64_t i, const matrix& row_of_x) {
  std::copy(row_of_x.begin(), row_of_x.end(), x.data() + i * row_of_x.size());
}

/// Rows and columns exchanged, without moving a number.
template <tensor_like Matrix>
tensor_view<const typename Matrix::value_type> transposed(const Matrix& x) {
  const auto m = x.view();
  return {m.data, {m.shape[1], m.shape[0]}, {m.strides[1], m.strides[0]}};
}

/// Options of a sum whose weights are given, not computed: they are added to scores of 0, and used as they are.
inline attend::options weights_given(const matrix& weights) {
  return {.bias = weights, .compatibility = compatibility::none, .normalizer = normalizer::sum};
}

/// |x| of every number. A weighted sum of absolute numbers, Σ_j |w_j v_j|, is the size that rounding errors go by.
inline matrix absolute(const matrix& x) {
  return map(x, [](double number) { return std::abs(number); });
}

/// The bound for sums of this size: four units in the last place.
inline matrix four_ulp(const matrix& size) {
  return map(size, [](double s) { return 4 * (std::nextafter(s, std::numeric_limits<double>::infinity()) - s); });
}

/// The bound of the library's contract, for long sums and softmax.
template <tensor_like Q, tensor_like K, tensor_like V>
matrix allowed(const Q& q, const K& k, const V& v, const attend::options& how = {}) {
  return attend::reference::error_bound(q, k, v, how, attend::reference::attention(q, k, v, how));
}

/// The same for `project(W, X)`.
inline matrix allowed_projection(const matrix& W, const matrix& X) {
  const matrix q({X.shape()[0], 0}), k({X.shape()[1], 0});
  return allowed(q, k, transposed(W), weights_given(X));
}

/// The weights of a call.
template <tensor_like Q, tensor_like K, tensor_like V>
matrix weights(const Q& q, const K& k, const V& v, const attend::options& how = {}) {
  matrix w({q.view().shape[0], k.view().shape[0]});
  attend::attention(q, k, v, {.weights = w}, how);
  return w;
}

/// The same for a picture, which leaves open what a mask excludes: only there a softmax gives 0.
template <tensor_like Q, tensor_like K, tensor_like V>
matrix shown_weights(const Q& q, const K& k, const V& v, const attend::options& how) {
  return map(weights(q, k, v, how), [](double w) { return w == 0 ? NAN : w; });
}

/// 1 on the diagonal, else 0.
inline matrix identity(int64_t n) {
  matrix I({n, n});
  for (int64_t i = 0; i < n; ++i) I(i, i) = 1;
  return I;
}

/// W x_i for every row x_i of X, as attention. A matrix times a vector is the sum of the matrix's columns, weighted by the
/// vector's components; so the elements are the columns of W, and X holds the weights (step 1).
template <tensor_like Matrix>
matrix project(const Matrix& W, const matrix& X) {
  const matrix q({X.shape()[0], 0}), k({X.shape()[1], 0});  // vectors without components: nothing is asked
  return attend::attention(q, k, transposed(W), weights_given(X));
}

/// W x_i for every row x_i of X, in plain loops.
template <tensor_like Matrix>
matrix product(const Matrix& W, const matrix& X) {
  const auto w = W.view();
  tensor<real> Y({X.shape()[0], w.shape[0]});
  for (int64_t i = 0; i < X.shape()[0]; ++i)
    for (int64_t c = 0; c < w.shape[0]; ++c)
      for (int64_t j = 0; j < w.shape[1]; ++j) Y(i, c) += real(w(c, j)) * X(i, j);
  return rounded(Y);
}

/// The mean of x² over all numbers.
inline double mean_square(const matrix& x) {
  return std::inner_product(x.begin(), x.end(), x.begin(), 0.0) / static_cast<double>(x.size());
}

/// The largest number of a row, on average over the rows.
inline double mean_largest(const matrix& x) {
  const int64_t columns = x.shape()[1];
  double sum = 0;
  for (int64_t i = 0; i < x.shape()[0]; ++i) sum += *std::max_element(x.data() + i * columns, x.data() + (i + 1) * columns);
  return sum / static_cast<double>(x.shape()[0]);
}

}  // namespace ladder

// The oracle: the definition in float64, one row of scores at a time, no tiles, no shortcuts. Read `evaluate` first.
//
// It shares the checks with the library, and nothing else: which keys a query may see is decided here key by key.
#include "attend/reference.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "validate.hpp"

namespace attend::reference {
namespace {

using detail::operand;
using detail::problem;
using detail::row_pointer;

constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

/// Long sums are taken in blocks, so that rounding grows with the block and the number of blocks, not with their product.
constexpr std::int64_t block_keys = 1024;

/// Element `index` of a row that may lie at any address.
template <class T>
double read(const void* row, std::int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(row) + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

/// Index of query i of head h of batch b among the rows of `lse` and `weights`.
std::int64_t row_index(const problem& p, std::int64_t b, std::int64_t h, std::int64_t i) {
  return (b * p.heads + h) * p.queries + i;
}

/// Index of the row's first column in `out`.
std::int64_t out_index(const problem& p, layout order, std::int64_t b, std::int64_t h, std::int64_t i) {
  const std::int64_t row = order == layout::bhld ? row_index(p, b, h, i) : (b * p.queries + i) * p.heads + h;
  return row * p.value_width;
}

/// One query of one head, and the keys that it may see.
template <class T>
class row {
 public:
  row(const problem& p, std::int64_t b, std::int64_t h, std::int64_t i)
      : p_(p),
        b_(b),
        h_(h),
        i_(i),
        position_(detail::first_position(p, b) + i),
        length_(detail::key_length(p, b)),
        prefix_(p.has_prefix ? detail::batch_value(p.batch, b, p.prefix) : 0),
        q_(row_pointer(p.batch, p.q, b, h, i)) {}

  /// Calls `visit(j, bias)` for every key that is not excluded, in order. Nothing of an excluded key's K or V is read.
  template <class Visit>
  void for_each_allowed(const Visit& visit) const {
    for (std::int64_t j = 0; j < length_; ++j) {
      if (!(j < prefix_ || seen(j - position_))) continue;
      if (p_.mask && read<unsigned char>(row_of(p_.mask), j * p_.mask.column) == 0) continue;
      const std::int64_t at = j * p_.bias.column;
      const double bias = !p_.bias                     ? 0
                          : p_.bias.type == dtype::f32 ? read<float>(row_of(p_.bias), at)
                                                       : read<double>(row_of(p_.bias), at);
      if (bias != minus_infinity) visit(j, bias);
    }
  }

  double score(std::int64_t j, double bias) const {
    double dot = 0;
    for_each_product(j, [&](double product) { dot += product; });
    return p_.scale * dot + bias;
  }

  /// What rounding the score is relative to: the sizes of its terms.
  double score_size(std::int64_t j, double bias) const {
    double size = 0;
    for_each_product(j, [&](double product) { size += std::abs(product); });
    return std::abs(p_.scale) * size + std::abs(bias);
  }

  double value(std::int64_t j, std::int64_t c) const {
    return read<T>(row_pointer(p_.batch, p_.v, b_, h_ / p_.group, j), c * p_.v.column);
  }

 private:
  /// By causal and window, a key so far from the query's position.
  bool seen(std::int64_t distance) const {
    return (!p_.causal || distance <= 0) && (!p_.left || distance >= -*p_.left) && (!p_.right || distance <= *p_.right);
  }

  const void* row_of(const operand& x) const { return row_pointer(p_.batch, x, b_, h_, i_); }

  template <class Visit>
  void for_each_product(std::int64_t j, const Visit& visit) const {
    const void* const key = row_pointer(p_.batch, p_.k, b_, h_ / p_.group, j);
    for (std::int64_t d = 0; d < p_.width; ++d) visit(read<T>(q_, d * p_.q.column) * read<T>(key, d * p_.k.column));
  }

  const problem& p_;
  std::int64_t b_, h_, i_, position_, length_, prefix_;
  const void* q_;
};

template <class T, class Visit>
void for_each_row(const problem& p, const Visit& visit) {
  for (std::int64_t b = 0; b < p.batch.count; ++b) {
    for (std::int64_t h = 0; h < p.heads; ++h) {
      for (std::int64_t i = 0; i < p.queries; ++i) visit(row<T>(p, b, h, i), b, h, i);
    }
  }
}

/// A key with what it has in this row: its final score, then its weight.
struct scored_key {
  std::int64_t j;
  double weight;
};

template <class T>
void evaluate(const problem& p, layout order, result& y) {
  std::vector<scored_key> keys;
  std::vector<double> block(static_cast<std::size_t>(p.value_width));
  for_each_row<T>(p, [&](const row<T>& one, std::int64_t b, std::int64_t h, std::int64_t i) {
    keys.clear();
    one.for_each_allowed([&](std::int64_t j, double bias) {
      const double score = one.score(j, bias);
      if (score != minus_infinity) keys.push_back({j, score});
    });
    double& lse = y.lse.data()[row_index(p, b, h, i)];
    lse = minus_infinity;
    if (keys.empty()) return;  // the row stays 0

    double top = minus_infinity, sum = 0, part = 0;
    for (const scored_key& key : keys) top = std::max(top, key.weight);  // a NaN is met again in the sum
    for (std::size_t n = 0; n < keys.size(); ++n) {
      part += keys[n].weight = std::exp(keys[n].weight - top);
      if ((n + 1) % block_keys == 0 || n + 1 == keys.size()) sum += std::exchange(part, 0.0);
    }
    lse = top + std::log(sum);

    double* const out = y.out.data() + out_index(p, order, b, h, i);
    for (std::size_t n = 0; n < keys.size(); ++n) {
      const double weight = keys[n].weight /= sum;
      for (std::int64_t c = 0; c < p.value_width; ++c) block[static_cast<std::size_t>(c)] += weight * one.value(keys[n].j, c);
      if ((n + 1) % block_keys == 0 || n + 1 == keys.size()) {
        for (std::int64_t c = 0; c < p.value_width; ++c) out[c] += std::exchange(block[static_cast<std::size_t>(c)], 0.0);
      }
    }
    if (y.weights.size() > 0) {
      for (const scored_key& key : keys) y.weights.data()[row_index(p, b, h, i) * p.keys + key.j] = key.weight;
    }
  });
}

/// The largest finite |v|, read once for each batch that has values of its own.
template <class T>
double largest_value(const problem& p) {
  double largest = 0;
  for (std::int64_t b = 0; b < p.batch.count; ++b) {
    if (b > 0 && std::all_of(p.v.batch, p.v.batch + p.batch.axes, [](std::int64_t stride) { return stride == 0; })) break;
    for (std::int64_t h = 0; h < p.kv_heads; ++h) {
      for (std::int64_t j = 0; j < detail::key_length(p, b); ++j) {
        const void* const values = row_pointer(p.batch, p.v, b, h, j);
        for (std::int64_t c = 0; c < p.value_width; ++c) {
          const double size = std::abs(read<T>(values, c * p.v.column));
          if (std::isfinite(size)) largest = std::max(largest, size);
        }
      }
    }
  }
  return largest;
}

template <class T>
void bound_errors(const problem& p, layout order, const result& truth, tensor<double>& bounds) {
  constexpr bool narrow = std::is_same_v<T, float>;
  constexpr double epsilon = std::numeric_limits<T>::epsilon();
  const double largest = largest_value<T>(p);
  // Below the smallest normal number results may be flushed.
  const double common = (narrow ? 2e-6 : 1e-12) * largest + std::numeric_limits<T>::min();
  std::fill(bounds.begin(), bounds.end(), common);
  for_each_row<T>(p, [&](const row<T>& one, std::int64_t b, std::int64_t h, std::int64_t i) {
    double size = 0;
    one.for_each_allowed([&](std::int64_t j, double bias) {
      const double own = one.score_size(j, bias);
      if (own < 1e30) size = std::max(size, own);  // infinite and NaN scores have results that are exact: infinite or NaN
    });
    // Weights sum to 1 and |v_j - y| is at most 2 max|v|: most rows need no second look.
    if (2 * epsilon * size * 2 * largest <= common) return;
    const double lse = truth.lse.data()[row_index(p, b, h, i)];
    const std::int64_t first = out_index(p, order, b, h, i);
    std::vector<double> moved(static_cast<std::size_t>(p.value_width));
    one.for_each_allowed([&](std::int64_t j, double bias) {
      const double weight = std::exp(one.score(j, bias) - lse);
      for (std::int64_t c = 0; c < p.value_width; ++c)
        moved[static_cast<std::size_t>(c)] += weight * std::abs(one.value(j, c) - truth.out.data()[first + c]);
    });
    for (std::int64_t c = 0; c < p.value_width; ++c) {
      const double inevitable = 2 * epsilon * size * moved[static_cast<std::size_t>(c)];
      if (std::isfinite(inevitable)) bounds.data()[first + c] = std::max(common, inevitable);
    }
  });
}

}  // namespace

result attention(const array_view& q, const array_view& k, const array_view& v, const options& how, bool weights) {
  const problem p = detail::validate(q, k, v, {}, how);
  const bool matrices = q.shape.rank() == 2;
  result y{tensor<double>(detail::out_shape(p, how.layout, matrices)), tensor<double>(detail::lse_shape(p, matrices)), {}};
  if (weights) y.weights = tensor<double>(detail::weights_shape(p, matrices));
  p.type == dtype::f32 ? evaluate<float>(p, how.layout, y) : evaluate<double>(p, how.layout, y);
  return y;
}

tensor<double> error_bound(const array_view& q, const array_view& k, const array_view& v, const options& how,
                           const result& truth) {
  const problem p = detail::validate(q, k, v, {}, how);
  const bool matrices = q.shape.rank() == 2;
  tensor<double> bounds(detail::out_shape(p, how.layout, matrices));
  if (truth.out.shape() != bounds.shape() || truth.lse.shape() != detail::lse_shape(p, matrices)) {
    throw argument_error("truth", "the reference's result of the same call, with out of shape " + bounds.shape().to_string(),
                         "one of shape " + truth.out.shape().to_string());
  }
  p.type == dtype::f32 ? bound_errors<float>(p, how.layout, truth, bounds) : bound_errors<double>(p, how.layout, truth, bounds);
  return bounds;
}

}  // namespace attend::reference

// The oracle: the definition in float64, one row of scores at a time, no tiles, no shortcuts. Read `evaluate` first.
//
// It shares the checks, the paper's slopes of ALiBi and the random words of dropout with the library (tests hold these two to
// what is known of them), and nothing else: which keys a query may see is decided key by key (reference_row.hpp).
#include "attend/reference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "reference_row.hpp"
#include "reference_weights.hpp"
#include "validate.hpp"

namespace attend::reference {
namespace {

/// Index of query i of head h of batch b among the rows of `lse` and `weights`; packed rows are (total, heads).
std::int64_t row_index(const problem& p, std::int64_t b, std::int64_t h, std::int64_t i) {
  if (p.query_starts) return (first_row(p.query_starts, b) + i) * p.heads + h;
  return (b * p.heads + h) * p.queries + i;
}

/// Index of the row's first column in `out`.
std::int64_t out_index(const problem& p, layout order, std::int64_t b, std::int64_t h, std::int64_t i) {
  const bool heads_last = order == layout::blhd && !p.query_starts;
  return (heads_last ? (b * p.queries + i) * p.heads + h : row_index(p, b, h, i)) * p.value_width;
}

template <class T, class Visit>
void for_each_row(const problem& p, const Visit& visit) {
  for (std::int64_t b = 0; b < p.batch.count; ++b) {
    for (std::int64_t h = 0; h < p.heads; ++h) {
      for (std::int64_t i = 0; i < queries_of(p, b); ++i) visit(row<T>(p, b, h, i), b, h, i);
    }
  }
}

template <class T>
void evaluate(const problem& p, layout order, result& y) {
  std::vector<seen_key> keys;
  std::vector<double> block(static_cast<std::size_t>(p.value_width));
  for_each_row<T>(p, [&](row<T>&& one, std::int64_t b, std::int64_t h, std::int64_t i) {
    one.find_keys(keys);
    const denominator below = weigh(p.normalizer, keys, one.sink());
    for (seen_key& key : keys) key.weight *= key.kept;  // a NaN stays one where it is dropped
    if (p.normalizer == normalizer::softmax)
      y.lse.data()[row_index(p, b, h, i)] = keys.empty() ? one.sink() : below.top + std::log(below.sum);

    double* const out = y.out.data() + out_index(p, order, b, h, i);  // 0, and stays 0 in an empty row
    for (std::size_t n = 0; n < keys.size(); ++n) {
      one.for_each_value(keys[n].j, [&](std::size_t c, double value) { block[c] += keys[n].weight * value; });
      if (!ends_block(n, keys)) continue;
      for (std::size_t c = 0; c < block.size(); ++c) out[c] += std::exchange(block[c], 0.0);
    }
    if (y.weights.size() > 0) {
      for (const seen_key& key : keys) y.weights.data()[row_index(p, b, h, i) * p.keys + key.j] = key.weight;
    }
  });
}

/// The largest finite |v|, read once for each batch that has values of its own.
template <class T>
double largest_value(const problem& p) {
  double largest = 0;
  for (std::int64_t b = 0; b < p.batch.count; ++b) {
    if (b > 0 && !p.key_starts &&
        std::all_of(p.v.batch, p.v.batch + p.batch.axes, [](std::int64_t stride) { return stride == 0; }))
      break;
    for (std::int64_t h = 0; h < p.kv_heads; ++h) {
      for (std::int64_t j = 0; j < attend::detail::key_length(p, b); ++j) {
        const void* const values = key_row(p, p.v, b, h, j);
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
inline constexpr double relative_bound = std::is_same_v<T, double>    ? 1e-12
                                         : std::is_same_v<T, float>   ? 2e-6
                                         : std::is_same_v<T, float16> ? 1e-3
                                                                      : 8e-3;

template <class T>
void bound_errors(const problem& p, layout order, const result& truth, tensor<double>& bounds) {
  constexpr double relative = relative_bound<T>, epsilon = std::numeric_limits<accumulator<T>>::epsilon();
  // Below the smallest normal number of the accumulator results may be flushed, and float16 has fewer numbers there than that.
  constexpr double flushed = std::max<double>(std::numeric_limits<accumulator<T>>::min(), std::numeric_limits<T>::denorm_min());
  const double largest = largest_value<T>(p);
  std::fill(bounds.begin(), bounds.end(), relative * largest + flushed);
  std::vector<seen_key> keys;
  std::vector<double> sizes(static_cast<std::size_t>(p.value_width)), moved(sizes);
  for_each_row<T>(p, [&](row<T>&& one, std::int64_t b, std::int64_t h, std::int64_t i) {
    one.find_keys(keys);
    double size = one.sink() == minus_infinity ? 0 : std::abs(one.sink());
    if (!(size < 1e30)) size = 0;
    for (const seen_key& key : keys) {
      if (key.size < 1e30) size = std::max(size, key.size);  // infinite and NaN scores have results that are exact
    }
    // Where weights are shares and |v_j - y| is at most 2 max|v|, most rows need no second look.
    if (p.normalizer == normalizer::softmax && p.dropout_p == 0 && 4 * epsilon * size <= relative) return;
    const denominator below = weigh(p.normalizer, keys, one.sink());
    const double* const y = truth.out.data() + out_index(p, order, b, h, i);
    double* const bound = bounds.data() + out_index(p, order, b, h, i);
    std::fill(sizes.begin(), sizes.end(), 0.0);
    std::fill(moved.begin(), moved.end(), 0.0);
    for (const seen_key& key : keys) {
      const response to = response_to(p.normalizer, key, below);
      one.for_each_value(key.j, [&](std::size_t c, double value) {
        sizes[c] += std::abs(key.weight * key.kept * value);
        moved[c] += to.slope * std::abs(key.kept * value - to.pull * y[c]);
      });
    }
    for (std::size_t c = 0; c < moved.size(); ++c) {
      moved[c] += below.sink * std::abs(y[c]);
      for (const double other : {relative * sizes[c] + flushed, 2 * epsilon * size * moved[c]})
        if (std::isfinite(other)) bound[c] = std::max(bound[c], other);
    }
  });
}

template <class... Arguments>
void evaluate(const problem& p, Arguments&&... more) {
  attend::detail::with_type(p.type, [&]<class T>(T) { evaluate<T>(p, more...); });
}

tensor<double> bounds_of(const problem& p, const extents& shape, const options& how, const result& truth) {
  if (truth.out.shape() != shape) {
    throw argument_error("truth", "the reference's result of the same call, with out of shape " + shape.to_string(),
                         "one of shape " + truth.out.shape().to_string());
  }
  if (how.dropout.p > 0 && !how.dropout.seed)
    throw argument_error("seed", "the seed that truth was made with", "none, which draws another");
  tensor<double> bounds(shape);
  attend::detail::with_type(p.type, [&]<class T>(T) { bound_errors<T>(p, how.layout, truth, bounds); });
  return bounds;
}

extents packed_shape(const array_view& q, const problem& p) { return {q.shape[0], p.heads, p.value_width}; }

}  // namespace

result attention(const array_view& q, const array_view& k, const array_view& v, const options& how, bool weights) {
  const problem p = attend::detail::validate(q, k, v, {}, how);
  const bool matrices = q.shape.rank() == 2;
  result y{.out = tensor<double>(attend::detail::out_shape(p, how.layout, matrices)), .lse = {}, .weights = {}};
  if (p.normalizer == normalizer::softmax) y.lse = tensor<double>(attend::detail::lse_shape(p, matrices));
  if (weights) y.weights = tensor<double>(attend::detail::weights_shape(p, matrices));
  evaluate(p, how.layout, y);
  return y;
}

result attention_varlen(const array_view& q, const array_view& k, const array_view& v, const array_view& cu_seqlens_q,
                        const array_view& cu_seqlens_k, const options& how) {
  const problem p = attend::detail::validate_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, {}, how);
  result y{.out = tensor<double>(packed_shape(q, p)), .lse = {}, .weights = {}};
  if (p.normalizer == normalizer::softmax) y.lse = tensor<double>({q.shape[0], p.heads});
  evaluate(p, how.layout, y);
  return y;
}

tensor<double> error_bound(const array_view& q, const array_view& k, const array_view& v, const options& how,
                           const result& truth) {
  const problem p = attend::detail::validate(q, k, v, {}, how);
  return bounds_of(p, attend::detail::out_shape(p, how.layout, q.shape.rank() == 2), how, truth);
}

tensor<double> error_bound_varlen(const array_view& q, const array_view& k, const array_view& v, const array_view& cu_seqlens_q,
                                  const array_view& cu_seqlens_k, const options& how, const result& truth) {
  const problem p = attend::detail::validate_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, {}, how);
  return bounds_of(p, packed_shape(q, p), how, truth);
}

}  // namespace attend::reference

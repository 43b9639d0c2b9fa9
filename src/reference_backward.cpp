// The oracle of gradients: the definition in float64, one row of scores at a time, no tiles. Read `differentiate` first.
#include <cmath>
#include <vector>

#include "attend/reference.hpp"
#include "gradient_problem.hpp"
#include "reference_row.hpp"
#include "reference_weights.hpp"

namespace attend::reference {
namespace {

using attend::detail::gradient_operands;
using attend::detail::gradient_problem;

/// Adds to an element of a gradient, where it is wanted.
void add(const operand& to, std::int64_t offset, double x) {
  if (to) static_cast<double*>(to.data)[offset] += x;
}

/// Slopes of f(q, k) by every element of q, of k, and of the weights of `additive`.
struct compatibility_slopes {
  std::vector<double> by_q, by_k, by_weights;
};

/// Where f has a corner, at equal elements of l1, and where it has none, at a zero vector of cosine, the slope is 0.
void find_slopes(const problem& p, const direction& query, const direction& key, compatibility_slopes& to) {
  const std::size_t width = query.at.size();
  for (std::vector<double>* all : {&to.by_q, &to.by_k, &to.by_weights}) all->assign(width, 0);
  double cosine = 0;
  for (std::size_t d = 0; d < width; ++d) cosine += query.at[d] * key.at[d];
  for (std::size_t d = 0; d < width; ++d) {
    const double q = query.at[d], k = key.at[d];
    switch (p.compatibility) {
      case compatibility_kind::dot: to.by_q[d] = k, to.by_k[d] = q; break;
      case compatibility_kind::cosine:
        if (query.length != 0) to.by_q[d] = (k - cosine * q) / query.length;
        if (key.length != 0) to.by_k[d] = (q - cosine * k) / key.length;
        break;
      case compatibility_kind::gaussian:
        to.by_q[d] = (k - q) / p.sigma / p.sigma;
        to.by_k[d] = -to.by_q[d];
        break;
      case compatibility_kind::l1:
        to.by_q[d] = k > q ? 1 : k < q ? -1 : k - q;  // NaN stays
        to.by_k[d] = -to.by_q[d];
        break;
      case compatibility_kind::additive: {
        const double e = std::exp(-2 * std::abs(q + k));  // 1 - tanh^2, which would lose what little is left of it beside 1
        to.by_weights[d] = std::tanh(q + k);
        to.by_q[d] = to.by_k[d] = number_at(p.additive_weights, static_cast<std::int64_t>(d) * p.additive_weights.column) * 4 *
                                  e / ((1 + e) * (1 + e));
        break;
      }
      case compatibility_kind::none: break;
    }
  }
}

/// One row of weights and what reaches it from behind.
template <class T>
class row_gradient {
 public:
  row_gradient(const gradient_problem& g, std::int64_t b, std::int64_t h, std::int64_t i)
      : g_(g), p_(g.call), own_(p_, b, h, i), b_(b), h_(h), i_(i) {}

  void operator()(std::vector<seen_key>& keys) {
    own_.find_keys(keys);
    const double dlse = g_.dlse ? attend::detail::load_number(query_row(p_, g_.dlse, b_, h_, i_), g_.dlse.type) : 0;
    if (keys.empty()) {
      if (own_.sink() != minus_infinity) add(g_.to.dsinks, h_ * g_.to.dsinks.head, dlse);  // such a row's LSE is its sink
      return;
    }
    const denominator below = weigh(p_.normalizer, keys, own_.sink());
    std::vector<double> by_weight(keys.size());
    double mean = 0;
    for (std::size_t n = 0; n < keys.size(); ++n) {
      by_weight[n] = keys[n].kept * dout_times_value(keys[n].j);
      if (attend::detail::are_shares(p_.normalizer)) mean += keys[n].weight * by_weight[n];
    }
    for (std::size_t n = 0; n < keys.size(); ++n) {
      add_values(keys[n]);
      const response to = response_to(p_.normalizer, keys[n], below);
      add_scores(keys[n], (below.none ? 0 : to.slope) * (by_weight[n] - to.pull * mean + dlse));
    }
    if (p_.sinks) add(g_.to.dsinks, h_ * g_.to.dsinks.head, below.sink * (dlse - mean));
  }

 private:
  std::int64_t offset(const operand& x, std::int64_t head, std::int64_t row) const {
    return attend::detail::batch_offset(p_.batch, b_, x.batch) + head * x.head + row * x.row;
  }
  const void* dout() const { return query_row(p_, g_.dout, b_, h_, i_); }

  double dout_times_value(std::int64_t j) const {
    double dot = 0;
    own_.for_each_value(
        j, [&](std::size_t c, double value) { dot += value * read<T>(dout(), static_cast<std::int64_t>(c) * g_.dout.column); });
    return dot;
  }

  void add_values(const seen_key& key) {
    const operand& dv = g_.to.dv;
    if (!dv) return;
    double* const to = static_cast<double*>(key_row(p_, dv, b_, h_ / p_.group, key.j));
    for (std::int64_t c = 0; c < p_.value_width; ++c)
      to[c * dv.column] += key.weight * key.kept * read<T>(dout(), c * g_.dout.column);
  }

  /// From the gradient by a score behind all functions, back through these, to q and k.
  void add_scores(const seen_key& key, double by_score) {
    for (int n = p_.score_count - 1; n >= 0; --n) {
      const score_function& f = p_.score[n];
      const operand& to = g_.to.dscore[n];
      switch (f.what) {
        case score_function::kind::soft_cap: {
          // 1 - tanh^2, which would lose what little is left of it beside 1.
          const double e = std::exp(-2 * std::abs(own_.score_of(key.j, n).sum / f.cap));
          by_score *= 4 * e / ((1 + e) * (1 + e));
          break;
        }
        case score_function::kind::bias: add(to, offset(to, h_, i_) + key.j * to.column, by_score); break;
        case score_function::kind::alibi: add(to, h_ * to.head, -by_score * static_cast<double>(own_.distance(key.j))); break;
        case score_function::kind::relative: {
          const auto [down, along] = own_.relative_place(key.j);
          const operand& table = g_.to.drelative;
          add(table, h_ * table.head + down * table.row + along * table.column, by_score);
          break;
        }
      }
    }
    if (p_.compatibility == compatibility_kind::none) return;
    find_slopes(p_, own_.query(), own_.key(key.j), slopes_);
    add_slopes(g_.to.dq, [&](const operand& dq) { return query_row(p_, dq, b_, h_, i_); }, p_.scale * by_score, slopes_.by_q);
    add_slopes(
        g_.to.dk, [&](const operand& dk) { return key_row(p_, dk, b_, h_ / p_.group, key.j); }, p_.scale * by_score,
        slopes_.by_k);
    add_slopes(g_.to.dadditive, [](const operand& dw) { return dw.data; }, p_.scale * by_score, slopes_.by_weights);
  }

  /// Adds multiples of slopes to the row of a gradient, where it is wanted.
  template <class Row>
  static void add_slopes(const operand& to, const Row& row, double factor, const std::vector<double>& slopes) {
    if (!to) return;
    double* at = static_cast<double*>(row(to));
    for (std::size_t d = 0; d < slopes.size(); ++d, at += to.column) *at += factor * slopes[d];
  }

  const gradient_problem& g_;
  const problem& p_;
  row<T> own_;
  std::int64_t b_, h_, i_;
  compatibility_slopes slopes_;
};

template <class T>
void differentiate(const gradient_problem& g) {
  std::vector<seen_key> keys;
  for (std::int64_t b = 0; b < g.call.batch.count; ++b) {
    for (std::int64_t h = 0; h < g.call.heads; ++h) {
      for (std::int64_t i = 0; i < queries_of(g.call, b); ++i) row_gradient<T>(g, b, h, i)(keys);
    }
  }
}

gradients gradients_of(const backward_inputs& of, const array_view& q, const array_view& k, const array_view& v,
                       const attend::detail::packed_boundaries& packed, const options& how) {
  gradient_problem g = attend::detail::validate_upstream(of, q, k, v, packed, how);
  attend::gradients to;
  gradients by = attend::detail::make_gradients<gradients>(q, k, v, how, to);
  g.to = attend::detail::place_gradients(g.call, to, how);
  attend::detail::with_type(g.call.type, [&]<class T>(T) { differentiate<T>(g); });
  return by;
}

}  // namespace

gradients attention_backward(const array_view& dout, const array_view& dlse, const array_view& q, const array_view& k,
                             const array_view& v, const options& how) {
  return gradients_of({.dout = dout, .out = {}, .lse = {}, .dlse = dlse}, q, k, v, {}, how);
}

gradients attention_varlen_backward(const array_view& dout, const array_view& dlse, const array_view& q, const array_view& k,
                                    const array_view& v, const array_view& cu_seqlens_q, const array_view& cu_seqlens_k,
                                    const options& how) {
  return gradients_of({.dout = dout, .out = {}, .lse = {}, .dlse = dlse}, q, k, v, {cu_seqlens_q, cu_seqlens_k}, how);
}

}  // namespace attend::reference

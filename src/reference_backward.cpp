// The oracle of gradients: the definition in float64, one row of scores at a time, no tiles. Read `differentiate` first.
#include <cmath>
#include <vector>

#include "attend/reference.hpp"
#include "gradient_problem.hpp"
#include "reference_row.hpp"

namespace attend::reference {
namespace {

using attend::detail::gradient_operands;
using attend::detail::gradient_problem;

/// Adds to an element of a gradient, where it is wanted.
void add(const operand& to, std::int64_t offset, double x) {
  if (to) static_cast<double*>(to.data)[offset] += x;
}

/// Adds a multiple of a row of T to a row of a gradient.
template <class T>
void add_row(void* to, std::int64_t step, double factor, const void* from, std::int64_t column, std::int64_t width) {
  for (std::int64_t d = 0; d < width; ++d) static_cast<double*>(to)[d * step] += factor * read<T>(from, d * column);
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
    const double sink = own_.sink();
    double top = sink, sum = 0, mean = 0;
    for (const seen_key& key : keys) top = std::max(top, key.score);
    for (seen_key& key : keys) sum += key.weight = std::exp(key.score - top);
    sum += std::exp(sink - top);
    std::vector<double> by_weight(keys.size());
    for (std::size_t n = 0; n < keys.size(); ++n) {
      keys[n].weight /= sum;
      by_weight[n] = keys[n].kept * dout_times_value(keys[n].j);
      mean += keys[n].weight * by_weight[n];
    }
    for (std::size_t n = 0; n < keys.size(); ++n) {
      add_values(keys[n]);
      add_scores(keys[n], keys[n].weight * (by_weight[n] - mean + dlse));
    }
    if (p_.sinks) add(g_.to.dsinks, h_ * g_.to.dsinks.head, std::exp(sink - top) / sum * (dlse - mean));
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
    if (dv)
      add_row<T>(key_row(p_, dv, b_, h_ / p_.group, key.j), dv.column, key.weight * key.kept, dout(), g_.dout.column,
                 p_.value_width);
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
    const operand &dq = g_.to.dq, &dk = g_.to.dk;
    const double by_dot = p_.scale * by_score;
    const std::int64_t kv_head = h_ / p_.group;
    if (dq)
      add_row<T>(query_row(p_, dq, b_, h_, i_), dq.column, by_dot, key_row(p_, p_.k, b_, kv_head, key.j), p_.k.column,
                 p_.width);
    if (dk)
      add_row<T>(key_row(p_, dk, b_, kv_head, key.j), dk.column, by_dot, query_row(p_, p_.q, b_, h_, i_), p_.q.column,
                 p_.width);
  }

  const gradient_problem& g_;
  const problem& p_;
  row<T> own_;
  std::int64_t b_, h_, i_;
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

// One row of the oracle, by definition: which keys a query sees and how they score, decided key by key in float64.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "problem.hpp"

namespace attend::reference {

using attend::detail::number_at;
using attend::detail::operand;
using attend::detail::problem;
using attend::detail::score_function;

inline constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

/// Element `index` of a row that may lie at any address.
template <class T>
double read(const void* row, std::int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(row) + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

/// Scales x to length 1 and returns what it was; a zero vector stays one. The elements are divided by the largest first, so that no square
/// leaves its range. Infinities and NaN give NaN.
inline double make_unit(std::vector<double>& x) {
  double largest = 0, squares = 0;
  for (const double element : x) largest = std::max(largest, std::abs(element));
  if (largest == 0) return 0;
  for (double& element : x) {
    element /= largest;
    squares += element * element;
  }
  for (double& element : x) element /= std::sqrt(squares);
  return largest * std::sqrt(squares);
}

/// Whether cell `to` of an axis is a neighbour of cell `from`: it has the same remainder by the dilation, and lies within half a
/// kernel (clip), or fewer cells of that remainder than the kernel holds lie nearer (shift).
inline bool is_neighbor(std::int64_t from, std::int64_t to, std::int64_t size, std::int64_t kernel, std::int64_t dilation,
                        border edge) {
  const std::int64_t distance = std::abs(to - from), steps = distance / dilation;
  if (distance % dilation != 0) return false;
  if (edge == border::clip || steps == 0) return steps <= kernel / 2;
  const std::int64_t before = from / dilation, after = (size - 1 - from) / dilation;
  return 1 + std::min(steps - 1, before) + std::min(steps - 1, after) < kernel;
}

/// A number, and the sizes of the terms it is made of added up: what its rounding is relative to.
struct terms {
  double sum = 0, size = 0;
};

/// q or k as f reads it: of length 1 where only its direction counts, and what its length was then.
struct direction {
  std::vector<double> at;
  double length = 0;
};

/// A key that a row sees.
struct seen_key {
  std::int64_t j;
  double score;
  double size;  ///< of the score's terms
  double weight = 0;
  double kept = 1;  ///< by dropout: 0, or what the weight is multiplied by
};

/// One query of one head.
template <class T>
class row {
 public:
  row(const problem& p, std::int64_t b, std::int64_t h, std::int64_t i)
      : p_(p),
        b_(b),
        h_(h),
        i_(i),
        position_(attend::detail::first_position(p, b) + i),
        length_(attend::detail::key_length(p, b)),
        prefix_(p.has_prefix ? attend::detail::batch_value(p.batch, b, p.prefix) : 0) {
    if (p.compatibility != compatibility_kind::none) read_vector(p.q, query_row(p, p.q, b, h, i), query_);
  }

  /// The keys that are not excluded, in order, without weights. Nothing of an excluded key's K and V is read.
  void find_keys(std::vector<seen_key>& keys) {
    keys.clear();
    for (std::int64_t j = 0; j < length_; ++j) {
      if (!is_allowed(j)) continue;
      const terms score = score_of(j, p_.score_count);
      if (score.sum != minus_infinity) keys.push_back({.j = j, .score = score.sum, .size = score.size, .kept = kept(j)});
    }
  }

  /// Whether no mask excludes key j of those that are there, nor -inf in a bias or a table.
  bool is_allowed(std::int64_t j) const {
    if (!(j < prefix_ || in_sight(j - position_)) || !in_segment(j) || !in_neighborhood(j)) return false;
    if (p_.mask && read<unsigned char>(row_of(p_.mask), j * p_.mask.column) == 0) return false;
    return std::none_of(p_.score, p_.score + p_.score_count,
                        [&](const score_function& f) { return numbers_of(f, j) == minus_infinity; });
  }

  /// The scaled score of key j behind the first `functions` score functions.
  terms score_of(std::int64_t j, int functions) {
    terms score = compatibility(j);
    score = {p_.scale * score.sum, std::abs(p_.scale) * score.size};
    for (const score_function* f = p_.score; f != p_.score + functions; ++f) {
      if (f->what == score_function::kind::soft_cap) {
        score.sum = f->cap * std::tanh(score.sum / f->cap);  // its slope is at most 1, so rounding before it grows no further
        continue;
      }
      const double added = f->what == score_function::kind::alibi ? distance_bias(*f, j) : numbers_of(*f, j);
      score = {score.sum + added, score.size + std::abs(added)};
    }
    return score;
  }

  /// The query, and key j. Of a call whose f reads them.
  const direction& query() const { return query_; }
  const direction& key(std::int64_t j) {
    read_vector(p_.k, key_row(p_, p_.k, b_, h_ / p_.group, j), key_);
    return key_;
  }

  /// The logit that joins the denominator: -inf, which adds nothing, where there is none.
  double sink() const { return p_.sinks ? number_at(p_.sinks, h_ * p_.sinks.head) : minus_infinity; }

  /// How far key j stands from the query.
  std::int64_t distance(std::int64_t j) const { return std::abs(position_ - j); }

  /// Where in the table of offsets key j reads: rows and columns from the smallest offsets on.
  struct table_place {
    std::int64_t down, along;
  };
  table_place relative_place(std::int64_t j) const {
    const auto step = [](std::int64_t offset, std::int64_t reach) { return std::clamp(offset, -reach, reach) + reach; };
    const std::int64_t columns = p_.grid.columns;
    return {p_.grid ? step(j / columns - i_ / columns, p_.relative_rows) : 0,
            step(p_.grid ? j % columns - i_ % columns : j - position_, p_.relative_columns)};
  }

  /// Calls `visit(c, v_jc)` for every column of a key's value.
  template <class Visit>
  void for_each_value(std::int64_t j, const Visit& visit) const {
    const void* const values = key_row(p_, p_.v, b_, h_ / p_.group, j);
    for (std::int64_t c = 0; c < p_.value_width; ++c) visit(static_cast<std::size_t>(c), read<T>(values, c * p_.v.column));
  }

 private:
  /// By causal and window, a key so far from the query's position.
  bool in_sight(std::int64_t distance) const {
    return (!p_.causal || distance <= 0) && (!p_.left || distance >= -*p_.left) && (!p_.right || distance <= *p_.right);
  }

  bool in_segment(std::int64_t j) const {
    if (!p_.query_segments) return true;
    const std::int64_t own = attend::detail::query_segment(p_, b_, i_);
    return own >= 0 && own == attend::detail::key_segment(p_, b_, j);
  }

  bool in_neighborhood(std::int64_t j) const {
    if (!p_.neighborhood) return true;
    const auto& [kernel, dilation, edge] = p_.neighborhood;
    const auto& [rows, columns, given] = p_.grid;
    return is_neighbor(i_ / columns, j / columns, rows, kernel.rows, dilation.rows, edge) &&
           is_neighbor(i_ % columns, j % columns, columns, kernel.columns, dilation.columns, edge);
  }

  /// What a bias or the table of offsets adds to the score of key j; 0 for every other function.
  double numbers_of(const score_function& f, std::int64_t j) const {
    switch (f.what) {
      case score_function::kind::bias:
        return number_at(f.numbers, attend::detail::batch_offset(p_.batch, b_, f.numbers.batch) + h_ * f.numbers.head +
                                        i_ * f.numbers.row + j * f.numbers.column);
      case score_function::kind::relative: return relative_bias(j);
      case score_function::kind::soft_cap:
      case score_function::kind::alibi: break;
    }
    return 0;
  }

  double distance_bias(const score_function& f, std::int64_t j) const {
    return -attend::detail::alibi_slope(p_, f, h_) * static_cast<double>(distance(j));
  }

  double relative_bias(std::int64_t j) const {
    const auto [down, along] = relative_place(j);
    const operand& table = p_.relative;
    return number_at(table, h_ * table.head + down * table.row + along * table.column);
  }

  /// f(q, k_j).
  terms compatibility(std::int64_t j) {
    if (p_.compatibility == compatibility_kind::none) return {};
    key(j);
    switch (p_.compatibility) {
      case compatibility_kind::dot:
      case compatibility_kind::cosine: return add_up([](double q, double k, std::int64_t) { return q * k; });
      case compatibility_kind::gaussian:
        return add_up([&](double q, double k, std::int64_t) { return (q - k) / p_.sigma * ((q - k) / p_.sigma) / -2; });
      case compatibility_kind::l1: return add_up([](double q, double k, std::int64_t) { return -std::abs(q - k); });
      case compatibility_kind::additive: {
        const operand& w = p_.additive_weights;
        return add_up([&](double q, double k, std::int64_t d) { return number_at(w, d * w.column) * std::tanh(q + k); });
      }
      case compatibility_kind::none: break;
    }
    return {};
  }

  template <class Term>
  terms add_up(const Term& term_of) const {
    terms f;
    for (std::int64_t d = 0; d < p_.width; ++d) {
      const double term = term_of(query_.at[static_cast<std::size_t>(d)], key_.at[static_cast<std::size_t>(d)], d);
      f.sum += term;
      f.size += std::abs(term);
    }
    return f;
  }

  /// A row of q or k.
  void read_vector(const operand& x, const void* from, direction& to) const {
    to.at.resize(static_cast<std::size_t>(p_.width));
    for (std::size_t d = 0; d < to.at.size(); ++d) to.at[d] = read<T>(from, static_cast<std::int64_t>(d) * x.column);
    if (p_.compatibility == compatibility_kind::cosine) to.length = make_unit(to.at);
  }

  /// What dropout multiplies the weight of key j by.
  double kept(std::int64_t j) const {
    if (p_.dropout_p == 0) return 1;
    const std::uint32_t word = attend::detail::philox(p_.seed, j / 4, i_, h_, b_).word[j % 4];
    return attend::detail::keeps(p_.dropout_p, word) ? 1 / (1 - p_.dropout_p) : 0;
  }

  const void* row_of(const operand& x) const { return query_row(p_, x, b_, h_, i_); }

  const problem& p_;
  std::int64_t b_, h_, i_, position_, length_, prefix_;
  direction query_, key_;
};

}  // namespace attend::reference

// What a backward pass takes from the general form: how a weight and the gradient by its score follow from a score (normalisers), and how
// gradients by scores reach queries and keys (compatibility functions). The forward's sides are normalizer.inl and compatibility.inl.

namespace derivative {

/// What the pairs of a lane have in common: what its weights are computed with and multiplied by (the LSE of softmax, the inverse power of two
/// of relu2 and abs; 1 over what a row is divided by), and what a weight's gradient is taken against.
template <class S>
struct of_row {
  typename S::V base, factor, mean;
};

template <class S>
struct pair {
  typename S::V weight, by_score;
};

// of(score, by_weight, kept, row): the weight before dropout, and the gradient by the score from that by the dropped weight, of which dropout
// keeps `kept` times what is there.
template <class S>
struct softmax {
  using V = typename S::V;
  static pair<S> of(V score, V by_weight, V kept, const of_row<S>& row) {
    const V weight = weight_of<S>(score - row.base);
    return {weight, weight * S::fma(by_weight, kept, S::set(0) - row.mean)};
  }
};

template <class S>
struct mean {
  using V = typename S::V;
  static pair<S> of(V score, V by_weight, V kept, const of_row<S>& row) {
    return {score * row.factor, by_weight * kept * row.factor};
  }
};

template <class S>
struct sum {
  using V = typename S::V;
  static pair<S> of(V score, V by_weight, V kept, const of_row<S>&) { return {score, by_weight * kept}; }
};

/// The derivative is w (1 - w) = e^-|s| / (1 + e^-|s|)^2: the difference would leave nothing of large scores.
template <class S>
struct sigmoid {
  using V = typename S::V;
  static pair<S> of(V score, V by_weight, V kept, const of_row<S>&) {
    const V e = exp2_of<S>(S::abs(score) * S::set(-log2_of_e<typename S::T>)), below = S::set(1) + e;
    return {sigmoid_of<S>(score), by_weight * kept * S::quotient(e, below * below)};
  }
};

template <class S>
struct relu2 {
  using V = typename S::V;
  static pair<S> of(V score, V by_weight, V kept, const of_row<S>& row) {
    const V positive = S::max(S::set(0), score) * row.base;  // in this order NaN stays
    const V share = positive * row.factor;
    return {positive * share, (share + share) * S::fma(by_weight, kept, S::set(0) - row.mean) * row.base};
  }
};

/// |s| has no slope at 0: 0 is taken.
template <class S>
struct abs {
  using V = typename S::V;
  static pair<S> of(V score, V by_weight, V kept, const of_row<S>& row) {
    const V sign = S::select(S::equal(score, S::set(0)), S::set(0), S::with_sign(S::set(1), score));
    return {score * row.base * row.factor, S::fma(by_weight, kept, S::set(0) - sign * row.mean) * row.factor * row.base};
  }
};

}  // namespace derivative

// Slopes of a term of f by q: what a column of dq is the sum of, over keys and times the gradient by the score, but for the constants of
// factors_of() and the weights of additive. By k they are the same, or their negative.
namespace slope {

template <class S>
struct gaussian {
  using V = typename S::V;
  static V of(V q, V k) { return k - q; }
};

/// 0 where both are equal; NaN stays.
template <class S>
struct l1 {
  using V = typename S::V;
  static V of(V q, V k) {
    const V difference = k - q;
    const V sign = S::select(S::equal(difference, S::set(0)), S::set(0), S::with_sign(S::set(1), difference));
    return S::select(S::equal(difference, difference), sign, difference);
  }
};

/// 1 - tanh^2, which would lose what little is left of it beside 1.
template <class S>
struct additive {
  using V = typename S::V;
  static V of(V q, V k) {
    const V e = exp2_of<S>(S::abs(q + k) * S::set(-2 * log2_of_e<typename S::T>)), below = S::set(1) + e;
    return S::quotient(S::set(4) * e, below * below);
  }
};

/// By the weight of a column.
template <class S>
struct additive_weight {
  using V = typename S::V;
  static V of(V q, V k) { return tanh_of<S>(q + k); }
};

}  // namespace slope

template <class S>
struct backward_form : backward_products<S> {
  using block_of = forward_block<S>;
  using products = backward_products<S>;
  using products::lanes, products::width, products::part, products::tile_keys, products::padded_columns;
  using typename products::T, typename products::V;
  // Slopes are computed where a product multiplies, so sums share their registers with what slopes are computed from.
  template <bool marked>
  static constexpr int slopes_at_once = marked || S::micro_rows < 2 ? 1 : S::micro_rows / 2;

  /// A tile's gradients by scores, and what they are multiplied by: rows of keys, columns of queries, rows of queries.
  struct tile {
    const void* const* k_rows;
    int keys, lanes;  // how many there are
    const T *by_score, *marks, *queries, *q_rows;
    std::int64_t columns;
  };

  // --- Sums over keys and over lanes of slopes, as backward_products adds up products -----------------------------------------------

  /// out[c][lane] += sum over keys of x[key][lane] * slope(q[column + c][lane], k[key][column + c]), for the lanes of a stripe.
  template <template <class> class Slope, int Columns, bool marked>
  [[gnu::always_inline]] static inline void slopes_over_keys(const tile& t, int lane, std::int64_t column, T* out) {
    constexpr int vectors = S::micro_vectors;
    V q[Columns][vectors];
    for (int c = 0; c < Columns; ++c) {
      for (int j = 0; j < vectors; ++j) q[c][j] = S::load(t.queries + (column + c) * lanes + lane + j * width);
    }
    for (int begin = 0; begin < t.keys; begin += part) {
      const int end = begin + part < t.keys ? begin + part : t.keys;
      V sum[Columns][vectors];
      for (int c = 0; c < Columns; ++c) {
        for (int j = 0; j < vectors; ++j) sum[c][j] = S::set(0);
      }
      for (int r = begin; r < end; ++r) {
        const T* const row = static_cast<const T*>(t.k_rows[r]) + column;
        for (int j = 0; j < vectors; ++j) {
          const int at = r * lanes + lane + j * width;
          const V x = S::load(t.by_score + at);
          for (int c = 0; c < Columns; ++c) {
            const V next = S::fma(x, Slope<S>::of(q[c][j], S::set(row[c])), sum[c][j]);
            sum[c][j] = marked ? S::select(S::equal(S::load(t.marks + at), S::set(-infinity<T>)), sum[c][j], next) : next;
          }
        }
      }
      for (int c = 0; c < Columns; ++c) {
        for (int j = 0; j < vectors; ++j) {
          T* const at = out + (column + c) * lanes + lane + j * width;
          S::store(at, S::load(at) + sum[c][j]);
        }
      }
    }
  }

  template <template <class> class Slope, bool marked>
  static void add_slopes_over_keys(const tile& t, int lane, T* out) {
    constexpr int most = slopes_at_once<marked>;
    std::int64_t c = 0;
    for (; c + most <= t.columns; c += most) slopes_over_keys<Slope, most, marked>(t, lane, c, out);
    for (; c < t.columns; ++c) slopes_over_keys<Slope, 1, marked>(t, lane, c, out);
  }

  /// out[r][column ...] += sum over lanes of x[r][lane] * slope(q[lane], k[r]), for `Rows` keys from `first` on and a vector of columns.
  template <template <class> class Slope, int Rows, bool marked>
  [[gnu::always_inline]] static inline void slopes_over_lanes(const tile& t, int first, std::int64_t column, T* out) {
    const std::int64_t stored = padded_columns(t.columns);
    const int some = t.columns - column < width ? static_cast<int>(t.columns - column) : width;
    V k[Rows];
    for (int r = 0; r < Rows; ++r) {
      const T* const row = static_cast<const T*>(t.k_rows[first + r]) + column;
      k[r] = some == width ? S::load(row) : S::load_first(row, some);
    }
    for (int begin = 0; begin < t.lanes; begin += part) {
      const int end = begin + part < t.lanes ? begin + part : t.lanes;
      V sum[Rows];
      for (int r = 0; r < Rows; ++r) sum[r] = S::set(0);
      for (int lane = begin; lane < end; ++lane) {
        const V q = S::load(t.q_rows + lane * stored + column);
        for (int r = 0; r < Rows; ++r) {
          const int at = (first + r) * lanes + lane;
          if (marked && t.marks[at] == -infinity<T>) continue;
          sum[r] = S::fma(S::set(t.by_score[at]), Slope<S>::of(q, k[r]), sum[r]);
        }
      }
      for (int r = 0; r < Rows; ++r) {
        T* const at = out + (first + r) * stored + column;
        S::store(at, S::load(at) + sum[r]);
      }
    }
  }

  template <template <class> class Slope, bool marked>
  static void add_slopes_over_lanes(const tile& t, T* out) {
    constexpr int most = marked ? 1 : S::micro_rows;
    for (std::int64_t c = 0; c < t.columns; c += width) {
      int r = 0;
      for (; r + most <= t.keys; r += most) slopes_over_lanes<Slope, most, marked>(t, r, c, out);
      for (; r < t.keys; ++r) slopes_over_lanes<Slope, 1, marked>(t, r, c, out);
    }
  }

  // --- By the compatibility function ------------------------------------------------------------------------------------------------

  /// Adds what the keys of a tile give to the queries of the stripe that begins at `lane`.
  template <bool marked>
  static void add_over_keys(compatibility_index f, const tile& t, int lane, T* out) {
    switch (f) {
      case compatibility_index::dot:
      case compatibility_index::cosine:
        products::template add_over_keys<marked>(t.k_rows, t.keys, t.by_score + lane, t.marks + lane, t.columns, out + lane);
        break;
      case compatibility_index::gaussian: add_slopes_over_keys<slope::gaussian, marked>(t, lane, out); break;
      case compatibility_index::l1: add_slopes_over_keys<slope::l1, marked>(t, lane, out); break;
      case compatibility_index::additive: add_slopes_over_keys<slope::additive, marked>(t, lane, out); break;
      case compatibility_index::none: break;
    }
  }

  /// The same for the weights of `additive`, lane by lane.
  template <bool marked>
  static void add_to_weights(const tile& t, int lane, T* out) {
    add_slopes_over_keys<slope::additive_weight, marked>(t, lane, out);
  }

  /// Adds what the queries of a block give to the keys of a tile.
  template <bool marked>
  static void add_over_lanes(compatibility_index f, const tile& t, T* out) {
    switch (f) {
      case compatibility_index::dot:
      case compatibility_index::cosine:
        products::template add_over_lanes<marked>(t.by_score, t.marks, t.q_rows, padded_columns(t.columns), t.lanes, t.keys,
                                                  out);
        break;
      case compatibility_index::gaussian: add_slopes_over_lanes<slope::gaussian, marked>(t, out); break;
      case compatibility_index::l1: add_slopes_over_lanes<slope::l1, marked>(t, out); break;
      case compatibility_index::additive: add_slopes_over_lanes<slope::additive, marked>(t, out); break;
      case compatibility_index::none: break;
    }
  }

  /// Rows of queries as slopes read them: of dot products as they are, else scaled, or of length 1 times the scale, as scores read them.
  static void load_rows(const block_job& job, const T* queries, T* q_rows) {
    const std::int64_t stored = padded_columns(job.width);
    alignas(64) T ones[lanes];
    void* rows[lanes];
    for (int lane = 0; lane < lanes; ++lane) ones[lane] = 1, rows[lane] = q_rows + lane * stored;
    __builtin_memset(q_rows, 0, static_cast<std::size_t>(stored * lanes) * sizeof(T));
    columns_to_rows<S, lanes, T>(queries, ones, job.lanes.count, job.width, rows, 0, 1);
  }

  /// A number of the accumulator, the largest where x lies beyond.
  static T in_range(double x) {
    constexpr double most = sizeof(T) == sizeof(float) ? static_cast<double>(__FLT_MAX__) : __DBL_MAX__;
    return static_cast<T>(x < -most ? -most : x > most ? most : x);
  }

  /// What sums of dq and of dk are multiplied by. Keys and queries of functions of differences are scaled by the same power of two.
  struct factors {
    T query, key;
  };
  static factors factors_of(const block_job& job) {
    const double both = job.query_scale * job.score_scale;
    switch (job.compatibility) {
      case compatibility_index::cosine: return {in_range(both), in_range(job.score_scale)};
      case compatibility_index::gaussian: return {in_range(-2 * both), in_range(2 * both)};
      case compatibility_index::l1: return {in_range(-both), in_range(both)};
      default: return {in_range(both), in_range(both)};
    }
  }

  // --- What sums become at their end ------------------------------------------------------------------------------------------------

  // Of cosine, what lies along a vector of length 1 is no part of the gradient, and the vector's own length divides it:
  // (x - (x . unit) unit) / length. A sum that nothing was added to stays 0, whatever the vector holds.

  /// For vectors of queries next to each other.
  static void across(T* x, const T* unit, std::int64_t count, V inverse_length) {
    V dot = S::set(0), size = S::set(0);
    for (std::int64_t d = 0; d < count * lanes; d += lanes) {
      const V sum = S::load(x + d);
      dot = S::fma(sum, S::load(unit + d), dot);
      size = size + S::abs(sum);
    }
    const typename S::M nothing = S::equal(size, S::set(0));
    for (std::int64_t d = 0; d < count * lanes; d += lanes) {
      const V rest = S::fma(S::set(0) - dot, S::load(unit + d), S::load(x + d)) * inverse_length;
      S::store(x + d, S::select(nothing, S::set(0), rest));
    }
  }

  /// Sums of queries, column by column; `columns` is scratch for the queries, `weights` are those of additive.
  static void end_queries(const block_job& job, T* columns, const T* weights, T* sums) {
    if (job.compatibility == compatibility_index::cosine) {
      alignas(64) T inverse[lanes];
      with_input_type<T>(job.stored, [&]<class From>(From*) {
        rows_to_columns<S, lanes, From>(job.lanes.q, 0, job.lanes.count, job.width, job.q_column, 1, columns);
      });
      unit_columns<S, lanes>(columns, job.width, 1, inverse);
      for (int lane = 0; lane < lanes; lane += width) across(sums + lane, columns + lane, job.width, S::load(inverse + lane));
    } else if (job.compatibility == compatibility_index::additive) {
      for (std::int64_t i = 0; i < job.width * lanes; ++i) sums[i] *= weights[i / lanes];
    }
  }

  /// Sums of `count` keys, row by row. `rows` are these keys as they are, which become vectors of length 1.
  static void end_keys(const block_job& job, T* rows, std::int64_t count, const T* weights, T* sums) {
    const std::int64_t stored = padded_columns(job.width);
    for (std::int64_t key = 0; key < count; ++key, sums += stored, rows += job.width) {
      if (job.compatibility == compatibility_index::cosine) {
        const T inverse = unit_row<S>(rows, job.width);
        T dot = 0, size = 0;
        for (std::int64_t d = 0; d < job.width; ++d) {
          dot += sums[d] * rows[d];
          size += sums[d] < 0 ? -sums[d] : sums[d];
        }
        for (std::int64_t d = 0; d < job.width; ++d) sums[d] = size == 0 ? T{0} : (sums[d] - dot * rows[d]) * inverse;
      } else {
        for (std::int64_t d = 0; d < job.width; ++d) sums[d] *= weights[d];
      }
    }
  }
};

// Compatibility functions f(q, k) = sum over d of a term: what a kernel adds up, one term per column, in whatever order of
// loops suits it. Constant factors (1/2 sigma^2, signs) are the job's score_scale. `weight` is that of additive, 0 otherwise.
// Terms of columns that were filled up with zeros are 0. Long sums are added up by parts of `columns`, because one by one they
// drift too far; parts are shorter where all terms have one sign.

namespace compatible {

template <class S>
struct dot {
  static constexpr bool reads_keys = true, weighted = false;
  static constexpr std::int64_t columns = 128;
  [[gnu::always_inline]] static inline typename S::V add(typename S::V sum, typename S::V q, typename S::V k, typename S::V) {
    return S::fma(k, q, sum);
  }
};

/// The dot product of vectors that were brought to length 1 when they were read.
template <class S>
struct cosine : dot<S> {};

/// |q - k|^2 from the differences: expanded into |q|^2 - 2 q.k + |k|^2 it would lose what two near vectors differ in.
template <class S>
struct gaussian {
  static constexpr bool reads_keys = true, weighted = false;
  static constexpr std::int64_t columns = 32;
  [[gnu::always_inline]] static inline typename S::V add(typename S::V sum, typename S::V q, typename S::V k, typename S::V) {
    const typename S::V difference = q - k;
    return S::fma(difference, difference, sum);
  }
};

template <class S>
struct l1 {
  static constexpr bool reads_keys = true, weighted = false;
  static constexpr std::int64_t columns = 32;
  [[gnu::always_inline]] static inline typename S::V add(typename S::V sum, typename S::V q, typename S::V k, typename S::V) {
    return sum + S::abs(q - k);
  }
};

template <class S>
struct additive {
  static constexpr bool reads_keys = true, weighted = true;
  static constexpr std::int64_t columns = 128;
  [[gnu::always_inline]] static inline typename S::V add(typename S::V sum, typename S::V q, typename S::V k,
                                                         typename S::V weight) {
    return S::fma(weight, tanh_of<S>(q + k), sum);
  }
};

/// 0 without reading either.
template <class S>
struct none {
  static constexpr bool reads_keys = false, weighted = false;
  static constexpr std::int64_t columns = 128;
  [[gnu::always_inline]] static inline typename S::V add(typename S::V sum, typename S::V, typename S::V, typename S::V) {
    return sum;
  }
};

}  // namespace compatible

/// A vector's numbers are divided by the power of two at its largest before they are squared, so that no size of vector leaves
/// the range; a zero vector stays one.
template <class S>
[[gnu::always_inline]] static inline typename S::V inverse_norm(typename S::V squares, typename S::T length) {
  return S::select(S::equal(squares, S::set(0)), S::set(0), S::set(length) / S::sqrt(squares));
}

/// A row of adjacent columns becomes a vector of length 1, in place. Returns 1 over what its length was, 0 for a zero vector.
template <class S>
static typename S::T unit_row(typename S::T* row, std::int64_t columns) {
  using V = typename S::V;
  const auto for_each = [&](const auto& visit) __attribute__((always_inline)) {
    std::int64_t d = 0;
    for (; d + S::width <= columns; d += S::width) S::store(row + d, visit(S::load(row + d)));
    if (d < columns) {
      const int rest = static_cast<int>(columns - d);
      S::store_first(row + d, rest, visit(S::load_first(row + d, rest)));
    }
  };
  V top = S::set(0), squares = S::set(0);
  for_each([&](V x) __attribute__((always_inline)) {
    top = S::max(S::abs(x), top);
    return x;
  });
  const V factor = inverse_power<S>(S::set(S::largest(top)));
  for_each([&](V x) __attribute__((always_inline)) {
    x = x * factor;
    squares = S::fma(x, x, squares);
    return x;
  });
  const V inverse = inverse_norm<S>(S::set(S::sum(squares)), 1);
  for_each([&](V x) __attribute__((always_inline)) { return x * inverse; });
  return S::largest(inverse * factor);
}

/// Every column of [rows][lanes], a lane's vector, becomes `length` long. `inverse_lengths`, where it is given: as unit_row() returns them.
template <class S, int lanes>
static void unit_columns(typename S::T* x, std::int64_t rows, typename S::T length, typename S::T* inverse_lengths = nullptr) {
  using V = typename S::V;
  constexpr std::int64_t part = 64 * lanes;  // squares are added up by parts, as long sums of equal numbers drift
  const std::int64_t end = rows * lanes;
  for (int lane = 0; lane < lanes; lane += S::width) {
    V top = S::set(0), squares = S::set(0);
    for (std::int64_t at = lane; at < end; at += lanes) top = S::max(S::abs(S::load(x + at)), top);
    const V factor = inverse_power<S>(top);
    for (std::int64_t begin = lane; begin < end; begin += part) {
      V sum = S::set(0);
      for (std::int64_t at = begin; at < end && at < begin + part; at += lanes) {
        const V scaled = S::load(x + at) * factor;
        S::store(x + at, scaled);
        sum = S::fma(scaled, scaled, sum);
      }
      squares = squares + sum;
    }
    if (inverse_lengths) S::store(inverse_lengths + lane, inverse_norm<S>(squares, 1) * factor);
    const V inverse = inverse_norm<S>(squares, length);
    for (std::int64_t at = lane; at < end; at += lanes) S::store(x + at, S::load(x + at) * inverse);
  }
}

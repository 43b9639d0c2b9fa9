// Compatibility functions f(q, k) = sum over d of a term: what a kernel adds up, one term per column, in whatever order of
// loops suits it. Constant factors (1/2 sigma^2, signs) are the job's score_scale. `weight` is that of additive, 0 otherwise.
// Terms of columns that were filled up with zeros are 0.

namespace compatible {

template <class S>
struct dot {
  static constexpr bool reads_keys = true, weighted = false;
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
  [[gnu::always_inline]] static inline typename S::V add(typename S::V sum, typename S::V q, typename S::V k, typename S::V) {
    const typename S::V difference = q - k;
    return S::fma(difference, difference, sum);
  }
};

template <class S>
struct l1 {
  static constexpr bool reads_keys = true, weighted = false;
  [[gnu::always_inline]] static inline typename S::V add(typename S::V sum, typename S::V q, typename S::V k, typename S::V) {
    return sum + S::abs(q - k);
  }
};

template <class S>
struct additive {
  static constexpr bool reads_keys = true, weighted = true;
  [[gnu::always_inline]] static inline typename S::V add(typename S::V sum, typename S::V q, typename S::V k,
                                                         typename S::V weight) {
    return S::fma(weight, tanh_of<S>(q + k), sum);
  }
};

/// 0 without reading either.
template <class S>
struct none {
  static constexpr bool reads_keys = false, weighted = false;
  [[gnu::always_inline]] static inline typename S::V add(typename S::V sum, typename S::V, typename S::V, typename S::V) {
    return sum;
  }
};

}  // namespace compatible

/// Powers of two that bring vectors of any size near 1 before they are squared: by their largest element.
template <class T>
struct unit_scaling;
template <>
struct unit_scaling<float> {
  static constexpr float small = 0x1p-60f, enlarge = 0x1p100f, large = 0x1p60f, shrink = 0x1p-70f;
};
template <>
struct unit_scaling<double> {
  static constexpr double small = 0x1p-480, enlarge = 0x1p700, large = 0x1p480, shrink = 0x1p-560;
};
template <class T>
static T towards_one(T largest) {
  using by = unit_scaling<T>;
  return largest < by::small ? by::enlarge : largest > by::large ? by::shrink : T{1};
}
/// 1 / |x| from the sum of squares, 0 for a zero vector.
template <class T>
static T inverse_norm(T squares) {
  return squares == 0 ? T{0}
                      : 1 / (sizeof(T) == sizeof(float) ? static_cast<T>(__builtin_sqrtf(static_cast<float>(squares)))
                                                        : static_cast<T>(__builtin_sqrt(static_cast<double>(squares))));
}

/// A row of adjacent columns becomes a vector of length 1, in place.
template <class S>
static void unit_row(typename S::T* row, std::int64_t columns) {
  using T = typename S::T;
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
  const V factor = S::set(towards_one(S::largest(top)));
  for_each([&](V x) __attribute__((always_inline)) {
    x = x * factor;
    squares = S::fma(x, x, squares);
    return x;
  });
  const V inverse = S::set(inverse_norm<T>(S::sum(squares)));
  for_each([&](V x) __attribute__((always_inline)) { return x * inverse; });
}

/// Every column of [rows][lanes], a lane's vector, becomes `length` long.
template <class T, int lanes>
static void unit_columns(T* x, std::int64_t rows, T length) {
  T factor[lanes], squares[lanes];
  for (int lane = 0; lane < lanes; ++lane) factor[lane] = squares[lane] = 0;
  for (std::int64_t d = 0; d < rows; ++d) {
    for (int lane = 0; lane < lanes; ++lane) {
      const T size = x[d * lanes + lane] < 0 ? -x[d * lanes + lane] : x[d * lanes + lane];
      factor[lane] = size > factor[lane] ? size : factor[lane];
    }
  }
  for (int lane = 0; lane < lanes; ++lane) factor[lane] = towards_one(factor[lane]);
  for (std::int64_t d = 0; d < rows; ++d) {
    for (int lane = 0; lane < lanes; ++lane) {
      const T scaled = x[d * lanes + lane] *= factor[lane];
      squares[lane] += scaled * scaled;
    }
  }
  for (int lane = 0; lane < lanes; ++lane) factor[lane] = inverse_norm(squares[lane]) * length;
  for (std::int64_t d = 0; d < rows; ++d) {
    for (int lane = 0; lane < lanes; ++lane) x[d * lanes + lane] *= factor[lane];
  }
}

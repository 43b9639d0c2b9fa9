// The exponential and the arithmetic of running maxima: written once over an Isa policy, included by each kernel unit inside
// its namespace. Scores are natural; weights are 2^((score - maximum) * log2 e). Subtracting before scaling keeps nearly equal
// large scores apart: the difference is exact, a rounded product maximum * log2 e is not.

/// 2^f on [0, 1] as 1 + f q(f): tools/exp2_polynomial.py. Exact at 0, so that the largest score has weight exactly 1.
template <class T>
struct exp2_polynomial;
template <>
struct exp2_polynomial<float> {
  static constexpr float q[] = {1.86713008e-3f, 9.01703028e-3f, 5.57999131e-2f, 2.40164450e-1f, 6.93151312e-1f};
};
template <>
struct exp2_polynomial<double> {
  static constexpr double q[] = {9.935327037432376e-9, 9.469651205771598e-8, 1.331080097559098e-6, 1.524489575617700e-5,
                                 1.540393974154725e-4, 1.333354456984580e-3, 9.618129384465375e-3, 5.550410863258560e-2,
                                 2.402265069609467e-1, 6.931471805599090e-1};
};

/// 2^x for x <= 0; exactly 0 for -inf, NaN for NaN. Error below 1.5 units in the last place (float32: 8.3e-8 from the
/// polynomial).
template <class S>
[[gnu::always_inline]] static inline typename S::V exp2_of(typename S::V x) {
  using polynomial = exp2_polynomial<typename S::T>;
  typename S::V whole;
  const typename S::V f = S::fraction(x, whole);
  typename S::V p = S::set(polynomial::q[0]);
  for (int i = 1; i < static_cast<int>(sizeof(polynomial::q) / sizeof(polynomial::q[0])); ++i)
    p = S::fma(p, f, S::set(polynomial::q[i]));
  return S::scale_by_power(S::fma(p, f, S::set(1)), whole);
}

template <class T>
static constexpr T infinity = static_cast<T>(__builtin_inf());

/// What weights are taken against: the maximum, or 0 where a row has no key yet, so that 2^(-inf - 0) = 0 and not NaN.
template <class S>
[[gnu::always_inline]] static inline typename S::V safe_maximum(typename S::V m) {
  return S::select(S::equal(m, S::set(-infinity<typename S::T>)), S::set(0), m);
}

/// e^difference, for difference = score - maximum <= 0.
template <class S>
[[gnu::always_inline]] static inline typename S::V weight_of(typename S::V difference) {
  return exp2_of<S>(difference * S::set(static_cast<typename S::T>(1.44269504088896340736)));
}

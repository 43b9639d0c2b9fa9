// The exponential and what is made of it: written once over an Isa policy, included by each kernel unit inside its namespace.

/// tools/exp2_polynomial.py. `exp2`: 2^f on [0, 1] as 1 + f q(f), exact at 0, so that the largest score has weight exactly 1.
/// `expm1`: 2^f - 1 as f q(f), whose relative error stays small down to 0.
template <class T>
struct polynomial;
template <>
struct polynomial<float> {
  static constexpr float exp2[] = {1.86713008e-3f, 9.01703028e-3f, 5.57999131e-2f, 2.40164450e-1f, 6.93151312e-1f};
  static constexpr float expm1[] = {2.07455773e-4f, 1.27100575e-3f, 9.65065093e-3f,
                                    5.54965651e-2f, 2.40227138e-1f, 6.93147172e-1f};
};
template <>
struct polynomial<double> {
  static constexpr double exp2[] = {9.935327037432376e-9, 9.469651205771598e-8, 1.331080097559098e-6, 1.524489575617700e-5,
                                    1.540393974154725e-4, 1.333354456984580e-3, 9.618129384465375e-3, 5.550410863258560e-2,
                                    2.402265069609467e-1, 6.931471805599090e-1};
  static constexpr double expm1[] = {6.109233833023462e-10, 6.641338498733085e-9,  1.023456781718288e-7, 1.321075362905180e-6,
                                     1.525298689406950e-5,  1.540352174283144e-4,  1.333355833004696e-3, 9.618129105363016e-3,
                                     5.550410866496438e-2,  2.4022650695909722e-1, 6.931471805599453e-1};
};

template <class T>
static constexpr T infinity = static_cast<T>(__builtin_inf());
template <class T>
static constexpr T log2_of_e = static_cast<T>(1.44269504088896340736);

template <class S, int terms>
[[gnu::always_inline]] static inline typename S::V horner(const typename S::T (&q)[terms], typename S::V f) {
  typename S::V p = S::set(q[0]);
  for (int i = 1; i < terms; ++i) p = S::fma(p, f, S::set(q[i]));
  return p;
}

/// 2^x for x <= 0; exactly 0 for -inf, exactly 1 for 0, NaN for NaN. Errors below 3 units in the last place in float32, 4 in float64
/// (exponential_test.cpp). Shorter polynomials would do for the results, but not for LSE, which is held to 1e-5, nor beside peers.
template <class S>
[[gnu::always_inline]] static inline typename S::V exp2_of(typename S::V x) {
  typename S::V whole;
  const typename S::V f = S::fraction(x, whole);
  return S::scale_by_power(S::fma(horner<S>(polynomial<typename S::T>::exp2, f), f, S::set(1)), whole);
}

/// A power of two by which numbers up to x, as large as they may be, come to lie below 4 (infinity stays what it is). It is a normal
/// number, because results below these become 0.
template <class S>
[[gnu::always_inline]] static inline typename S::V inverse_power(typename S::V x) {
  using T = typename S::T;
  constexpr T smallest = sizeof(T) == sizeof(float) ? static_cast<T>(0x1p-126) : static_cast<T>(0x1p-1022);
  constexpr T largest = sizeof(T) == sizeof(float) ? static_cast<T>(0x1p126) : static_cast<T>(0x1p1022);
  const typename S::V power = S::max(S::power_below(x), S::set(smallest));
  return S::set(1) / S::select(S::less(S::set(largest), power), S::set(largest), power);
}

/// 1 / (1 + e^-x): from e^-|x|, which does not overflow. 0 for -inf, NaN for NaN.
template <class S>
[[gnu::always_inline]] static inline typename S::V sigmoid_of(typename S::V x) {
  using V = typename S::V;
  const V e = exp2_of<S>(S::abs(x) * S::set(-log2_of_e<typename S::T>));
  return S::quotient(S::select(S::less(x, S::set(0)), e, S::set(1)), S::set(1) + e);
}

/// tanh(x * inverse) for a positive `inverse`: tanh x = t / (t + 2) with t = e^2|x| - 1 = (2^n - 1) + 2^n (2^f - 1): a few units in the last place for every x, however
/// small. Beyond 20 it is 1 in both types.
template <class S>
[[gnu::always_inline]] static inline typename S::V tanh_of(typename S::V x, typename S::T inverse = 1) {
  using V = typename S::V;
  using T = typename S::T;
  V whole;
  const V f = S::fraction(S::min(S::set(40 * log2_of_e<T>), S::abs(x) * S::set(2 * log2_of_e<T> * inverse)), whole);
  const V power = S::scale_by_power(S::set(1), whole);
  const V t = S::fma(power, horner<S>(polynomial<T>::expm1, f) * f, power - S::set(1));
  return S::with_sign(S::quotient(t, t + S::set(2)), x);
}

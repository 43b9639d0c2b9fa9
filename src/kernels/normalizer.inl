// Normalisers: a weight per score, and what it adds to the row's denominator. A row carries a number m that its weights are taken
// against, so that no sum leaves the range; where m moves, what was summed so far shrinks.
//
//   softmax   m = running maximum; weights 2^((score - m) * log2 e). Subtracting before scaling keeps nearly equal large scores
//             apart, because the difference is exact and a rounded product m * log2 e is not.
//   relu2,    m = running maximum of max(s, 0), of |s|; weights are divided by the power of two at it (squared for relu2), which
//   abs       rounds nothing
//   mean      m = a power of two below 1/N for every row, which weights are multiplied by and results divided by
//   others    m = 0, unused

/// What softmax subtracts: the maximum, or 0 where a row has no key yet, so that 2^(-inf - 0) = 0 and not NaN.
template <class S>
[[gnu::always_inline]] static inline typename S::V safe_maximum(typename S::V m) {
  return S::select(S::equal(m, S::set(-infinity<typename S::T>)), S::set(0), m);
}

/// e^difference, for difference = score - maximum <= 0.
template <class S>
[[gnu::always_inline]] static inline typename S::V weight_of(typename S::V difference) {
  return exp2_of<S>(difference * S::set(log2_of_e<typename S::T>));
}

namespace normal {

// start(job): m before any key. `moves`: whether scores move m, to the maximum of size(score, excluded). base(m): what weights are
// computed with. shrink(m, base): what sums against m become against a new base. share: what joins the denominator. `vanishes`: the weight of a score of -inf, which marks an excluded key, comes out as 0 by itself; otherwise it
// is selected away.
template <class S>
struct softmax {
  using T = typename S::T;
  using V = typename S::V;
  using M = typename S::M;
  static constexpr bool moves = true, vanishes = true;
  static T start(const block_job&) { return -infinity<T>; }
  static V size(V score, M) { return score; }
  static V base(V m) { return safe_maximum<S>(m); }
  static V shrink(V m, V base) { return weight_of<S>(m - base); }
  static V weight(V score, V base) { return weight_of<S>(score - base); }
  static V share(V weight, M) { return weight; }
  // How far scores may rise above m before it moves: weights above 1 have the same precision, and scores of rows that see many keys hardly
  // ever rise as much again.
  static constexpr T patience = 4;
};

/// What normalisers have in common whose m does not move.
template <class S>
struct unmoved {
  using V = typename S::V;
  using M = typename S::M;
  static constexpr bool moves = false, vanishes = false;
  static typename S::T start(const block_job&) { return 0; }
  static V base(V m) { return m; }
  static V shrink(V, V) { return S::set(1); }
  static V share(V, M) { return S::set(0); }
};

template <class S>
struct mean : unmoved<S> {
  using typename unmoved<S>::V, typename unmoved<S>::M;
  static typename S::T start(const block_job& job) { return static_cast<typename S::T>(job.weight_factor); }
  static V weight(V score, V base) { return score * base; }
  static V share(V, M excluded) { return S::select(excluded, S::set(0), S::set(1)); }
};

template <class S>
struct sum : unmoved<S> {
  using typename unmoved<S>::V;
  static V weight(V score, V) { return score; }
};

template <class S>
struct sigmoid : unmoved<S> {
  using typename unmoved<S>::V;
  static constexpr bool vanishes = true;
  static V weight(V score, V) { return sigmoid_of<S>(score); }
};

template <class S>
struct relu2 {
  using V = typename S::V;
  using M = typename S::M;
  static constexpr bool moves = true, vanishes = true;
  static typename S::T start(const block_job&) { return 0; }
  static V size(V score, M) { return score; }
  static V base(V m) { return inverse_power<S>(m); }
  static V shrink(V m, V base) {
    const V less = base / inverse_power<S>(m);
    return less * less;
  }
  static V weight(V score, V base) {
    const V positive = S::max(S::set(0), score) * base;  // in this order NaN stays
    return positive * positive;
  }
  static V share(V weight, M) { return weight; }
};

template <class S>
struct abs {
  using V = typename S::V;
  using M = typename S::M;
  static constexpr bool moves = true, vanishes = false;
  static typename S::T start(const block_job&) { return 0; }
  static V size(V score, M excluded) { return S::select(excluded, S::set(0), S::abs(score)); }
  static V base(V m) { return inverse_power<S>(m); }
  static V shrink(V m, V base) { return base / inverse_power<S>(m); }
  static V weight(V score, V base) { return score * base; }
  static V share(V weight, M) { return S::abs(weight); }
};

/// m of a row without keys.
template <class S>
static typename S::T start(const block_job& job) {
  switch (job.normalizer) {
#define ATTEND_NORMALIZER(f) \
  case normalizer_index::f: return f<S>::start(job);
#include "kernels/functions.def"
  }
  return 0;
}

}  // namespace normal

/// The weight of a score, 0 where it is excluded, which `excluded` tells.
template <class S, template <class> class Normal>
[[gnu::always_inline]] static inline typename S::V weigh(typename S::V score, typename S::V base, typename S::M& excluded) {
  excluded = S::equal(score, S::set(-infinity<typename S::T>));
  const typename S::V weight = Normal<S>::weight(score, base);
  return Normal<S>::vanishes ? weight : S::select(excluded, S::set(0), weight);
}

/// m moves on to cover these scores.
template <class S, template <class> class Normal>
[[gnu::always_inline]] static inline typename S::V raise(typename S::V m, typename S::V score) {
  return S::max(Normal<S>::size(score, S::equal(score, S::set(-infinity<typename S::T>))), m);
}

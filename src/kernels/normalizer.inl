// Normalisers: a weight per score, and what it adds to the row's denominator. Scores are natural; softmax takes them against the
// row's running maximum, as 2^((score - maximum) * log2 e): subtracting before scaling keeps nearly equal large scores apart,
// because the difference is exact and a rounded product maximum * log2 e is not. The others keep a maximum of 0, so that folding
// partial results rescales by exactly 1.

/// What weights are taken against: the maximum, or 0 where a row has no key yet, so that 2^(-inf - 0) = 0 and not NaN.
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

// `against_maximum`: weights are of score - maximum. `divides`: the row is divided by its denominator at the end. `vanishes`:
// the weight of a score of -inf, which marks an excluded key, comes out as 0 by itself; otherwise it is selected away.
template <class S>
struct softmax {
  using V = typename S::V;
  static constexpr bool against_maximum = true, divides = true, vanishes = true;
  static V weight(V difference, V) { return weight_of<S>(difference); }
  static V share(V weight, typename S::M) { return weight; }
};

/// Weights carry a power of two below 1/N, so that sums of them stay in range wherever the mean does.
template <class S>
struct mean {
  using V = typename S::V;
  static constexpr bool against_maximum = false, divides = true, vanishes = false;
  static V weight(V score, V factor) { return score * factor; }
  static V share(V, typename S::M excluded) { return S::select(excluded, S::set(0), S::set(1)); }
};

template <class S>
struct sum {
  using V = typename S::V;
  static constexpr bool against_maximum = false, divides = false, vanishes = false;
  static V weight(V score, V) { return score; }
  static V share(V, typename S::M) { return S::set(0); }
};

template <class S>
struct sigmoid {
  using V = typename S::V;
  static constexpr bool against_maximum = false, divides = false, vanishes = true;
  static V weight(V score, V) { return sigmoid_of<S>(score); }
  static V share(V, typename S::M) { return S::set(0); }
};

template <class S>
struct relu2 {
  using V = typename S::V;
  static constexpr bool against_maximum = false, divides = true, vanishes = true;
  static V weight(V score, V) {
    const V positive = S::max(S::set(0), score);  // in this order NaN stays
    return positive * positive;
  }
  static V share(V weight, typename S::M) { return weight; }
};

template <class S>
struct abs {
  using V = typename S::V;
  static constexpr bool against_maximum = false, divides = true, vanishes = false;
  static V weight(V score, V) { return score; }
  static V share(V weight, typename S::M) { return S::abs(weight); }
};

/// Whether sums start from no key at all (-inf) or from 0; see above.
template <class S>
static bool against_maximum(normalizer_index n) {
  switch (n) {
#define ATTEND_NORMALIZER(f) \
  case normalizer_index::f: return f<S>::against_maximum;
#include "kernels/functions.def"
  }
  return true;
}

/// What a row's sum is multiplied by at the end; 0 where a row has nothing to be divided by.
template <class S>
static typename S::T final_factor(const block_job& job, typename S::T denominator) {
  using T = typename S::T;
  switch (job.normalizer) {
#define ATTEND_NORMALIZER(f)      \
  case normalizer_index::f:       \
    if (!f<S>::divides) return 1; \
    break;
#include "kernels/functions.def"
  }
  return denominator == 0 ? T{0} : static_cast<T>(1 / job.weight_factor) / denominator;
}

}  // namespace normal

/// The weight of a score, 0 where it is excluded. Sets `excluded` and, for kernels that sum, is called once per score.
template <class S, template <class> class Normal>
[[gnu::always_inline]] static inline typename S::V weigh(typename S::V score, typename S::V base, typename S::V factor,
                                                         typename S::M& excluded) {
  using normal_of = Normal<S>;
  excluded = S::equal(score, S::set(-infinity<typename S::T>));
  const typename S::V weight = normal_of::weight(normal_of::against_maximum ? score - base : score, factor);
  return normal_of::vanishes ? weight : S::select(excluded, S::set(0), weight);
}

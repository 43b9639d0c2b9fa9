// What happens to a score between the compatibility function and the weight, on vectors: soft cap, biases, ALiBi; and which weights
// dropout keeps.

/// A bias of -inf excludes the key: a selection, because NaN - inf would be NaN.
template <class S>
[[gnu::always_inline]] static inline typename S::V biased(typename S::V score, typename S::V bias) {
  const typename S::V excluded = S::set(-infinity<typename S::T>);
  return S::select(S::equal(bias, excluded), excluded, score + bias);
}

/// A score that a bias of -inf excluded earlier, whatever was made of it since.
template <class S>
[[gnu::always_inline]] static inline typename S::V unless_excluded(typename S::V score, typename S::V bias) {
  const typename S::V excluded = S::set(-infinity<typename S::T>);
  return S::select(S::equal(bias, excluded), excluded, score);
}

/// cap * tanh(score / cap). Of large caps the quotient may lie below the type's normal numbers, where it would be lost: there small
/// scores stay what they are, and others are computed with a power of two taken out.
template <class S>
struct soft_capping {
  using T = typename S::T;
  using V = typename S::V;
  static constexpr T power = static_cast<T>(0x1p-100), inverse_power = static_cast<T>(0x1p100);

  bool large;
  T cap, inverse, small;  // `small`: below it, tanh changes nothing that the type could hold

  // 1/cap has to be finite, so that it leaves a score of 0 what it is.
  static constexpr double most = sizeof(T) == sizeof(float) ? 0x1p120 : 0x1p1000;
  static double cap_of(double c) { return c > 0x1p100 ? c * 0x1p-100 : c; }

  explicit soft_capping(double c)
      : large(c > 0x1p100),
        cap(static_cast<T>(cap_of(c))),
        inverse(static_cast<T>(most < 1 / cap_of(c) ? most : 1 / cap_of(c))),
        small(static_cast<T>(c * (sizeof(T) == sizeof(float) ? 0x1p-14 : 0x1p-29))) {}

  [[gnu::always_inline]] inline V operator()(V score) const { return S::set(cap) * tanh_of<S>(score, inverse); }
  [[gnu::always_inline]] inline V of_large(V score) const {
    const V capped = (*this)(score * S::set(power)) * S::set(inverse_power);
    return S::select(S::less(S::abs(score), S::set(small)), score, capped);
  }

  /// The derivative, 1 - tanh(x)^2 = 4 e^-2|x| / (1 + e^-2|x|)^2 for x = score / cap: the difference would lose what little is left where
  /// scores are far beyond the cap.
  [[gnu::always_inline]] inline V slope(V score) const {
    const V x = S::abs(large ? score * S::set(power) : score) * S::set(inverse);
    const V e = exp2_of<S>(x * S::set(-2 * log2_of_e<T>)), below = S::set(1) + e;
    return S::quotient(S::set(4) * e, below * below);
  }
};

/// score - slope * |position - key|, for the distance from the query's position to a tile's first key, and the key's number there.
template <class S>
[[gnu::always_inline]] static inline typename S::V sloped(typename S::V score, typename S::V slope, typename S::V distance,
                                                          typename S::V number) {
  return S::fma(S::set(0) - slope, S::abs(distance - number), score);
}

/// Philox 4x32-10 (Salmon et al., 2011): the four words of counters {four_keys, query, head, batch}, for keys 4 * four_keys + 0 to 3.
/// What lies above the low 32 bits of a word is to be ignored.
template <class S>
[[gnu::always_inline]] static inline void philox(const dropout_rule& rule, typename S::Wide (&counter)[4]) {
  using Wide = typename S::Wide;
  std::uint32_t low = rule.key[0], high = rule.key[1];
  for (int round = 0; round < 10; ++round) {
    const Wide x = S::product(counter[0], S::wide(0xD2511F53)), y = S::product(counter[2], S::wide(0xCD9E8D57));
    counter[0] = S::high_xor(y, counter[1], S::wide(low));
    counter[2] = S::high_xor(x, counter[3], S::wide(high));
    counter[1] = y;
    counter[3] = x;
    low += 0x9E3779B9;
    high += 0xBB67AE85;
  }
}

/// What dropout multiplies the weights of `width` lanes by, 1 or 0, for four keys: kept[w] is that of key 4 * four_keys + w.
template <class S>
[[gnu::always_inline]] static inline void kept_lanes(const dropout_rule& rule, std::int64_t four_keys,
                                                     const std::uint64_t* query, const std::uint64_t* head,
                                                     typename S::V (&kept)[4]) {
  using Wide = typename S::Wide;
  constexpr int wide_lanes = S::width / S::counters;
  Wide words[4][S::counters];
  for (int n = 0; n < S::counters; ++n) {
    Wide counter[4] = {S::wide(static_cast<std::uint32_t>(four_keys)), S::load_wide(query + n * wide_lanes),
                       S::load_wide(head + n * wide_lanes), S::wide(rule.batch)};
    philox<S>(rule, counter);
    for (int w = 0; w < 4; ++w) words[w][n] = counter[w];
  }
  for (int w = 0; w < 4; ++w) kept[w] = S::at_least(words[w], S::wide(rule.from));
}

/// The same for one lane: to[r] is that of key first + r, for `count` keys and up to 4 * width behind them.
template <class S>
static void kept_row(const block_job& job, int lane, std::int64_t first, int count, typename S::T* to) {
  constexpr int wide_lanes = S::width / S::counters;
  alignas(64) std::uint64_t numbers[wide_lanes];
  for (int key = 0; key < count; key += 4 * S::width) {
    typename S::Wide words[4][S::counters];
    for (int n = 0; n < S::counters; ++n) {
      for (int i = 0; i < wide_lanes; ++i) numbers[i] = static_cast<std::uint32_t>((first + key) / 4 + n * wide_lanes + i);
      typename S::Wide counter[4] = {S::load_wide(numbers), S::wide(job.lanes.query[lane]), S::wide(job.lanes.head[lane]),
                                     S::wide(job.dropout.batch)};
      philox<S>(job.dropout, counter);
      for (int w = 0; w < 4; ++w) words[w][n] = counter[w];
    }
    alignas(64) typename S::T kept[4][S::width];
    for (int w = 0; w < 4; ++w) S::store(kept[w], S::at_least(words[w], S::wide(job.dropout.from)));
    for (int i = 0; i < 4 * S::width; ++i) to[key + i] = kept[i % 4][i / 4];
  }
}

// What `forward` does to a stripe: `Vectors` vectors of a block's lanes over some keys of a tile. A full tile is cut into stripes of
// micro_vectors vectors over all of its keys, which is what the registers hold best. Where few pairs of a tile are allowed (a
// neighbourhood, a narrow window), stripes of one vector visit only the keys that any of their lanes sees. A pair's numbers are
// the same in both: sums run over the same keys in the same order, less those whose weight is 0.

/// Sizes and memory of a block of the forward kernel.
template <class S>
struct forward_block {
  using T = typename S::T;
  using V = typename S::V;
  static constexpr int width = S::width;
  static constexpr int lanes = S::width * S::block_vectors;
  static constexpr int tile_keys = 96;
  static constexpr std::int64_t chunk_keys = 16 * tile_keys;
  static_assert(lanes <= max_lanes && S::block_vectors % S::micro_vectors == 0 && tile_keys % S::micro_rows == 0);
  static_assert(S::micro_vectors > 1, "a stripe of one vector is a sparse one");

  struct scratch {
    T *queries, *scores, *additive, *bias, *relative, *relative_rows, *packed_k, *packed_v;
    typename S::Word* bits;
    const T **k_rows, **v_rows;
    std::int64_t bytes;
  };

  /// A partial result.
  struct sums {
    T *out, *maximum, *denominator;
  };

  /// Lanes from `lane` on, and the keys that they visit: their rows, and their numbers in the tile where they are not all.
  struct stripe_keys {
    int lane, count;
    const T* const* k_rows;
    const T* const* v_rows;
    const unsigned char* numbers;
    std::int64_t first;  // key of the tile
  };
};

template <class S, int Vectors>
struct stripe : forward_block<S> {
  using block = forward_block<S>;
  using block::lanes, block::width;
  using typename block::scratch, typename block::stripe_keys, typename block::sums, typename block::T, typename block::V;
  static constexpr bool sparse = Vectors == 1;
  // One vector leaves registers for more rows, which also hide the latency of the sums.
  static constexpr int rows = sparse ? 2 * S::micro_rows : S::micro_rows;

  /// What a call of score_rows covers: columns [begin, end), whose sum is added to what the scores hold, unless they are the first.
  struct part {
    std::int64_t begin, end;
    const T* additive;
  };

  /// scores[r][lane] (+)= F(q[lane], k_rows[r]) for `Rows` keys.
  template <class F, int Rows>
  [[gnu::always_inline]] static inline void score_rows(const T* const* k_rows, const T* queries, const part& of, T* scores) {
    V sum[Rows][Vectors];
    const T* k[Rows];
    for (int r = 0; r < Rows; ++r) {
      k[r] = k_rows[r];
      for (int j = 0; j < Vectors; ++j) sum[r][j] = S::set(0);
    }
    queries += of.begin * lanes;
    for (std::int64_t d = of.begin; d < of.end; ++d, queries += lanes) {
      V q[Vectors];
      for (int j = 0; j < Vectors; ++j) q[j] = S::load(queries + j * width);
      const V weight = S::set(F::weighted ? of.additive[d] : T{0});
      for (int r = 0; r < Rows; ++r) {
        const V key = S::set(k[r][d]);
        for (int j = 0; j < Vectors; ++j) sum[r][j] = F::add(sum[r][j], q[j], key, weight);
      }
    }
    if (of.begin > 0) {
      for (int r = 0; r < Rows; ++r) {
        for (int j = 0; j < Vectors; ++j) sum[r][j] = sum[r][j] + S::load(scores + r * lanes + j * width);
      }
    }
    for (int r = 0; r < Rows; ++r) {
      for (int j = 0; j < Vectors; ++j) S::store(scores + r * lanes + j * width, sum[r][j]);
    }
  }

  template <class F>
  static void score(const block_job& job, const scratch& s, const stripe_keys& keys) {
    T* const scores = s.scores + keys.lane;
    if constexpr (!F::reads_keys) {
      for (int r = 0; r < keys.count; ++r) {
        for (int j = 0; j < Vectors; ++j) S::store(scores + r * lanes + j * width, S::set(0));
      }
      return;
    }
    const T* const queries = s.queries + keys.lane;
    std::int64_t begin = 0;
    do {  // once for width 0, too
      const part of{begin, job.width - begin < F::columns ? job.width : begin + F::columns, s.additive};
      int r = 0;
      for (; r + rows <= keys.count; r += rows) score_rows<F, rows>(keys.k_rows + r, queries, of, scores + r * lanes);
      if (sparse && r + S::micro_rows <= keys.count) {
        score_rows<F, S::micro_rows>(keys.k_rows + r, queries, of, scores + r * lanes);
        r += S::micro_rows;
      }
      score_rest<F, S::micro_rows - 1>(keys.k_rows + r, keys.count - r, queries, of, scores + r * lanes);
      begin += F::columns;
    } while (begin < job.width);
  }

  /// The last keys, fewer than a register block.
  template <class F, int Most>
  static void score_rest(const T* const* k_rows, int count, const T* queries, const part& of, T* scores) {
    if (count == Most) {
      score_rows<F, Most>(k_rows, queries, of, scores);
    } else if constexpr (Most > 1) {
      score_rest<F, Most - 1>(k_rows, count, queries, of, scores);
    }
  }

  using score_function = void (*)(const block_job&, const scratch&, const stripe_keys&);
  static constexpr score_function scores[] = {
#define ATTEND_COMPATIBILITY(f) score<compatible::f<S>>,
#include "kernels/functions.def"
  };

  /// x = visit(x, key's number in the tile, lane) for every vector of a stripe's scores.
  template <class Visit>
  [[gnu::always_inline]] static inline void for_each_score(const scratch& s, const stripe_keys& keys, const Visit& visit) {
    for (int r = 0; r < keys.count; ++r) {
      const int key = sparse ? keys.numbers[r] : r;
      for (int lane = keys.lane; lane < keys.lane + Vectors * width; lane += width) {
        T* const at = s.scores + r * lanes + lane;
        S::store(at, visit(S::load(at), key, lane));
      }
    }
  }

  /// What a step adds, per key and lane.
  static const T* added(const scratch& s, const score_step& step) {
    return step.kind == score_kind::relative ? s.relative : s.bias + step.number * block::tile_keys * lanes;
  }

  static void apply(const block_job& job, const scratch& s, const stripe_keys& keys, const score_step& step) {
    switch (step.kind) {
      case score_kind::soft_cap: {
        const soft_capping<S> capped(step.cap);
        if (capped.large)
          for_each_score(s, keys, [&](V score, int, int) __attribute__((always_inline)) { return capped.of_large(score); });
        else
          for_each_score(s, keys, [&](V score, int, int) __attribute__((always_inline)) { return capped(score); });
        break;
      }
      case score_kind::bias:
      case score_kind::relative: {
        const T* const from = added(s, step);
        for_each_score(s, keys, [&](V score, int key, int lane) __attribute__((always_inline)) {
          return biased<S>(score, S::load(from + key * lanes + lane));
        });
        break;
      }
      case score_kind::alibi: {
        alignas(64) T slope[lanes], distance[lanes];
        for (int lane = keys.lane; lane < keys.lane + Vectors * width; ++lane) {
          const bool used = lane < job.lanes.count;
          slope[lane] = used ? static_cast<T>(job.lanes.slope[lane]) : T{0};
          distance[lane] = used ? static_cast<T>(job.lanes.position[lane] - keys.first) : T{0};
        }
        for_each_score(s, keys, [&](V score, int key, int lane) __attribute__((always_inline)) {
          return sloped<S>(score, S::load(slope + lane), S::load(distance + lane), S::set(static_cast<T>(key)));
        });
        break;
      }
    }
  }

  /// Applies what is left of the scale and the job's steps.
  static void adjust(const block_job& job, const scratch& s, const stripe_keys& keys) {
    if (job.score_scale != 1) {
      const V factor = S::set(static_cast<T>(job.score_scale));
      for_each_score(s, keys, [&](V score, int, int) __attribute__((always_inline)) { return score * factor; });
    }
    for (int n = 0; n < job.step_count; ++n) apply(job, s, keys, job.steps[n]);
    for (int n = 0; job.excludes_late && n < job.step_count; ++n) {
      if (!job.steps[n].adds) continue;
      const T* const from = added(s, job.steps[n]);
      for_each_score(s, keys, [&](V score, int key, int lane) __attribute__((always_inline)) {
        return unless_excluded<S>(score, S::load(from + key * lanes + lane));
      });
    }
  }

  /// A score, or -inf where the lane does not see the key: a selection, so nothing an excluded pair holds survives.
  [[gnu::always_inline]] static inline V seen_score(const scratch& s, V score, int key, int lane) {
    const typename S::Word* const words = s.bits + key / keys_per_word * lanes + lane;
    return S::select_bit(words, key % keys_per_word, score, S::set(-infinity<T>));
  }

  /// Weights that dropout takes away become 0, NaN stays; `marked` as in weigh_keys.
  template <bool marked>
  static void drop(const block_job& job, const scratch& s, const stripe_keys& keys) {
    alignas(64) std::uint64_t query[lanes], head[lanes];
    for (int lane = keys.lane; lane < keys.lane + Vectors * width; ++lane) {
      query[lane] = lane < job.lanes.count ? job.lanes.query[lane] : 0;
      head[lane] = lane < job.lanes.count ? job.lanes.head[lane] : 0;
    }
    const auto number = [&](int r) { return sparse ? keys.numbers[r] : r; };
    for (int lane = keys.lane; lane < keys.lane + Vectors * width; lane += width) {
      V kept[4];
      for (int r = 0; r < keys.count;) {
        const int four = number(r) / 4;  // a tile begins at a multiple of four keys
        kept_lanes<S>(job.dropout, keys.first / 4 + four, query + lane, head + lane, kept);
        for (; r < keys.count && number(r) / 4 == four; ++r) {
          T* const at = s.scores + r * lanes + lane;
          const V weight = S::load(at), left = weight * kept[number(r) % 4];
          S::store(at, marked ? S::select(S::equal(weight, S::set(-infinity<T>)), weight, left) : left);
        }
      }
    }
  }

  /// Scores -> weights in place, 0 where a pair is excluded (by its bits, if `masked`); m and l move on; `rescale` is what the sums so
  /// far shrink by. With `marked`, excluded pairs become -inf instead of 0, so that careful sums of values can tell them from
  /// weights that underflowed.
  template <template <class> class Normal, bool marked, bool masked>
  static void weigh_keys(const scratch& s, const stripe_keys& keys, const sums& result, T* rescale) {
    using normal_of = Normal<S>;
    T* const own_scores = s.scores + keys.lane;
    T* const maximum = result.maximum + keys.lane;
    T* const denominator = result.denominator + keys.lane;
    rescale += keys.lane;
    V m[Vectors], base[Vectors], l[Vectors];
    for (int i = 0; i < Vectors; ++i) m[i] = S::load(maximum + i * width);
    const auto score_at = [&](int r, int i) __attribute__((always_inline)) {
      const V score = S::load(own_scores + r * lanes + i * width);
      return masked ? seen_score(s, score, sparse ? keys.numbers[r] : r, keys.lane + i * width) : score;
    };
    if constexpr (normal_of::moves) {
      for (int r = 0; r < keys.count; ++r) {
        for (int i = 0; i < Vectors; ++i) {
          const V score = score_at(r, i);
          if constexpr (masked) S::store(own_scores + r * lanes + i * width, score);
          m[i] = raise<S, Normal>(m[i], score);
        }
      }
    }
    for (int i = 0; i < Vectors; ++i) {
      l[i] = S::set(0);
      base[i] = normal_of::base(m[i]);
      S::store(rescale + i * width, normal_of::shrink(S::load(maximum + i * width), base[i]));
      S::store(maximum + i * width, m[i]);
    }
    for (int r = 0; r < keys.count; ++r) {
      for (int i = 0; i < Vectors; ++i) {
        T* const at = own_scores + r * lanes + i * width;
        typename S::M excluded;
        const V weight = weigh<S, Normal>(normal_of::moves ? S::load(at) : score_at(r, i), base[i], excluded);
        l[i] = l[i] + normal_of::share(weight, excluded);
        S::store(at, marked ? S::select(excluded, S::set(-infinity<T>), weight) : weight);
      }
    }
    for (int i = 0; i < Vectors; ++i) {
      T* const at = denominator + i * width;
      S::store(at, S::fma(S::load(at), S::load(rescale + i * width), l[i]));
    }
  }

  using weigh_function = void (*)(const scratch&, const stripe_keys&, const sums&, T*);
  template <bool marked, bool masked>
  static constexpr weigh_function weights[] = {
#define ATTEND_NORMALIZER(f) weigh_keys<normal::f, marked, masked>,
#include "kernels/functions.def"
  };

  /// out[c][lane] = out[c][lane] * rescale[lane] + sum over keys of v_rows[key][c] * weights[key][lane], for `Columns` columns.
  template <int Columns, bool marked>
  [[gnu::always_inline]] static inline void value_columns(const T* const* v_rows, const T* weights, int count,
                                                          std::int64_t column, const T* rescale, T* out) {
    V sum[Columns][Vectors];
    for (int c = 0; c < Columns; ++c) {
      for (int j = 0; j < Vectors; ++j) sum[c][j] = S::set(0);
    }
    for (int r = 0; r < count; ++r, weights += lanes) {
      const T* const v = v_rows[r] + column;
      V w[Vectors];
      for (int j = 0; j < Vectors; ++j) w[j] = S::load(weights + j * width);
      for (int c = 0; c < Columns; ++c) {
        const V value = S::set(v[c]);
        for (int j = 0; j < Vectors; ++j) {
          const V next = S::fma(value, w[j], sum[c][j]);
          sum[c][j] = marked ? S::select(S::equal(w[j], S::set(-infinity<T>)), sum[c][j], next) : next;
        }
      }
    }
    for (int j = 0; j < Vectors; ++j) {
      const V shrink = S::load(rescale + j * width);
      for (int c = 0; c < Columns; ++c) {
        T* const at = out + c * lanes + j * width;
        S::store(at, S::fma(S::load(at), shrink, sum[c][j]));
      }
    }
  }

  /// Asks for a part of what the next tile reads of dense biases and masks, for the lanes of a stripe. Their rows lie far apart, and
  /// hardware does not see where they go on.
  static void ask_ahead(const block_job& job, const stripe_keys& keys, std::int64_t part, std::int64_t parts) {
    constexpr int line = 64;
    const std::int64_t first = keys.first + block::tile_keys, left = job.keys.count - first;
    if (left <= 0 || sparse) return;
    const std::int64_t count = left < block::tile_keys ? left : block::tile_keys, own = Vectors * width;
    const auto ask = [&](const auto* rows, std::int64_t bytes) {
      for (std::int64_t lane = keys.lane + own * part / parts; lane < keys.lane + own * (part + 1) / parts; ++lane) {
        if (lane >= job.lanes.count || (lane > 0 && rows[lane] == rows[lane - 1])) continue;
        const char* const row = reinterpret_cast<const char*>(rows[lane]) + first * bytes;
        for (std::int64_t at = 0; at < count * bytes; at += line) __builtin_prefetch(row + at, 0, 2);
      }
    };
    for (int n = 0; n < job.step_count; ++n) {
      const score_step& step = job.steps[n];
      if (step.kind == score_kind::bias && step.step == 1)
        ask(job.lanes.bias[step.number], static_cast<std::int64_t>(step.is_f32 ? sizeof(float) : sizeof(T)));
    }
    if (job.has_mask && job.mask_step == 1 && job.lanes.mask_classes[first / block::tile_keys] == tile_class::partial)
      ask(job.lanes.mask, 1);
  }

  template <bool marked>
  static void values(const block_job& job, const scratch& s, const stripe_keys& keys, const T* rescale, T* out) {
    const T* const own_weights = s.scores + keys.lane;
    rescale += keys.lane;
    out += keys.lane;
    std::int64_t c = 0;
    const bool asks = job.bias_count > 0 || job.has_mask;
    for (; c + rows <= job.value_width; c += rows) {
      if (asks) ask_ahead(job, keys, c / rows, job.value_width / rows);
      value_columns<rows, marked>(keys.v_rows, own_weights, keys.count, c, rescale, out + c * lanes);
    }
    if (sparse && c + S::micro_rows <= job.value_width) {
      value_columns<S::micro_rows, marked>(keys.v_rows, own_weights, keys.count, c, rescale, out + c * lanes);
      c += S::micro_rows;
    }
    value_rest<S::micro_rows - 1, marked>(keys, own_weights, c, job.value_width - c, rescale, out + c * lanes);
  }

  /// The last columns, fewer than a register block.
  template <int Most, bool marked>
  static void value_rest(const stripe_keys& keys, const T* own_weights, std::int64_t column, std::int64_t columns,
                         const T* rescale, T* out) {
    if (columns == Most) {
      value_columns<Most, marked>(keys.v_rows, own_weights, keys.count, column, rescale, out);
    } else if constexpr (Most > 1) {
      value_rest<Most - 1, marked>(keys, own_weights, column, columns, rescale, out);
    }
  }

  static void scores_of(const block_job& job, const scratch& s, const stripe_keys& keys) {
    scores[static_cast<int>(job.compatibility)](job, s, keys);
    adjust(job, s, keys);
  }

  /// -inf where the bits exclude a pair.
  static void exclude(const scratch& s, const stripe_keys& keys) {
    for_each_score(s, keys,
                   [&](V score, int key, int lane) __attribute__((always_inline)) { return seen_score(s, score, key, lane); });
  }

  template <bool marked, bool masked>
  static void fold_keys(const block_job& job, const scratch& s, const stripe_keys& keys, const sums& result, T* rescale) {
    scores_of(job, s, keys);
    weights<marked, masked>[static_cast<int>(job.normalizer)](s, keys, result, rescale);
    if (job.dropout.given) drop<marked>(job, s, keys);
    values<marked>(job, s, keys, rescale, result.out);
  }
};
